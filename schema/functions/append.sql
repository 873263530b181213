-- The write path of sessions: one call, one round trip, one commit.

-- Whether a session has expired. Then it counts as deleted, even before the upkeep deletes it.
CREATE OR REPLACE FUNCTION has_expired(t threads) RETURNS boolean
LANGUAGE sql STABLE
RETURN t.ttl IS NOT NULL AND t.updated_at + t.ttl <= engine_now();

-- About how many tokens a model counts in a text: a quarter per ASCII character, one per other character.
-- UTF-8 spends three bytes on most characters beyond Latin, so their number follows from the two lengths.
CREATE OR REPLACE FUNCTION estimate_tokens(body text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ceil((char_length(body) - (octet_length(body) - char_length(body) + 1) / 2) / 4.0
            + (octet_length(body) - char_length(body) + 1) / 2)::integer;

-- The metadata that an event gives its message: see pulse/event_rows.py. The body is opened only if it may have some.
CREATE OR REPLACE FUNCTION message_metadata(p_actions json) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN strpos(p_actions::text, '"message_metadata"') > 0 THEN
                CASE WHEN json_typeof(p_actions -> 'message_metadata') = 'object'
                     THEN (p_actions -> 'message_metadata')::jsonb ELSE '{}' END
            ELSE '{}' END;

-- Refuses what a caller stores without having done about secrets what the app's policy says: redaction is done outside
-- of the database, and a caller that knows nothing of it, or of the policy's last change, must not store anything.
-- p_redaction NULL: nothing was to be done. Errors: HP096.
CREATE OR REPLACE FUNCTION check_redaction(p_policy app_policies, p_redaction text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_redaction <> p_policy.redaction THEN
        RAISE EXCEPTION 'the app''s policy on secrets is %, and the caller applied %: read it again and retry',
            p_policy.redaction, p_redaction USING ERRCODE = 'HP096';
    END IF;
END
$$;

-- Appends up to 1,000 events to one session, in order. All or none.
--
-- Events whose id is stored already with the same content are skipped and returned as they are stored, whatever
-- the version; with other content: HP003. An erased event stays erased, whatever is appended under its id.
-- p_expected_version NULL appends at any version. The expected versions of the user's and the app's state protect
-- deltas that were computed from them.
-- p_thread_id refuses another thread of the same names: one that was deleted and created again. p_event_time is the
-- exact time of the last event.
-- p_notify false: the caller notifies the listeners itself after its commit.
-- p_redaction: what the caller did about secrets, which must be what the app's policy says. NULL: the engine's own
-- words.
-- Errors: HP096 the policy says otherwise, HP001 unknown session, HP002 version conflict, HP003 event id taken,
-- HP004 state too large, HP005 event too large, HP007 bad input.
CREATE OR REPLACE FUNCTION append_events(
    p_app_name text, p_user_id text, p_session_id text, p_expected_version integer,
    p_events event_input[], p_notify boolean DEFAULT true,
    p_expected_user_version bigint DEFAULT NULL, p_expected_app_version bigint DEFAULT NULL,
    p_thread_id uuid DEFAULT NULL, p_event_time double precision DEFAULT NULL, p_redaction text DEFAULT 'off')
RETURNS TABLE (event_id text, sequence_num bigint, occurred_at timestamptz, created_at timestamptz,
               appended boolean, thread_id uuid, version integer, last_seq bigint,
               user_version bigint, app_version bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
-- Planning again for each array would take as long as the work itself. The look-ups are lateral, each with its limit:
-- a plan that was made while the tables were empty must not join whole tables when they are full.
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    t          threads;
    v_policy   app_policies;
    v_now      timestamptz;
    v_given    integer := coalesce(cardinality(p_events), 0);
    v_known    integer;
    v_changed  integer;
    v_bytes    bigint;
    v_known_ids text[];
    v_state    jsonb;
    v_user     jsonb;
    v_app      jsonb;
    v_user_version bigint;
    v_app_version  bigint;
    v_notify   text;
    i          event_input;
BEGIN
    IF v_given = 0 OR v_given > 1000 THEN
        RAISE EXCEPTION 'a batch must hold 1 to 1000 events, not %: split it', v_given USING ERRCODE = 'HP007';
    END IF;
    SELECT * INTO t FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR NO KEY UPDATE;
    IF NOT FOUND OR has_expired(t) THEN
        PERFORM refuse_missing_session(p_app_name, p_user_id, p_session_id, p_writes => true);
    ELSIF p_thread_id <> t.id THEN
        RAISE EXCEPTION 'session % was deleted and created again: read it again and retry', p_session_id
            USING ERRCODE = 'HP002';
    END IF;

    SELECT coalesce(array_agg(e.id), '{}'),
           count(*) FILTER (WHERE e.erased_at IS NULL AND (
               (e.author, e.event_type, e.invocation_id, e.content::text, e.actions::text)
               IS DISTINCT FROM
               (i.author, i.event_type, coalesce(i.invocation_id, ''), i.content::text, coalesce(i.actions::text, '{}'))
               OR i.occurred_at <> e.occurred_at))
    INTO v_known_ids, v_changed
    FROM unnest(p_events) AS i, LATERAL (
        SELECT * FROM events WHERE events.thread_id = t.id AND events.id = i.id AND events.id <> '' LIMIT 1) AS e;
    v_known := cardinality(v_known_ids);
    IF v_given > 1 THEN
        IF (SELECT count(DISTINCT g.id) < count(g.id) FROM unnest(p_events) AS g) THEN
            RAISE EXCEPTION 'each event of a batch needs an id of its own' USING ERRCODE = 'HP007';
        END IF;
    END IF;
    IF v_changed > 0 THEN
        RAISE EXCEPTION 'session % already has an event with this id and other content: use a new id',
            p_session_id USING ERRCODE = 'HP003';
    END IF;

    IF v_known = v_given THEN
        RETURN QUERY
            SELECT e.id, e.sequence_num, e.occurred_at, e.created_at, false, t.id, t.version, t.last_seq,
                   NULL::bigint, NULL::bigint
            FROM unnest(p_events) WITH ORDINALITY AS g (id, author, event_type, invocation_id, content, actions,
                 session_delta, user_delta, app_delta, role, message, occurred_at, place),
                 LATERAL (SELECT * FROM events
                          WHERE events.thread_id = t.id AND events.id = g.id AND events.id <> '' LIMIT 1) AS e
            ORDER BY g.place;
        RETURN;
    ELSIF p_expected_version <> t.version THEN
        RAISE EXCEPTION 'session % is at version %, not %: read it again and retry',
            p_session_id, t.version, p_expected_version USING ERRCODE = 'HP002';
    END IF;
    SELECT * INTO v_policy FROM app_policies
    WHERE app_name = coalesce((SELECT o.app_name FROM app_policies AS o WHERE o.app_name = p_app_name), '*');
    PERFORM check_redaction(v_policy, p_redaction);
    v_now := greatest(engine_now(), t.last_event_at);

    FOREACH i IN ARRAY p_events LOOP
        CONTINUE WHEN i.id = ANY (v_known_ids);
        IF i.id IS NULL THEN
            RAISE EXCEPTION 'each event of a batch needs an id of its own' USING ERRCODE = 'HP007';
        END IF;
        v_bytes := greatest(octet_length(i.content::text) + coalesce(octet_length(i.actions::text), 0),
                            octet_length(i.message));
        IF v_bytes > v_policy.max_event_bytes THEN
            RAISE EXCEPTION
                'an event is % bytes, over the limit of %: keep the payload elsewhere and append a reference',
                v_bytes, v_policy.max_event_bytes USING ERRCODE = 'HP005';
        END IF;
        t.token_count := t.token_count + coalesce(estimate_tokens(i.message), 0);
        v_state := coalesce(v_state || i.session_delta, v_state, i.session_delta);
        v_user := coalesce(v_user || i.user_delta, v_user, i.user_delta);
        v_app := coalesce(v_app || i.app_delta, v_app, i.app_delta);
    END LOOP;
    -- Once for the batch, since a large state is copied as a whole.
    v_state := t.state || v_state;
    IF coalesce(v_user, v_app) IS NOT NULL THEN
        SELECT CASE WHEN v_user IS NOT NULL THEN s.user_state END, CASE WHEN v_app IS NOT NULL THEN s.app_state END,
               CASE WHEN v_user IS NOT NULL THEN s.user_version END, CASE WHEN v_app IS NOT NULL THEN s.app_version END
        INTO v_user, v_app, v_user_version, v_app_version
        FROM merge_shared_states(p_app_name, p_user_id, v_user, v_app) AS s;
        IF v_user_version - 1 <> p_expected_user_version OR v_app_version - 1 <> p_expected_app_version THEN
            RAISE EXCEPTION 'another session changed the state that is shared by the user or the app:'
                ' read it again and retry' USING ERRCODE = 'HP002';
        END IF;
    END IF;
    v_bytes := greatest(pg_column_size(v_state), pg_column_size(v_user), pg_column_size(v_app));
    IF v_bytes > v_policy.max_state_bytes * 0.8 THEN
        PERFORM check_state_size(v_policy.max_state_bytes, v_state, v_user, v_app);
        PERFORM note_state_size(p_app_name, t.id, v_policy.max_state_bytes, v_bytes::integer);
    END IF;

    t.last_seq := t.last_seq + v_given - v_known;
    t.version := t.version + 1;
    IF v_state IS NOT NULL THEN
        t.state_seq := t.last_seq;
    END IF;
    IF NOT p_notify THEN
        v_notify := set_config('hippocampus.notify', 'off', true);
    END IF;
    RETURN QUERY
        WITH given AS (
            SELECT i.*, t.last_seq - v_given + v_known
                        + row_number() OVER (PARTITION BY i.id = ANY (v_known_ids) ORDER BY i.place) AS seq,
                   i.id <> ALL (v_known_ids) AS fresh, coalesce(i.occurred_at, v_now) AS happened_at
            FROM unnest(p_events) WITH ORDINALITY AS i (id, author, event_type, invocation_id, content, actions,
                session_delta, user_delta, app_delta, role, message, occurred_at, place)
        ), stored AS (
            INSERT INTO events (thread_id, sequence_num, id, invocation_id, author, event_type, content, actions,
                                version, session_delta, user_delta, app_delta, user_version, app_version,
                                occurred_at, created_at)
            SELECT t.id, g.seq, g.id, coalesce(g.invocation_id, ''), g.author, g.event_type, g.content,
                   coalesce(g.actions, '{}'), t.version, g.session_delta, g.user_delta, g.app_delta,
                   CASE WHEN g.user_delta IS NOT NULL THEN v_user_version END,
                   CASE WHEN g.app_delta IS NOT NULL THEN v_app_version END,
                   g.happened_at, v_now
            FROM given AS g WHERE g.fresh
        ), stored_messages AS (
            INSERT INTO messages (thread_id, sequence_num, event_id, app_name, user_id, role, author, content,
                                  token_estimate, metadata, occurred_at, created_at)
            SELECT t.id, g.seq, g.id, p_app_name, p_user_id, g.role, g.author, g.message,
                   estimate_tokens(g.message), message_metadata(g.actions), g.happened_at, v_now
            FROM given AS g WHERE g.fresh AND g.message IS NOT NULL
        )
        SELECT g.id, coalesce(e.sequence_num, g.seq), coalesce(e.occurred_at, g.happened_at),
               coalesce(e.created_at, v_now), g.fresh, t.id, t.version, t.last_seq, v_user_version, v_app_version
        FROM given AS g
        LEFT JOIN LATERAL (SELECT * FROM events
                           WHERE events.thread_id = t.id AND events.id = g.id AND events.id <> '' LIMIT 1) AS e
                  ON NOT g.fresh
        ORDER BY g.place;
    IF NOT p_notify THEN
        v_notify := set_config('hippocampus.notify', '', true);
    END IF;

    -- Last, so that the check of the foreign key finds the row locked already and does not lock it again.
    UPDATE threads AS u SET
        last_seq = t.last_seq, version = t.version, token_count = t.token_count,
        state = coalesce(v_state, u.state), state_seq = t.state_seq,
        last_event_at = v_now, event_time = p_event_time, updated_at = v_now, finalized_at = NULL,
        fast_due_at = coalesce(u.fast_due_at, v_now + make_interval(secs => v_policy.fast_idle_seconds)),
        deep_due_at = coalesce(u.deep_due_at, v_now + make_interval(secs => v_policy.deep_idle_seconds))
    WHERE u.id = t.id;
    IF t.state_seq > t.snapshot_seq AND t.last_seq - t.snapshot_seq >= v_policy.snapshot_events THEN
        PERFORM take_snapshot(t.id);
    END IF;
    IF v_policy.consolidate AND (t.last_seq - t.fast_queued_seq >= v_policy.fast_events
                                 OR t.token_count - t.fast_queued_tokens >= v_policy.fast_tokens) THEN
        PERFORM enqueue_consolidation(t.id, 'fast_replay');
    END IF;
    IF v_policy.consolidate AND t.token_count - t.deep_queued_tokens >= v_policy.deep_tokens THEN
        PERFORM enqueue_consolidation(t.id, 'deep_reflection');
    END IF;
END
$$;

-- append_events for one event, in three statements, by a writer that knows the session's version. Every other case is
-- left to append_events, which knows what is wrong: an id that is stored already, another version or thread, no such
-- session, too large an event. The message is stored first, since that takes longest: what the sessions of an app or a
-- user share is locked as late as possible. Errors: as append_events.
CREATE OR REPLACE FUNCTION append_next_event(
    p_app_name text, p_user_id text, p_session_id text, p_expected_version integer, i event_input,
    p_notify boolean DEFAULT true, p_thread_id uuid DEFAULT NULL, p_event_time double precision DEFAULT NULL,
    p_redaction text DEFAULT 'off',
    OUT sequence_num bigint, OUT occurred_at timestamptz, OUT created_at timestamptz, OUT appended boolean,
    OUT thread_id uuid, OUT version integer, OUT last_seq bigint, OUT user_version bigint, OUT app_version bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_now              timestamptz := engine_now();
    v_tokens           integer := coalesce(estimate_tokens(i.message), 0);
    v_bytes            bigint := greatest(octet_length(i.content::text) + coalesce(octet_length(i.actions::text), 0),
                                          octet_length(i.message));
    v_state_bytes      integer;
    v_max_state_bytes  integer;
    v_needs_snapshot   boolean;
    v_needs_replay     boolean;
    v_needs_reflection boolean;
    v_user             jsonb;
    v_app              jsonb;
    v_notify           text;
BEGIN
    -- No other writer can have stored this id since the version that is compared.
    UPDATE threads AS t SET
        last_seq = t.last_seq + 1, version = t.version + 1, token_count = t.token_count + v_tokens,
        state = CASE WHEN i.session_delta IS NULL THEN t.state ELSE t.state || i.session_delta END,
        state_seq = CASE WHEN i.session_delta IS NULL THEN t.state_seq ELSE t.last_seq + 1 END,
        last_event_at = greatest(v_now, t.last_event_at), updated_at = greatest(v_now, t.last_event_at),
        event_time = p_event_time, finalized_at = NULL,
        fast_due_at = coalesce(t.fast_due_at,
                               greatest(v_now, t.last_event_at) + make_interval(secs => p.fast_idle_seconds)),
        deep_due_at = coalesce(t.deep_due_at,
                               greatest(v_now, t.last_event_at) + make_interval(secs => p.deep_idle_seconds))
    FROM app_policies AS p
    WHERE p.app_name = coalesce((SELECT o.app_name FROM app_policies AS o WHERE o.app_name = p_app_name), '*')
      AND t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id
      AND t.version = p_expected_version AND (p_thread_id IS NULL OR t.id = p_thread_id) AND NOT has_expired(t)
      AND v_bytes <= p.max_event_bytes AND i.id <> '' AND p.redaction = p_redaction
      AND NOT EXISTS (SELECT FROM events AS e WHERE e.thread_id = t.id AND e.id = i.id AND e.id <> '')
    RETURNING t.id, t.version, t.last_seq, t.last_seq, t.last_event_at, coalesce(i.occurred_at, t.last_event_at), true,
              CASE WHEN i.session_delta IS NOT NULL THEN pg_column_size(t.state) END, p.max_state_bytes,
              t.state_seq > t.snapshot_seq AND t.last_seq - t.snapshot_seq >= p.snapshot_events,
              p.consolidate AND (t.last_seq - t.fast_queued_seq >= p.fast_events
                                 OR t.token_count - t.fast_queued_tokens >= p.fast_tokens),
              p.consolidate AND t.token_count - t.deep_queued_tokens >= p.deep_tokens
    INTO thread_id, version, sequence_num, last_seq, created_at, occurred_at, appended,
         v_state_bytes, v_max_state_bytes, v_needs_snapshot, v_needs_replay, v_needs_reflection;
    IF NOT FOUND THEN
        SELECT s.sequence_num, s.occurred_at, s.created_at, s.appended, s.thread_id, s.version, s.last_seq,
               s.user_version, s.app_version
        FROM append_events(p_app_name, p_user_id, p_session_id, p_expected_version, ARRAY[i], p_notify,
                           p_thread_id => p_thread_id, p_event_time => p_event_time, p_redaction => p_redaction) AS s
        INTO sequence_num, occurred_at, created_at, appended, thread_id, version, last_seq, user_version, app_version;
        RETURN;
    END IF;

    IF NOT p_notify THEN
        v_notify := set_config('hippocampus.notify', 'off', true);
    END IF;
    IF i.message IS NOT NULL THEN
        INSERT INTO messages (thread_id, sequence_num, event_id, app_name, user_id, role, author, content,
                              token_estimate, metadata, occurred_at, created_at)
        VALUES (append_next_event.thread_id, append_next_event.sequence_num, i.id, p_app_name, p_user_id, i.role,
                i.author, i.message, v_tokens, message_metadata(i.actions), append_next_event.occurred_at,
                append_next_event.created_at);
    END IF;
    IF coalesce(i.user_delta, i.app_delta) IS NOT NULL THEN
        SELECT CASE WHEN i.user_delta IS NOT NULL THEN s.user_state END,
               CASE WHEN i.app_delta IS NOT NULL THEN s.app_state END,
               CASE WHEN i.user_delta IS NOT NULL THEN s.user_version END,
               CASE WHEN i.app_delta IS NOT NULL THEN s.app_version END
        INTO v_user, v_app, user_version, app_version
        FROM merge_shared_states(p_app_name, p_user_id, i.user_delta, i.app_delta) AS s;
    END IF;
    v_state_bytes := greatest(v_state_bytes, pg_column_size(v_user), pg_column_size(v_app));
    IF v_state_bytes > v_max_state_bytes * 0.8 THEN
        PERFORM check_state_size(
            v_max_state_bytes,
            (SELECT state FROM threads WHERE id = append_next_event.thread_id AND i.session_delta IS NOT NULL),
            v_user, v_app);
        PERFORM note_state_size(p_app_name, append_next_event.thread_id, v_max_state_bytes, v_state_bytes);
    END IF;
    INSERT INTO events (thread_id, sequence_num, id, invocation_id, author, event_type, content, actions,
                        version, session_delta, user_delta, app_delta, user_version, app_version,
                        occurred_at, created_at)
    VALUES (append_next_event.thread_id, append_next_event.sequence_num, i.id, coalesce(i.invocation_id, ''), i.author,
            i.event_type, i.content, coalesce(i.actions, '{}'), append_next_event.version,
            i.session_delta, i.user_delta, i.app_delta,
            append_next_event.user_version, append_next_event.app_version,
            append_next_event.occurred_at, append_next_event.created_at);
    IF NOT p_notify THEN
        v_notify := set_config('hippocampus.notify', '', true);
    END IF;
    IF v_needs_snapshot THEN
        PERFORM take_snapshot(thread_id);
    END IF;
    IF v_needs_replay THEN
        PERFORM enqueue_consolidation(thread_id, 'fast_replay');
    END IF;
    IF v_needs_reflection THEN
        PERFORM enqueue_consolidation(thread_id, 'deep_reflection');
    END IF;
END
$$;

-- append_next_event for callers without composite types.
CREATE OR REPLACE FUNCTION append_event(
    p_app_name text, p_user_id text, p_session_id text, p_expected_version integer,
    p_event_id text, p_author text, p_event_type text, p_content json,
    p_role text DEFAULT NULL, p_message text DEFAULT NULL, p_session_delta jsonb DEFAULT NULL,
    p_user_delta jsonb DEFAULT NULL, p_app_delta jsonb DEFAULT NULL, p_actions json DEFAULT '{}',
    p_invocation_id text DEFAULT '', p_occurred_at timestamptz DEFAULT NULL, p_notify boolean DEFAULT true,
    p_redaction text DEFAULT 'off')
RETURNS TABLE (event_id text, sequence_num bigint, occurred_at timestamptz, created_at timestamptz,
               appended boolean, thread_id uuid, version integer, last_seq bigint,
               user_version bigint, app_version bigint)
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    SELECT p_event_id, s.* FROM append_next_event(p_app_name, p_user_id, p_session_id, p_expected_version, ROW(
        p_event_id, p_author, p_event_type, p_invocation_id, p_content, p_actions, p_session_delta, p_user_delta,
        p_app_delta, p_role, p_message, p_occurred_at)::event_input, p_notify, p_redaction => p_redaction) AS s
$$;

-- append_events for one event by a reader that knows only events, not the version: the session's last event must be
-- among p_seen_ids, the newest ones read. Errors: as append_events; also HP002 for an event that was not read.
CREATE OR REPLACE FUNCTION append_seen_event(
    p_app_name text, p_user_id text, p_session_id text, p_seen_ids text[], p_event event_input,
    p_event_time double precision, p_redaction text DEFAULT 'off')
RETURNS TABLE (sequence_num bigint, created_at timestamptz, appended boolean, thread_id uuid, version integer,
               last_seq bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR NO KEY UPDATE;
    IF t.last_seq > 0 AND NOT EXISTS (
        SELECT FROM events AS e
        WHERE e.thread_id = t.id AND e.sequence_num = t.last_seq AND e.id = ANY (p_seen_ids)) THEN
        RAISE EXCEPTION 'session % has events that were not read: read it again', p_session_id USING ERRCODE = 'HP002';
    END IF;
    -- append_events refuses an unknown session.
    RETURN QUERY
        SELECT s.sequence_num, s.created_at, s.appended, s.thread_id, s.version, s.last_seq
        FROM append_events(p_app_name, p_user_id, p_session_id, t.version, ARRAY[p_event], false,
                           p_event_time => p_event_time, p_redaction => p_redaction) AS s;
END
$$;
