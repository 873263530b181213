-- Runs: one execution of an agent each.

-- A run is running from its first row on, and ends once.
CREATE TABLE runs (
    id                   uuid PRIMARY KEY DEFAULT new_id(),
    thread_id            uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    app_name             varchar(255) NOT NULL,
    run_id               text NOT NULL CHECK (char_length(run_id) BETWEEN 1 AND 512),
    status               text NOT NULL DEFAULT 'running'
                         CHECK (status IN ('running', 'completed', 'failed', 'cancelled')),
    holder               text NOT NULL CHECK (char_length(holder) BETWEEN 1 AND 255),
    -- When the run is given up unless its holder has renewed the lease.
    lease_until          timestamptz NOT NULL,
    cancel_requested_at  timestamptz,
    first_seq            bigint NOT NULL CHECK (first_seq > 0),
    last_seq             bigint NOT NULL,
    -- The newest ones, by the numbers of their events, which hold the content.
    thinking_steps       jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(thinking_steps) = 'array'),
    tool_calls           jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(tool_calls) = 'array'),
    error                text,
    error_code           text,
    started_at           timestamptz NOT NULL DEFAULT engine_now(),
    completed_at         timestamptz,
    UNIQUE (app_name, run_id),
    CONSTRAINT runs_span CHECK (last_seq >= first_seq),
    CONSTRAINT runs_end CHECK ((status = 'running') = (completed_at IS NULL)),
    CONSTRAINT runs_error CHECK ((status = 'failed') = (error IS NOT NULL)),
    CONSTRAINT runs_error_code CHECK (error IS NOT NULL OR error_code IS NULL)
) WITH (fillfactor = 70);
CREATE INDEX runs_thread_idx ON runs (thread_id, id);
-- Not by lease_until: a heartbeat stays a heap-only update.
CREATE INDEX runs_live_idx ON runs (id) WHERE status = 'running';

-- An event as a run's functions return it.
CREATE TYPE stored_event AS (
    id              text,
    sequence_num    bigint,
    occurred_at     timestamptz,
    created_at      timestamptz,
    appended        boolean,      -- false: it was stored before, with the same content
    version         integer,      -- of the session now
    last_seq        bigint,
    user_version    bigint,       -- of the user's state, if the event changed it
    app_version     bigint
);
