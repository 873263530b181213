-- Sessions under the contract of Google ADK: a session's time is its last event's own, events are read in the order of
-- their times, and a session may be given a time to live.

ALTER TABLE threads
    -- The time of the event event_seq in seconds since 1970, to the last bit: a timestamptz would round it.
    ADD COLUMN event_time double precision,
    ADD COLUMN event_seq bigint,
    -- How long after its last event, or its creation, the session stays. NULL: for good.
    ADD COLUMN ttl interval CHECK (ttl > '0'),
    -- When the upkeep looks at it next. Never later than its end; not pushed on by each append, which so stays a
    -- heap-only update.
    ADD COLUMN expires_at timestamptz,
    ADD CHECK ((ttl IS NULL) = (expires_at IS NULL));
CREATE INDEX threads_expires_idx ON threads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX events_time_idx ON events (thread_id, occurred_at);

-- Whether a session's time to live is over. Then it is as good as deleted, also before the upkeep deletes it.
CREATE FUNCTION has_expired(t threads) RETURNS boolean
LANGUAGE sql STABLE
RETURN t.ttl IS NOT NULL AND t.updated_at + t.ttl <= engine_now();

-- The time of a session's last event in seconds since 1970: exact where append_adk_event stored it, else to the
-- microsecond. NULL before the first.
CREATE FUNCTION last_event_time(t threads) RETURNS double precision
LANGUAGE sql STABLE
RETURN CASE WHEN t.event_seq = t.last_seq THEN t.event_time
            ELSE (SELECT extract(epoch FROM e.occurred_at)::double precision FROM events AS e
                  WHERE e.thread_id = t.id AND e.sequence_num = t.last_seq) END;

-- create_session, with a time to live or NULL; an expired session of the same id makes room. Errors: as create_session.
CREATE FUNCTION create_adk_session(
    p_app_name text, p_user_id text, p_session_id text,
    p_session_state jsonb, p_user_delta jsonb, p_app_delta jsonb, p_metadata jsonb, p_ttl interval)
RETURNS TABLE (thread_id uuid, version integer, user_state jsonb, app_state jsonb, created_at timestamptz)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM threads AS t
    WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id AND has_expired(t);
    IF FOUND THEN
        PERFORM delete_session(p_app_name, p_user_id, p_session_id);
    END IF;
    SELECT s.thread_id, s.version, s.user_state, s.app_state, s.created_at
    INTO thread_id, version, user_state, app_state, created_at
    FROM create_session(p_app_name, p_user_id, p_session_id, p_session_state, p_user_delta, p_app_delta, p_metadata)
         AS s;
    IF p_ttl IS NOT NULL THEN
        UPDATE threads AS t SET ttl = p_ttl, expires_at = t.updated_at + p_ttl WHERE t.id = thread_id;
    END IF;
    RETURN NEXT;
END
$$;

-- append_events with one event, through a session as its reader knows it.
--
-- p_thread_id and p_version are those of the read; a session that was deleted and made again meanwhile is another one.
-- p_thread_id NULL: the reader knows nothing but events; p_seen_ids are the newest of them, and the session's last event
-- must be among them.
-- Errors: as append_events; HP002 also for another thread and for an event that was not seen.
CREATE FUNCTION append_adk_event(
    p_app_name text, p_user_id text, p_session_id text, p_thread_id uuid, p_version integer, p_seen_ids text[],
    p_event event_input, p_event_time double precision)
RETURNS TABLE (sequence_num bigint, occurred_at timestamptz, created_at timestamptz, appended boolean,
               thread_id uuid, version integer, last_seq bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    t threads;
    v_version integer := p_version;
BEGIN
    SELECT * INTO t FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR NO KEY UPDATE;
    IF has_expired(t) THEN
        RAISE EXCEPTION 'the time to live of session % is over: create it again', p_session_id USING ERRCODE = 'HP001';
    END IF;
    IF p_thread_id IS NULL THEN
        IF t.last_seq > 0 AND NOT EXISTS (
            SELECT FROM events AS e
            WHERE e.thread_id = t.id AND e.sequence_num = t.last_seq AND e.id = ANY (p_seen_ids)) THEN
            RAISE EXCEPTION 'session % has events that were not read: read it again', p_session_id
                USING ERRCODE = 'HP002';
        END IF;
        v_version := t.version;
    ELSIF t.id <> p_thread_id THEN
        RAISE EXCEPTION 'session % was deleted and created again: read it again', p_session_id
            USING ERRCODE = 'HP002';
    END IF;
    -- An unknown session is refused there.
    SELECT s.sequence_num, s.occurred_at, s.created_at, s.appended, s.thread_id, s.version, s.last_seq
    INTO sequence_num, occurred_at, created_at, appended, thread_id, version, last_seq
    FROM append_events(p_app_name, p_user_id, p_session_id, v_version, ARRAY[p_event], false) AS s;
    IF appended THEN
        UPDATE threads SET event_time = p_event_time, event_seq = last_seq WHERE id = t.id;
    END IF;
    RETURN NEXT;
END
$$;

-- Deletes the session whose time to live has been over longest, in a transaction of its own; passes over one that a
-- writer holds. Returns whether there was any to look at: repeat until false.
CREATE FUNCTION delete_expired_session() RETURNS boolean
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
