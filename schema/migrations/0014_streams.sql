-- What is being said and not yet stored: the text so far of each message that a run is streaming.
--
-- A piece of a message is never an event. It is pushed by appending to its message's one row, and by a notification that
-- names the row; whoever joins late, or comes back, reads the row. The final message is an event, and its row goes.
-- The table is UNLOGGED: a crash of the server empties it, which costs watchers the tail of an unfinished message.
CREATE UNLOGGED TABLE live_messages (
    thread_id   uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    run_id      text NOT NULL CHECK (char_length(run_id) BETWEEN 1 AND 512),
    message_id  text NOT NULL CHECK (char_length(message_id) BETWEEN 1 AND 512),
    kind        text NOT NULL CHECK (kind IN ('text', 'thought')),
    after_seq   bigint NOT NULL,    -- the newest event when the message was begun: it stands after that one
    body        text NOT NULL,
    opened_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (thread_id, run_id, message_id)
-- Rewritten many times a second: room on its page keeps each version in place.
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 500);
COMMENT ON TABLE live_messages IS 'The text so far of messages that are being streamed; never history.';

-- Adds a piece to an open message at an offset in characters; offset 0 opens it. Returns the text's length then.
-- The same piece again, because the answer was lost, changes nothing, also if it has become longer. Listeners are told ids, never text.
-- Errors: HP030 the open text is not there or not so long, HP031 it would be too long.
CREATE FUNCTION push_live_text(p_thread_id uuid, p_run_id text, p_message_id text, p_kind text,
                               p_offset integer, p_text text) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_length integer;
BEGIN
    -- The table does not outlive a crash: no commit of it needs to wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    IF p_offset + char_length(p_text) > 1000000 THEN
        RAISE EXCEPTION 'an open message holds 1,000,000 characters, not %: end it and begin another',
            p_offset + char_length(p_text) USING ERRCODE = 'HP031';
    END IF;
    UPDATE live_messages AS m SET
        body = left(m.body, p_offset) || p_text, updated_at = clock_timestamp()
    WHERE m.thread_id = p_thread_id AND m.run_id = p_run_id AND m.message_id = p_message_id
      AND char_length(m.body) >= p_offset AND starts_with(p_text, substr(m.body, p_offset + 1))
    RETURNING char_length(m.body) INTO v_length;
    IF NOT FOUND AND p_offset = 0 THEN
        INSERT INTO live_messages AS m (thread_id, run_id, message_id, kind, after_seq, body)
        SELECT t.id, p_run_id, p_message_id, p_kind, t.last_seq, p_text FROM threads AS t WHERE t.id = p_thread_id
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

-- Removes up to p_limit texts that nobody has added to for p_keep, and whose run has ended; after a day, any.
-- Returns how many.
CREATE FUNCTION prune_live_messages(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
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
