-- Streams: the text so far of messages that are being streamed, and tickets for browsers that watch.
--
-- A piece of a message is never an event. It is appended to the message's one row, and a notification names the row;
-- a reader that joins late, or reconnects, reads the row. The final message is an event, and its row is deleted.
--
-- A backend that holds an API key requests a ticket for its user; the ticket is bound to app, user, session and, if
-- given, run, and works until it expires: a browser that was disconnected connects again. Only its SHA-256 is stored.

-- Adds a piece to an open message at an offset in characters; offset 0 opens it. Returns the new length of the text.
-- The same piece again, after a lost reply, changes nothing, even if it has become longer. Notifications hold ids,
-- never text. p_meta is stored when the message is opened: fields of the event that the message becomes.
-- Errors: HP030 the open text is missing or shorter, HP031 it would be too long.
CREATE OR REPLACE FUNCTION push_live_text(p_thread_id uuid, p_run_id text, p_message_id text, p_kind text,
                               p_offset integer, p_text text, p_meta jsonb DEFAULT '{}') RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_length integer;
BEGIN
    -- A piece may hold a part of a secret, which no caller can find in it: watchers get the whole message when it is stored.
    IF EXISTS (SELECT FROM threads AS t JOIN app_policies AS p ON p.app_name = coalesce(
                   (SELECT o.app_name FROM app_policies AS o WHERE o.app_name = t.app_name), '*')
               WHERE t.id = p_thread_id AND p.redaction <> 'off') THEN
        RETURN p_offset + char_length(p_text);
    END IF;
    -- The table does not survive a crash, so its commits need not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    IF p_offset + char_length(p_text) > 1000000 THEN
        RAISE EXCEPTION 'an open message must hold at most 1,000,000 characters, not %: end it and begin another',
            p_offset + char_length(p_text) USING ERRCODE = 'HP031';
    END IF;
    UPDATE live_messages AS m SET
        body = left(m.body, p_offset) || p_text, updated_at = clock_timestamp()
    WHERE m.thread_id = p_thread_id AND m.run_id = p_run_id AND m.message_id = p_message_id
      AND char_length(m.body) >= p_offset AND starts_with(p_text, substr(m.body, p_offset + 1))
    RETURNING char_length(m.body) INTO v_length;
    IF NOT FOUND AND p_offset = 0 THEN
        INSERT INTO live_messages AS m (thread_id, run_id, message_id, kind, after_seq, body, meta)
        SELECT t.id, p_run_id, p_message_id, p_kind, t.last_seq, p_text, p_meta FROM threads AS t WHERE t.id = p_thread_id
        ON CONFLICT DO NOTHING
        RETURNING char_length(m.body) INTO v_length;
    END IF;
    IF v_length IS NULL THEN
        RAISE EXCEPTION 'message % of run % has no open text of % characters',
            quote_nullable(p_message_id), quote_nullable(p_run_id), p_offset USING ERRCODE = 'HP030';
    END IF;
    PERFORM pg_notify('agent_deltas', json_build_object('thread_id', p_thread_id, 'run_id', p_run_id,
        'message_id', left(p_message_id, 512), 'length', v_length)::text);
    RETURN v_length;
END
$$;

-- Stores what a run that did not complete has streamed and not stored, in the order in which it was begun, marked as
-- partial: clients have seen it. The run's thread is locked by the caller.
CREATE OR REPLACE FUNCTION store_partial_messages(p_thread threads, p_run_id text, p_notify boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_bytes_max integer := (SELECT p.max_event_bytes FROM app_policies AS p WHERE p.app_name = coalesce(
        (SELECT o.app_name FROM app_policies AS o WHERE o.app_name = p_thread.app_name), '*'));
    v_events    event_input[];
BEGIN
    WITH gone AS (
        DELETE FROM live_messages AS m WHERE m.thread_id = p_thread.id AND m.run_id = p_run_id RETURNING m.*
    ), kept AS (
        SELECT g.*,
               -- Escaped, a character of the text may take six bytes, and it is stored twice.
               CASE WHEN octet_length(to_json(g.body)::text) + octet_length(g.meta::text) + 2000 > v_bytes_max
                    THEN left(g.body, v_bytes_max / 16) ELSE g.body END AS text,
               row_number() OVER (ORDER BY g.opened_at, g.message_id) AS place
        FROM gone AS g
        WHERE g.body ~ '\S'
          AND NOT EXISTS (SELECT FROM events AS e
                          WHERE e.thread_id = p_thread.id AND e.id = g.message_id AND e.id <> '')
    )
    SELECT array_agg(ROW(
        k.message_id, 'model', CASE k.kind WHEN 'text' THEN 'assistant_message' ELSE k.kind END, p_run_id,
        (k.meta || CASE k.kind
             WHEN 'act' THEN jsonb_build_object('tool_args', k.text, 'tool_call_id', k.message_id)
             ELSE jsonb_build_object('content', k.text) END
         || jsonb_build_object('message_id', k.message_id, 'partial', true))::json,
        '{}', NULL, NULL, NULL, CASE k.kind WHEN 'text' THEN 'assistant' END, CASE k.kind WHEN 'text' THEN k.text END,
        NULL)::event_input ORDER BY k.place)
    INTO v_events
    FROM kept AS k WHERE k.place <= 1000;
    IF v_events IS NOT NULL THEN
        PERFORM append_run_events(p_thread, p_run_id, v_events, p_notify);
    END IF;
END
$$;

-- Deletes up to p_limit texts that were not extended within p_keep and whose run has ended; after a day, any.
-- Returns how many.
CREATE OR REPLACE FUNCTION prune_live_messages(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    WITH old AS (
        SELECT m.ctid FROM live_messages AS m
        WHERE m.updated_at < clock_timestamp() - p_keep
          AND (m.updated_at < clock_timestamp() - interval '1 day' OR NOT EXISTS (
              SELECT FROM runs AS r WHERE r.thread_id = m.thread_id AND r.run_id = m.run_id
                                      AND r.status IN ('pending', 'running')))
        LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM live_messages AS m USING old WHERE m.ctid = old.ctid RETURNING 1
    )
    SELECT count(*)::integer FROM gone
$$;

-- Creates a ticket for a session. Error: HP001 no such session.
CREATE OR REPLACE FUNCTION issue_ticket(p_token_hash bytea, p_app_name text, p_user_id text, p_session_id text, p_run_id text,
                             p_seconds double precision, p_may_run boolean DEFAULT false) RETURNS timestamptz
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_expires timestamptz := engine_now() + make_interval(secs => p_seconds);
BEGIN
    IF NOT EXISTS (SELECT FROM threads AS t
                   WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id
                     AND is_open(t)) THEN
        PERFORM refuse_missing_session(p_app_name, p_user_id, p_session_id);
    END IF;
    INSERT INTO stream_tickets (token_hash, app_name, user_id, session_id, run_id, expires_at, may_run)
    VALUES (p_token_hash, p_app_name, p_user_id, p_session_id, p_run_id, v_expires, p_may_run);
    RETURN v_expires;
END
$$;

-- Returns what a ticket allows; no row if it is unknown or expired.
CREATE OR REPLACE FUNCTION redeem_ticket(p_token_hash bytea)
RETURNS TABLE (app_name varchar, user_id varchar, session_id text, run_id text, may_run boolean)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT t.app_name, t.user_id, t.session_id, t.run_id, t.may_run
    FROM stream_tickets AS t WHERE t.token_hash = p_token_hash AND t.expires_at > engine_now()
$$;

-- Deletes up to p_limit expired tickets; returns how many.
CREATE OR REPLACE FUNCTION prune_tickets(p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    WITH old AS (
        SELECT t.token_hash FROM stream_tickets AS t WHERE t.expires_at <= engine_now()
        LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM stream_tickets AS t USING old WHERE t.token_hash = old.token_hash RETURNING 1
    )
    SELECT count(*)::integer FROM gone
$$;
