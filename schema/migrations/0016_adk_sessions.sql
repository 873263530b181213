-- Sessions under the contract of Google ADK: a session's time is its last event's own, events are read in the order of
-- their times, and a session may be given a time to live.

-- With a condition for the reason of events_id_idx.
CREATE INDEX events_time_idx ON events (thread_id, occurred_at) WHERE occurred_at > '-infinity';

-- The time of a session's last event in seconds since 1970: exact where its writer gave it so, else to the microsecond.
-- NULL before the first.
CREATE FUNCTION last_event_time(t threads) RETURNS double precision
LANGUAGE sql STABLE
RETURN CASE WHEN t.last_seq > 0 THEN coalesce(
    t.event_time,
    (SELECT extract(epoch FROM e.occurred_at)::double precision FROM events AS e
     WHERE e.thread_id = t.id AND e.sequence_num = t.last_seq)) END;

-- append_events with one event, for a reader who knows nothing of the session but events: the session's last one must be
-- among p_seen_ids, the newest that were read. Errors: as append_events; HP002 also for an event that was not seen.
CREATE FUNCTION append_seen_event(
    p_app_name text, p_user_id text, p_session_id text, p_seen_ids text[], p_event event_input,
    p_event_time double precision)
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
    -- An unknown session is refused there.
    RETURN QUERY
        SELECT s.sequence_num, s.created_at, s.appended, s.thread_id, s.version, s.last_seq
        FROM append_events(p_app_name, p_user_id, p_session_id, t.version, ARRAY[p_event], false,
                           p_event_time => p_event_time) AS s;
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
