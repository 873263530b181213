-- What is given from outside: to the memory, turns of sessions that are kept elsewhere, and memories written by hand; to
-- the engine, whole sessions and states of another one.

-- A thread that holds what the memory was given of a session that is kept elsewhere, or of none. It is searched and
-- consolidated as any other; frameworks that list their sessions leave it out.
ALTER TABLE threads ADD COLUMN memory_only boolean NOT NULL DEFAULT false;

-- The names that the thread may have which holds what the memory is given of a session: one that shows the session's id,
-- and one for an id that is too long for that, or where a session of its own has the first name.
CREATE FUNCTION memory_thread_names(p_session_id text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY['memory:' || p_session_id, 'memory#' || encode(sha256(convert_to(p_session_id, 'UTF8')), 'hex')];

-- The session that a thread of the memory's holds turns of.
CREATE FUNCTION remembered_session(t threads) RETURNS text
LANGUAGE sql STABLE
RETURN coalesce(t.metadata ->> 'session_id', substr(t.session_id, length('memory:') + 1));

-- Returns the name of the thread that holds what the memory is given of a session, and makes it where there is none.
-- Errors: HP006 both of its names are taken by sessions of their own.
CREATE FUNCTION memory_thread(p_app_name text, p_user_id text, p_session_id text) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_name text;
BEGIN
    FOREACH v_name IN ARRAY memory_thread_names(p_session_id) LOOP
        CONTINUE WHEN char_length(v_name) > 512;
        INSERT INTO threads (app_name, user_id, session_id, memory_only, metadata)
        VALUES (p_app_name, p_user_id, v_name, true,
                CASE WHEN starts_with(v_name, 'memory#') THEN jsonb_build_object('session_id', p_session_id)
                     ELSE '{}' END)
        ON CONFLICT (app_name, user_id, session_id) DO NOTHING;
        IF EXISTS (SELECT FROM threads WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = v_name
                                             AND memory_only) THEN
            RETURN v_name;
        END IF;
    END LOOP;
    RAISE EXCEPTION '% is a session of its own: the memory keeps what it is given of others elsewhere', v_name
        USING ERRCODE = 'HP006';
END
$$;

-- Asks for what is not yet consolidated of a session, each stage by itself; nothing where there is no such session.
-- Unlike finalize_session it leaves the session open.
CREATE FUNCTION consolidate_session(p_app_name text, p_user_id text, p_session_id text)
RETURNS TABLE (job_id uuid, job_type text, created boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads AS each
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id AND NOT has_expired(each)
    FOR NO KEY UPDATE;
    IF t.last_seq > t.fast_upto_seq THEN
        RETURN QUERY SELECT q.job_id, 'fast_replay', q.created FROM enqueue_consolidation(t.id, 'fast_replay') AS q;
    END IF;
    IF t.last_seq > t.deep_upto_seq THEN
        RETURN QUERY SELECT q.job_id, 'deep_reflection', q.created
                     FROM enqueue_consolidation(t.id, 'deep_reflection') AS q;
    END IF;
END
$$;

-- A memory that somebody wrote.
CREATE TYPE given_memory AS (
    id            uuid,
    content       text,
    metadata      jsonb,
    initial_score double precision,
    occurred_at   timestamptz         -- NULL: now
);

-- Stores memories that somebody wrote, without vectors until the backfill. An id that is stored already gets what is
-- new of its memory; one of another user is passed over. Returns how many were stored or changed.
CREATE FUNCTION give_memories(p_app_name text, p_user_id text, p_memories given_memory[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    -- By id, as accesses lock them.
    INSERT INTO memories AS m (id, user_id, app_name, memory_type, content, metadata, initial_score, occurred_at)
    SELECT g.id, p_user_id, p_app_name, 'semantic', g.content, g.metadata, g.initial_score,
           coalesce(g.occurred_at, engine_now())
    FROM unnest(p_memories) AS g ORDER BY g.id
    ON CONFLICT (id) DO UPDATE SET
        content = EXCLUDED.content, metadata = EXCLUDED.metadata, initial_score = EXCLUDED.initial_score,
        occurred_at = EXCLUDED.occurred_at,
        embedding = CASE WHEN m.content = EXCLUDED.content THEN m.embedding END,
        embedding_model = CASE WHEN m.content = EXCLUDED.content THEN m.embedding_model END
    WHERE m.app_name = EXCLUDED.app_name AND m.user_id = EXCLUDED.user_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    PERFORM enqueue_embedding_backfill();
    RETURN v_count;
END
$$;

-- Begins the import of a session that is kept elsewhere, with the state that it has there; returns what became of it:
--   created   there was none
--   known     an earlier import made it, and nobody has appended to it since
--   moved     an earlier import made it, and somebody appended since: its state is its own now
--   taken     there is one that no import made: nothing was changed
--   erased    it was erased here, or its user, after it began: nothing was made
-- Events follow by append_events, with what each did to the session's state unless it moved; then
-- finish_session_import. Errors: HP004 state too large.
CREATE FUNCTION import_session(
    p_app_name text, p_user_id text, p_session_id text, p_state jsonb, p_created_at timestamptz)
RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t        threads;
    v_thread uuid;
BEGIN
    PERFORM check_state_size((app_policy(p_app_name)).max_state_bytes, p_state);
    IF is_erased_import(p_app_name, p_user_id, p_session_id, p_created_at) AND NOT EXISTS (
        SELECT FROM threads WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id) THEN
        RETURN 'erased';
    END IF;
    INSERT INTO threads (app_name, user_id, session_id, state, created_at, metadata)
    VALUES (p_app_name, p_user_id, p_session_id, p_state, p_created_at, '{"import": {"version": null}}')
    ON CONFLICT (app_name, user_id, session_id) DO NOTHING
    RETURNING id INTO v_thread;
    IF FOUND THEN
        INSERT INTO initial_states (thread_id, session_state) SELECT v_thread, p_state WHERE p_state <> '{}';
        RETURN 'created';
    END IF;
    SELECT * INTO t FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR NO KEY UPDATE;
    IF t.metadata #> '{import,version}' IS NULL THEN
        RETURN 'taken';
    ELSIF t.metadata #> '{import,version}' NOT IN ('null', to_jsonb(t.version)) THEN
        RETURN 'moved';
    END IF;
    UPDATE threads SET metadata = jsonb_set(metadata, '{import,version}', 'null') WHERE id = t.id;
    RETURN 'known';
END
$$;

-- Ends an import: from here on, who appends takes the session over. Where its events lead to another state than it has
-- elsewhere, as where two of them share their time, it returns the keys that differ and ends nothing: they are to be
-- appended as an event, before it is called again. NULL: it is done.
CREATE FUNCTION finish_session_import(
    p_app_name text, p_user_id text, p_session_id text, p_state jsonb, p_updated_at timestamptz)
RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t         threads := lock_session(p_app_name, p_user_id, p_session_id);
    v_differs jsonb := (SELECT jsonb_object_agg(g.key, g.value) FROM jsonb_each(p_state) AS g
                        WHERE t.state -> g.key IS DISTINCT FROM g.value);
BEGIN
    IF v_differs IS NOT NULL THEN
        RETURN v_differs;
    END IF;
    -- It was made with all of its last state. What an event set was not there before that event.
    UPDATE initial_states AS i SET session_state = i.session_state - s.keys
    FROM (SELECT array_agg(DISTINCT k) AS keys FROM events AS e, jsonb_object_keys(e.session_delta) AS k
          WHERE e.thread_id = t.id AND coalesce(e.session_delta, e.user_delta, e.app_delta) IS NOT NULL) AS s
    WHERE i.thread_id = t.id AND i.session_state ?| s.keys;
    IF FOUND THEN
        DELETE FROM snapshots WHERE thread_id = t.id;
        t.snapshot_seq := 0;
    END IF;
    UPDATE threads SET
        metadata = jsonb_set(metadata, '{import,version}', to_jsonb(version)), updated_at = p_updated_at,
        snapshot_seq = t.snapshot_seq
    WHERE id = t.id;
    RETURN NULL;
END
$$;

-- Adds to an app's state, or with p_user_id to a user's, what another engine holds. Keys that are here already stay as
-- they are unless p_overwrite; what was erased here stays erased. Returns how many keys differ afterwards from what was
-- given, and how many were left out as erased. Errors: HP004 state too large.
CREATE FUNCTION import_state(p_app_name text, p_user_id text, p_state jsonb, p_overwrite boolean,
                             OUT kept bigint, OUT erased bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_given   jsonb := p_state;
    v_state   jsonb;
    v_version bigint;
BEGIN
    p_state := without_erased(p_app_name, p_user_id, v_given);
    erased := (SELECT count(*) FROM jsonb_object_keys(v_given) AS g WHERE NOT p_state ? g);
    IF p_state = '{}' AND erased > 0 THEN
        kept := 0;
        RETURN;
    END IF;
    IF p_user_id IS NULL THEN
        INSERT INTO app_states AS s (app_name, state) VALUES (p_app_name, p_state)
        ON CONFLICT (app_name) DO UPDATE SET
            state = CASE WHEN p_overwrite THEN s.state || EXCLUDED.state ELSE EXCLUDED.state || s.state END,
            version = s.version + 1
        WHERE s.state <> CASE WHEN p_overwrite THEN s.state || EXCLUDED.state ELSE EXCLUDED.state || s.state END
        RETURNING s.state, s.version INTO v_state, v_version;
    ELSE
        INSERT INTO user_states AS s (app_name, user_id, state) VALUES (p_app_name, p_user_id, p_state)
        ON CONFLICT (app_name, user_id) DO UPDATE SET
            state = CASE WHEN p_overwrite THEN s.state || EXCLUDED.state ELSE EXCLUDED.state || s.state END,
            version = s.version + 1
        WHERE s.state <> CASE WHEN p_overwrite THEN s.state || EXCLUDED.state ELSE EXCLUDED.state || s.state END
        RETURNING s.state, s.version INTO v_state, v_version;
    END IF;
    IF v_version IS NOT NULL THEN
        PERFORM check_state_size((app_policy(p_app_name)).max_state_bytes, v_state);
        INSERT INTO imported_states (app_name, user_id, delta, version)
        SELECT p_app_name, p_user_id, coalesce(jsonb_object_agg(g.key, v_state -> g.key), '{}'), v_version
        FROM jsonb_object_keys(p_state) AS g (key);
        kept := (SELECT count(*) FROM jsonb_each(p_state) AS g WHERE v_state -> g.key <> g.value);
        RETURN;
    END IF;
    -- Every key is here, and none was to be replaced.
    kept := (SELECT count(*) FROM jsonb_each(p_state) AS g WHERE g.value <> (
        SELECT state FROM app_states WHERE app_name = p_app_name AND p_user_id IS NULL
        UNION ALL
        SELECT state FROM user_states WHERE app_name = p_app_name AND user_id = p_user_id) -> g.key);
END
$$;
