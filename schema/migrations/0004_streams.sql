-- Streams: messages that are being streamed, and tickets for browsers that watch.

-- The text so far of each message that a run is streaming. UNLOGGED: a crash of the server empties the table, which
-- costs watchers the rest of an unfinished message.
CREATE UNLOGGED TABLE live_messages (
    thread_id   uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    run_id      text NOT NULL CHECK (char_length(run_id) BETWEEN 1 AND 512),
    message_id  text NOT NULL CHECK (char_length(message_id) BETWEEN 1 AND 512),
    kind        text NOT NULL CHECK (kind IN ('text', 'thought')),
    after_seq   bigint NOT NULL,    -- the newest event when the message began: it is shown after that one
    body        text NOT NULL,
    opened_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (thread_id, run_id, message_id)
-- Rewritten many times a second: free space on its page keeps the new versions there.
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 500);

COMMENT ON TABLE live_messages IS 'The text so far of messages that are being streamed; never history.';

-- Tickets: a browser's EventSource and WebSocket send no headers, and show one instead. Only its SHA-256 is stored.
CREATE TABLE stream_tickets (
    token_hash  bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
    app_name    varchar(255) NOT NULL,
    user_id     varchar(255) NOT NULL,
    session_id  text NOT NULL,
    run_id      text,                   -- NULL: any run of the session
    expires_at  timestamptz NOT NULL
);
CREATE INDEX stream_tickets_expiry_idx ON stream_tickets (expires_at);
