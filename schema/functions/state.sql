-- State: merging deltas into it, its size, rebuilding it from the events, snapshots, and what changed since.

-- Sets the keys of many deltas, in order.
CREATE OR REPLACE AGGREGATE fold_deltas (jsonb) (SFUNC = jsonb_concat, STYPE = jsonb, INITCOND = '{}');

-- Some keys of a state, so that a reader of one key does not receive all of them; NULL: all.
CREATE OR REPLACE FUNCTION pick_keys(p_state jsonb, p_keys text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_keys IS NULL OR p_state IS NULL THEN p_state ELSE (
    SELECT coalesce(jsonb_object_agg(s.key, s.value), '{}') FROM jsonb_each(p_state) AS s WHERE s.key = ANY (p_keys)) END;

-- Applies deltas to the shared states and returns both states afterwards, with their versions; 0 for a state that does
-- not exist yet. Always the app before the user, so that two writers cannot deadlock.
CREATE OR REPLACE FUNCTION merge_shared_states(
    p_app_name text, p_user_id text, p_user_delta jsonb, p_app_delta jsonb,
    OUT user_state jsonb, OUT app_state jsonb, OUT user_version bigint, OUT app_version bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    -- What is only read comes before what is locked.
    IF p_user_delta IS NULL THEN
        SELECT s.state, s.version INTO user_state, user_version
        FROM user_states AS s WHERE s.app_name = p_app_name AND s.user_id = p_user_id;
    END IF;
    IF p_app_delta IS NULL THEN
        SELECT s.state, s.version INTO app_state, app_version FROM app_states AS s WHERE s.app_name = p_app_name;
    ELSE
        -- Rarely the first change: writers that wait for each other in an UPDATE need not start again.
        UPDATE app_states AS s SET state = s.state || p_app_delta, version = s.version + 1, updated_at = engine_now()
        WHERE s.app_name = p_app_name
        RETURNING s.state, s.version INTO app_state, app_version;
        IF NOT FOUND THEN
            INSERT INTO app_states AS s (app_name, state) VALUES (p_app_name, p_app_delta)
            ON CONFLICT (app_name) DO UPDATE SET state = s.state || EXCLUDED.state, version = s.version + 1
            RETURNING s.state, s.version INTO app_state, app_version;
        END IF;
    END IF;
    IF p_user_delta IS NOT NULL THEN
        UPDATE user_states AS s SET state = s.state || p_user_delta, version = s.version + 1, updated_at = engine_now()
        WHERE s.app_name = p_app_name AND s.user_id = p_user_id
        RETURNING s.state, s.version INTO user_state, user_version;
        IF NOT FOUND THEN
            INSERT INTO user_states AS s (app_name, user_id, state) VALUES (p_app_name, p_user_id, p_user_delta)
            ON CONFLICT (app_name, user_id) DO UPDATE SET state = s.state || EXCLUDED.state, version = s.version + 1
            RETURNING s.state, s.version INTO user_state, user_version;
        END IF;
    END IF;
    user_state := coalesce(user_state, '{}');
    app_state := coalesce(app_state, '{}');
    user_version := coalesce(user_version, 0);
    app_version := coalesce(app_version, 0);
END
$$;

CREATE OR REPLACE FUNCTION check_state_size(p_max_bytes integer, VARIADIC p_states jsonb[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT
AS $$
DECLARE
    v_bytes integer := (SELECT max(pg_column_size(state)) FROM unnest(p_states) AS state);
BEGIN
    IF v_bytes > p_max_bytes THEN
        RAISE EXCEPTION 'the state would be % bytes, over the limit of %: remove keys, or keep large values elsewhere',
            v_bytes, p_max_bytes USING ERRCODE = 'HP004';
    END IF;
END
$$;

-- Reports, beside the result of an append that will be committed, a state over 80 % of its limit: as a notice, which
-- costs no round trip, with ids and sizes alone.
CREATE OR REPLACE FUNCTION note_state_size(p_app_name text, p_thread_id uuid, p_max_bytes integer, p_bytes integer)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    RAISE NOTICE 'a state is % bytes, over 80 %% of the limit of %', p_bytes, p_max_bytes USING
        ERRCODE = 'HP095',
        DETAIL = jsonb_build_object('app_name', p_app_name, 'thread_id', p_thread_id, 'bytes', p_bytes,
                                    'limit_bytes', p_max_bytes);
END
$$;

-- Stores a session's current state, unless it has not changed since the newest snapshot. The thread is locked by the
-- caller, or by this. Returns whether there is a new snapshot.
CREATE OR REPLACE FUNCTION take_snapshot(p_thread_id uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_after bigint;
BEGIN
    SELECT snapshot_seq INTO v_after FROM threads
    WHERE id = p_thread_id AND state_seq > snapshot_seq FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE snapshots SET superseded_at = engine_now() WHERE thread_id = p_thread_id AND superseded_at IS NULL;
    INSERT INTO snapshots (thread_id, version, sequence_num, state, events_summary)
    SELECT id, version, last_seq, state, jsonb_build_object('after_seq', v_after, 'events', last_seq - v_after)
    FROM threads WHERE id = p_thread_id;
    UPDATE threads SET snapshot_seq = last_seq WHERE id = p_thread_id;
    RETURN true;
END
$$;

-- The state of a session after its event p_upto_seq (NULL: now): the newest snapshot up to there, or what the session
-- was created with, and the deltas of the later events. snapshot_seq 0: no snapshot was used.
-- p_from_snapshot false rebuilds it from the events alone. No row if there is no such thread or event.
CREATE OR REPLACE FUNCTION restore_state(p_thread_id uuid, p_upto_seq bigint DEFAULT NULL, p_from_snapshot boolean DEFAULT true)
RETURNS TABLE (state jsonb, sequence_num bigint, version integer, snapshot_seq bigint, deltas bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    WITH asked AS (
        SELECT t.id, coalesce(p_upto_seq, t.last_seq) AS upto FROM threads AS t
        WHERE t.id = p_thread_id AND coalesce(p_upto_seq, 0) BETWEEN 0 AND t.last_seq
    ), ground AS (
        SELECT a.id, a.upto, coalesce(s.sequence_num, 0) AS seq, coalesce(s.state, i.session_state, '{}') AS state
        FROM asked AS a
        LEFT JOIN LATERAL (SELECT * FROM snapshots AS s
                           WHERE p_from_snapshot AND s.thread_id = a.id AND s.sequence_num <= a.upto
                           ORDER BY s.version DESC LIMIT 1) AS s ON true
        LEFT JOIN initial_states AS i ON i.thread_id = a.id
    )
    SELECT g.state || d.folded, g.upto,
           coalesce((SELECT e.version FROM events AS e WHERE e.thread_id = g.id AND e.sequence_num = g.upto), 0),
           g.seq, d.deltas
    FROM ground AS g
    CROSS JOIN LATERAL (
        SELECT fold_deltas(e.session_delta ORDER BY e.sequence_num) AS folded, count(*) AS deltas FROM events AS e
        WHERE e.thread_id = g.id AND e.sequence_num > g.seq AND e.sequence_num <= g.upto
          AND coalesce(e.session_delta, e.user_delta, e.app_delta) IS NOT NULL AND e.session_delta IS NOT NULL) AS d
$$;

-- The shared states, rebuilt from the events and initial states of all sessions that changed them, and from imports, in
-- the order of their versions. Changes without a version were made to another database's state.
-- is_complete is false if a session that changed them has been deleted.
CREATE OR REPLACE FUNCTION rebuild_shared_states(p_app_name text, p_user_id text)
RETURNS TABLE (user_state jsonb, user_is_complete boolean, app_state jsonb, app_is_complete boolean)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    WITH changes AS (
        SELECT t.user_id, c.* FROM threads AS t
        CROSS JOIN LATERAL (
            SELECT 0 AS seq, i.user_delta, i.app_delta, i.user_version, i.app_version
            FROM initial_states AS i WHERE i.thread_id = t.id
            UNION ALL
            SELECT e.sequence_num, e.user_delta, e.app_delta, e.user_version, e.app_version FROM events AS e
            WHERE e.thread_id = t.id AND coalesce(e.session_delta, e.user_delta, e.app_delta) IS NOT NULL) AS c
        WHERE t.app_name = p_app_name
        UNION ALL
        SELECT p_user_id, 0, CASE WHEN user_id IS NOT NULL THEN delta END, CASE WHEN user_id IS NULL THEN delta END,
               version, version
        FROM imported_states WHERE app_name = p_app_name AND (user_id IS NULL OR user_id = p_user_id)
    ), of_user AS (
        SELECT fold_deltas(user_delta ORDER BY user_version, seq) AS state, count(DISTINCT user_version) AS versions
        FROM changes WHERE user_id = p_user_id AND user_delta IS NOT NULL AND user_version IS NOT NULL
    ), of_app AS (
        SELECT fold_deltas(app_delta ORDER BY app_version, seq) AS state, count(DISTINCT app_version) AS versions
        FROM changes WHERE app_delta IS NOT NULL AND app_version IS NOT NULL
    )
    SELECT u.state, u.versions = coalesce((SELECT version FROM user_states
                                           WHERE app_name = p_app_name AND user_id = p_user_id), 0),
           a.state, a.versions = coalesce((SELECT version FROM app_states WHERE app_name = p_app_name), 0)
    FROM of_user AS u, of_app AS a
$$;

-- Deletes snapshots that were superseded longer ago than p_keep. The newest of a session always stays, and the state
-- can be rebuilt without any. Returns how many.
CREATE OR REPLACE FUNCTION prune_snapshots(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    WITH old AS (
        SELECT id FROM snapshots WHERE superseded_at < engine_now() - p_keep
        ORDER BY superseded_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM snapshots AS s USING old WHERE s.id = old.id RETURNING 1
    )
    SELECT count(*)::integer FROM gone
$$;

-- Adds to an app's state, or with p_user_id to a user's, what another engine holds. Existing keys stay as they are
-- unless p_overwrite; what was erased here stays erased. Returns how many keys differ afterwards from what was given,
-- and how many were left out as erased. Errors: HP004 state too large.
CREATE OR REPLACE FUNCTION import_state(p_app_name text, p_user_id text, p_state jsonb, p_overwrite boolean,
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
    -- Every key exists, and none was to be replaced.
    kept := (SELECT count(*) FROM jsonb_each(p_state) AS g WHERE g.value <> (
        SELECT state FROM app_states WHERE app_name = p_app_name AND p_user_id IS NULL
        UNION ALL
        SELECT state FROM user_states WHERE app_name = p_app_name AND user_id = p_user_id) -> g.key);
END
$$;
