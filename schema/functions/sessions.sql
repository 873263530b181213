-- Sessions: creating, closing, deleting and importing them, and the triggers of their tables.

-- Whether a session exists for callers that name it: it has not expired, and is not a thread in which the memory holds
-- turns of a session kept elsewhere.
CREATE OR REPLACE FUNCTION is_open(t threads) RETURNS boolean
LANGUAGE sql STABLE
RETURN NOT t.memory_only AND NOT has_expired(t);

-- The time of a session's last event in seconds since 1970: exact if its writer gave it so, else to the microsecond.
-- NULL before the first event.
CREATE OR REPLACE FUNCTION last_event_time(t threads) RETURNS double precision
LANGUAGE sql STABLE
RETURN CASE WHEN t.last_seq > 0 THEN coalesce(
    t.event_time,
    (SELECT extract(epoch FROM e.occurred_at)::double precision FROM events AS e
     WHERE e.thread_id = t.id AND e.sequence_num = t.last_seq)) END;

-- Creates a session, permanent or with a time to live; it replaces an expired one of the same names.
-- p_redaction: as append_events; a session without state and metadata is created whatever it is.
-- Errors: HP004 state too large, HP006 it exists, HP096 the app's policy on secrets is another one.
CREATE OR REPLACE FUNCTION create_session(
    p_app_name text, p_user_id text, p_session_id text,
    p_session_state jsonb DEFAULT '{}', p_user_delta jsonb DEFAULT NULL, p_app_delta jsonb DEFAULT NULL,
    p_metadata jsonb DEFAULT '{}', p_ttl interval DEFAULT NULL, p_redaction text DEFAULT 'off')
RETURNS TABLE (thread_id uuid, version integer, user_state jsonb, app_state jsonb, created_at timestamptz,
               user_version bigint, app_version bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_max_bytes integer;
    v_redaction text;
BEGIN
    INSERT INTO threads AS t (app_name, user_id, session_id, state, metadata, ttl, expires_at)
    VALUES (p_app_name, p_user_id, p_session_id, p_session_state, p_metadata, p_ttl, engine_now() + p_ttl)
    ON CONFLICT (app_name, user_id, session_id) DO NOTHING
    RETURNING t.id, t.version, t.created_at INTO thread_id, version, created_at;
    IF NOT FOUND THEN
        -- The statement that checks it also locks it: a session that another caller has just created is not deleted.
        PERFORM FROM threads AS t
        WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id AND has_expired(t)
        FOR UPDATE;
        IF FOUND THEN
            PERFORM delete_session(p_app_name, p_user_id, p_session_id);
        ELSIF EXISTS (SELECT FROM threads AS t WHERE t.app_name = p_app_name AND t.user_id = p_user_id
                                                     AND t.session_id = p_session_id) THEN
            RAISE EXCEPTION 'session % already exists for app % and user %', p_session_id, p_app_name, p_user_id
                USING ERRCODE = 'HP006';
        END IF;
        RETURN QUERY SELECT * FROM create_session(
            p_app_name, p_user_id, p_session_id, p_session_state, p_user_delta, p_app_delta, p_metadata, p_ttl,
            p_redaction);
        RETURN;
    END IF;
    SELECT coalesce(u.state, '{}'), coalesce(a.state, '{}'), coalesce(u.version, 0), coalesce(a.version, 0),
           p.max_state_bytes, p.redaction
    INTO user_state, app_state, user_version, app_version, v_max_bytes, v_redaction
    FROM app_policies AS p
    LEFT JOIN user_states AS u ON u.app_name = p_app_name AND u.user_id = p_user_id
    LEFT JOIN app_states AS a ON a.app_name = p_app_name
    WHERE p.app_name = coalesce((SELECT o.app_name FROM app_policies AS o WHERE o.app_name = p_app_name), '*');
    IF p_redaction <> v_redaction
       AND (p_session_state <> '{}' OR p_metadata <> '{}' OR coalesce(p_user_delta, p_app_delta) IS NOT NULL) THEN
        PERFORM check_redaction(app_policy(p_app_name), p_redaction);
    END IF;
    IF coalesce(p_user_delta, p_app_delta) IS NOT NULL THEN
        SELECT s.user_state, s.app_state, s.user_version, s.app_version
        INTO user_state, app_state, user_version, app_version
        FROM merge_shared_states(p_app_name, p_user_id, p_user_delta, p_app_delta) AS s;
        PERFORM check_state_size(v_max_bytes, CASE WHEN p_user_delta IS NOT NULL THEN user_state END,
                                 CASE WHEN p_app_delta IS NOT NULL THEN app_state END);
    END IF;
    IF pg_column_size(p_session_state) > v_max_bytes THEN
        PERFORM check_state_size(v_max_bytes, p_session_state);
    END IF;
    IF p_session_state <> '{}' OR coalesce(p_user_delta, p_app_delta) IS NOT NULL THEN
        INSERT INTO initial_states AS s (thread_id, session_state, user_delta, app_delta, user_version, app_version)
        VALUES (create_session.thread_id, p_session_state, p_user_delta, p_app_delta,
                CASE WHEN p_user_delta IS NOT NULL THEN create_session.user_version END,
                CASE WHEN p_app_delta IS NOT NULL THEN create_session.app_version END);
    END IF;
    RETURN NEXT;
END
$$;

-- Raises the error for a session that is not there, or is not open; p_writes: to append to it. Error: HP001, always.
CREATE OR REPLACE FUNCTION refuse_missing_session(p_app_name text, p_user_id text, p_session_id text,
                                                  p_writes boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'HP001', MESSAGE =
        format('there is no session %L for app %L and user %L', p_session_id, p_app_name, p_user_id)
        || CASE WHEN p_writes THEN ', or it has expired: create it first' ELSE '' END;
END
$$;

-- The row of a session, locked as every writer locks it. Errors: HP001.
CREATE OR REPLACE FUNCTION lock_session(p_app_name text, p_user_id text, p_session_id text) RETURNS threads
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR NO KEY UPDATE;
    IF NOT FOUND OR NOT is_open(t) THEN
        PERFORM refuse_missing_session(p_app_name, p_user_id, p_session_id, p_writes => true);
    END IF;
    RETURN t;
END
$$;

-- Locks a session for the rest of the transaction, to be changed only at this version. Returns its id: a function that
-- changes it in the same statement takes that as its argument, and so runs after this one.
-- Errors: HP001 no such session, HP002 it is at another version.
CREATE OR REPLACE FUNCTION lock_session_at(p_app_name text, p_user_id text, p_session_id text, p_version integer)
RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR UPDATE;
    IF NOT FOUND OR NOT is_open(t) THEN
        PERFORM refuse_missing_session(p_app_name, p_user_id, p_session_id);
    ELSIF t.version <> p_version THEN
        RAISE EXCEPTION 'the session is at version %, not at %', t.version, p_version USING ERRCODE = 'HP002';
    END IF;
    RETURN p_session_id;
END
$$;

-- Closes a session: what is not consolidated yet is enqueued at once, whatever the policy's thresholds; nothing if the
-- app does not consolidate: if it does later, the idle timers find the session. A later append opens it again. Returns
-- the jobs. Errors: HP001.
CREATE OR REPLACE FUNCTION finalize_session(p_app_name text, p_user_id text, p_session_id text)
RETURNS TABLE (job_id uuid, job_type text, created boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    t        threads;
    v_policy app_policies;
    v_type   text;
BEGIN
    t := lock_session(p_app_name, p_user_id, p_session_id);
    UPDATE threads SET finalized_at = coalesce(finalized_at, engine_now()) WHERE id = t.id;
    IF t.finalized_at IS NULL THEN
        PERFORM note_webhook_event(t.app_name, t.user_id, t.id, 'session.finalized',
                                   jsonb_build_object('last_sequence_num', t.last_seq));
    END IF;
    v_policy := app_policy(t.app_name);
    IF NOT v_policy.consolidate THEN
        RETURN;
    END IF;
    FOREACH v_type IN ARRAY ARRAY['fast_replay', 'deep_reflection'] LOOP
        IF t.last_seq > (CASE v_type WHEN 'fast_replay' THEN t.fast_upto_seq ELSE t.deep_upto_seq END) THEN
            RETURN QUERY SELECT q.job_id, v_type, q.created FROM enqueue_consolidation(t.id, v_type) AS q;
        END IF;
    END LOOP;
END
$$;

-- Deletes a session with its events, messages, runs, snapshots and jobs. Memories and facts stay, without a thread.
-- Waiting jobs are cancelled; a running one finds nothing to write to. Returns whether there was one.
CREATE OR REPLACE FUNCTION delete_session(p_app_name text, p_user_id text, p_session_id text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_thread uuid;
BEGIN
    SELECT id INTO v_thread FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE procrastinate_jobs SET status = 'cancelled'
    WHERE status = 'todo' AND id IN (
        SELECT procrastinate_job_id FROM consolidation_jobs WHERE thread_id = v_thread AND status = 'pending');
    PERFORM lock_user_memory(p_app_name, p_user_id);
    -- In the order in which accesses lock them; the foreign key's own update has none.
    PERFORM FROM memories WHERE thread_id = v_thread ORDER BY id FOR UPDATE;
    -- In the order in which the jobs of the user's other threads lock them.
    PERFORM FROM facts WHERE thread_id = v_thread ORDER BY fact_type, key FOR NO KEY UPDATE;
    DELETE FROM threads WHERE id = v_thread;
    RETURN true;
END
$$;

-- Deletes the session that expired first, in a transaction of its own; skips one that a writer holds. Returns whether
-- there was any candidate: repeat until false.
CREATE OR REPLACE FUNCTION delete_expired_session() RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads
    WHERE expires_at <= engine_now()
    ORDER BY expires_at LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF has_expired(t) THEN
        PERFORM delete_session(t.app_name, t.user_id, t.session_id);
    ELSE
        UPDATE threads SET expires_at = t.updated_at + t.ttl WHERE id = t.id;
    END IF;
    RETURN true;
END
$$;

-- Begins the import of a session that is kept elsewhere, with the state that it has there; returns what became of it:
--   created   it did not exist here
--   known     an earlier import created it, and there was no other append since
--   moved     an earlier import created it, and there were appends since: its state is its own now
--   taken     there is one that no import created: nothing was changed
--   erased    it, or its user, was erased here after it began: nothing was created
-- Its events follow by append_events, with what each changed in the session's state unless it is 'moved'; then
-- finish_session_import. Errors: HP004 state too large.
CREATE OR REPLACE FUNCTION import_session(
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

-- Ends an import: from now on, a caller that appends takes the session over. If its events lead to another state than
-- it has elsewhere, as when two of them have the same time, it returns the keys that differ and ends nothing: append
-- them as an event, then call it again. NULL: it is done.
CREATE OR REPLACE FUNCTION finish_session_import(
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
    -- It was created with all of its last state. What an event set was not there before that event.
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
        -- The time of the event that was appended last, which need not be the latest.
        event_time = CASE WHEN last_seq > 0 THEN extract(epoch FROM p_updated_at) END,
        snapshot_seq = t.snapshot_seq
    WHERE id = t.id;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION update_updated_at() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    NEW.updated_at := engine_now();
    RETURN NEW;
END
$$;

-- Events are history. They are deleted only with their thread, and emptied only by erase_events.
CREATE OR REPLACE FUNCTION refuse_event_change() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF TG_OP = 'DELETE' AND pg_trigger_depth() > 1 THEN
        RETURN OLD;
    ELSIF TG_OP = 'UPDATE' AND current_setting('hippocampus.erasing', true) = OLD.thread_id::text
          AND (NEW.thread_id, NEW.sequence_num, NEW.id) = (OLD.thread_id, OLD.sequence_num, OLD.id)
          AND NEW.erased_at IS NOT NULL THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'events are append-only: delete the session, or append a correcting event' USING ERRCODE = 'HP013';
END
$$;

-- Wakes listeners, with ids only. A caller that notifies them itself after its commit sets hippocampus.notify to off.
CREATE OR REPLACE FUNCTION notify_event_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM pg_notify('agent_events', json_build_object(
        'thread_id', NEW.thread_id, 'sequence_num', NEW.sequence_num, 'event_id', NEW.id,
        'run_id', NEW.invocation_id, 'event_type', NEW.event_type)::text);
    RETURN NULL;
END
$$;

-- Ends the streams of a deleted session at once; a stream that misses it polls again a few seconds later.
CREATE OR REPLACE FUNCTION notify_thread_gone() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM pg_notify('agent_gone', json_build_object('thread_id', gone.id)::text) FROM gone;
    RETURN NULL;
END
$$;
