-- Sessions: threads, their events and messages, and state in three scopes.

-- These checks belong to types, not to columns: PostgreSQL reads a table's own checks again for each statement that
-- writes to the table.
CREATE DOMAIN object_jsonb AS jsonb CHECK (jsonb_typeof(VALUE) = 'object');

CREATE DOMAIN object_json AS json CHECK (json_typeof(VALUE) = 'object');
CREATE DOMAIN message_role AS text CHECK (VALUE IN ('user', 'assistant', 'tool'));
CREATE DOMAIN event_kind AS text CHECK (char_length(VALUE) BETWEEN 1 AND 64)
    -- Pieces of a stream are not events; the whole message is.
    CONSTRAINT events_hold_no_pieces CHECK (VALUE NOT IN (
        'text_start', 'text_delta', 'text_end', 'thought_start', 'thought_delta', 'thought_end',
        'act_start', 'act_delta', 'act_end'));

CREATE TABLE threads (
    id                  uuid PRIMARY KEY DEFAULT new_id(),
    app_name            varchar(255) NOT NULL,
    user_id             varchar(255) NOT NULL,
    session_id          text NOT NULL,
    state               object_jsonb NOT NULL DEFAULT '{}',
    version             integer NOT NULL DEFAULT 0,
    metadata            object_jsonb NOT NULL DEFAULT '{}',
    last_seq            bigint NOT NULL DEFAULT 0,
    state_seq           bigint NOT NULL DEFAULT 0,  -- the event that changed the state last
    snapshot_seq        bigint NOT NULL DEFAULT 0,  -- the last event in the newest snapshot
    token_count         bigint NOT NULL DEFAULT 0,
    -- Watermarks: everything up to here is consolidated.
    fast_upto_seq       bigint NOT NULL DEFAULT 0,
    deep_upto_seq       bigint NOT NULL DEFAULT 0,
    -- Up to where a job has been enqueued; the policy counts from here.
    fast_queued_seq     bigint NOT NULL DEFAULT 0,
    fast_queued_tokens  bigint NOT NULL DEFAULT 0,
    deep_queued_seq     bigint NOT NULL DEFAULT 0,
    deep_queued_tokens  bigint NOT NULL DEFAULT 0,
    -- When the idle scan checks the thread next. Set once after an enqueue and moved on by the scan, not by each
    -- append, so that an append remains a heap-only update.
    fast_due_at         timestamptz,
    deep_due_at         timestamptz,
    -- How often something of the thread was erased. A job compares it before it stores what it derived from a slice.
    erasures            integer NOT NULL DEFAULT 0,
    last_event_at       timestamptz,
    -- The time of the last event as its writer gave it, in seconds since 1970, for ADK's sessions.
    event_time          double precision,
    -- How long the session is kept after its last event, or its creation. NULL: forever.
    ttl                 interval,
    -- When the upkeep checks it next, at the latest when it expires. Not moved on by each append, like the idle timers.
    expires_at          timestamptz,
    finalized_at        timestamptz,
    created_at          timestamptz NOT NULL DEFAULT engine_now(),
    updated_at          timestamptz NOT NULL DEFAULT engine_now(),
    memory_only         boolean NOT NULL DEFAULT false,  -- holds what the memory was given of a session kept elsewhere
    generate_calls      bigint NOT NULL DEFAULT 0,
    embed_calls         bigint NOT NULL DEFAULT 0,
    prompt_tokens       bigint NOT NULL DEFAULT 0,
    output_tokens       bigint NOT NULL DEFAULT 0,
    reused_replies      bigint NOT NULL DEFAULT 0,
    UNIQUE (app_name, user_id, session_id),
    CONSTRAINT threads_names CHECK (
        char_length(session_id) BETWEEN 1 AND 512 AND user_id <> '' AND app_name <> ALL ('{"",*}')),
    CONSTRAINT threads_counts CHECK (version >= 0 AND fast_upto_seq <= last_seq AND deep_upto_seq <= last_seq),
    CONSTRAINT threads_ttl CHECK ((ttl IS NULL) = (expires_at IS NULL) AND ttl > '0')
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

COMMENT ON COLUMN threads.generate_calls IS 'Replies of the generating model that became memories; see memory_costs.';
-- The condition is explained at events_id_idx.
CREATE INDEX threads_page_idx ON threads (app_name, user_id, id) WHERE session_id <> '';
CREATE INDEX threads_fast_due_idx ON threads (fast_due_at) WHERE fast_due_at IS NOT NULL;
CREATE INDEX threads_deep_due_idx ON threads (deep_due_at) WHERE deep_due_at IS NOT NULL;
CREATE INDEX threads_expires_idx ON threads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX threads_behind_idx ON threads (id)
    WHERE fast_upto_seq < fast_queued_seq OR deep_upto_seq < deep_queued_seq;

CREATE TABLE user_states (
    app_name    varchar(255) NOT NULL,
    user_id     varchar(255) NOT NULL,
    state       object_jsonb NOT NULL DEFAULT '{}',
    version     bigint NOT NULL DEFAULT 1 CHECK (version > 0),
    updated_at  timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (app_name, user_id)
);
CREATE INDEX user_states_state_idx ON user_states USING gin (state jsonb_path_ops);

CREATE TABLE app_states (
    app_name    varchar(255) PRIMARY KEY,
    state       object_jsonb NOT NULL DEFAULT '{}',
    version     bigint NOT NULL DEFAULT 1 CHECK (version > 0),
    updated_at  timestamptz NOT NULL DEFAULT engine_now()
);
CREATE INDEX app_states_state_idx ON app_states USING gin (state jsonb_path_ops);

-- Append-only. content and actions are opaque: stored and returned as they are, never parsed here. What an event
-- changed in the state is stored beside them, so that the state can be rebuilt from the events.
CREATE TABLE events (
    thread_id       uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    sequence_num    bigint NOT NULL,
    id              text NOT NULL,
    invocation_id   text NOT NULL DEFAULT '',
    author          text NOT NULL,
    event_type      event_kind NOT NULL,
    content         json NOT NULL,
    actions         object_json NOT NULL DEFAULT '{}',
    version         integer,        -- of the session after the event
    session_delta   jsonb,          -- keys that were set, without their prefix; NULL if none
    user_delta      jsonb,
    app_delta       jsonb,
    user_version    bigint,         -- of the user's state after user_delta
    app_version     bigint,
    occurred_at     timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    erased_at       timestamptz,   -- a tombstone: only its number, id and time are left
    PRIMARY KEY (thread_id, sequence_num),
    CONSTRAINT events_names CHECK (
        char_length(id) BETWEEN 1 AND 512 AND char_length(invocation_id) <= 512
        AND char_length(author) BETWEEN 1 AND 255),
    CONSTRAINT events_place CHECK (sequence_num > 0 AND isfinite(occurred_at))
);
-- The condition holds for every event; it keeps the index from queries that do not repeat it. Without statistics, an
-- index with the same first columns costs as much as the right one, and the whole thread would be read through it.
CREATE UNIQUE INDEX events_id_idx ON events (thread_id, id) WHERE id <> '';
CREATE INDEX events_changes_idx ON events (thread_id, sequence_num)
    WHERE coalesce(session_delta, user_delta, app_delta) IS NOT NULL;
-- The condition is explained at events_id_idx.
CREATE INDEX events_time_idx ON events (thread_id, occurred_at) WHERE occurred_at > '-infinity';

-- The text of events that carry a message: the corpus of search and the history of a context window.
CREATE TABLE messages (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    thread_id       uuid NOT NULL,
    sequence_num    bigint NOT NULL,
    event_id        text NOT NULL,
    app_name        varchar(255) NOT NULL,
    user_id         varchar(255) NOT NULL,
    role            message_role NOT NULL,
    author          text NOT NULL,
    content         text NOT NULL,
    token_estimate  integer NOT NULL,
    embedding       vector(1536),
    embedding_model text,
    metadata        jsonb NOT NULL DEFAULT '{}',
    occurred_at     timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    search          tsvector GENERATED ALWAYS AS (search_document(content)) STORED,
    UNIQUE (thread_id, sequence_num),
    -- Checked at the end of the transaction, since an append stores its message first.
    FOREIGN KEY (thread_id, sequence_num) REFERENCES events ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    CHECK ((embedding IS NULL) = (embedding_model IS NULL))
);
-- For the backfill. An entry exists from an append until its fast_replay.
CREATE INDEX messages_without_vector_idx ON messages (id) WHERE embedding IS NULL;
CREATE INDEX messages_embedding_model_idx ON messages (embedding_model) WHERE embedding_model IS NOT NULL;
CREATE INDEX messages_embedding_idx ON messages USING hnsw (embedding vector_cosine_ops)
    WITH (m = 16, ef_construction = 64);

-- The state that a session was created with, if any: its events' deltas apply to it.
CREATE TABLE initial_states (
    thread_id       uuid PRIMARY KEY REFERENCES threads ON DELETE CASCADE,
    session_state   object_jsonb NOT NULL,
    user_delta      jsonb,
    app_delta       jsonb,
    user_version    bigint,
    app_version     bigint
);

-- What an import set in a shared state, by the state's version. user_id NULL: in the app's state.
CREATE TABLE imported_states (
    app_name        varchar(255) NOT NULL,
    user_id         varchar(255),
    delta           object_jsonb NOT NULL,
    version         bigint NOT NULL,
    UNIQUE NULLS NOT DISTINCT (app_name, user_id, version)
);

-- The state of a session after some of its events: a shortcut that can be rebuilt.
CREATE TABLE snapshots (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    thread_id       uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    version         integer NOT NULL,
    sequence_num    bigint NOT NULL,
    state           object_jsonb NOT NULL,
    events_summary  jsonb NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    superseded_at   timestamptz,   -- when the next one was taken
    UNIQUE (thread_id, version)
);
CREATE INDEX snapshots_superseded_idx ON snapshots (superseded_at) WHERE superseded_at IS NOT NULL;

-- An event to append.
CREATE TYPE event_input AS (
    id              text,
    author          text,
    event_type      text,
    invocation_id   text,         -- '' for none
    content         json,
    actions         json,
    session_delta   jsonb,        -- keys without a prefix; NULL: no change
    user_delta      jsonb,        -- keys without the prefix 'user:'
    app_delta       jsonb,        -- keys without the prefix 'app:'
    role            text,         -- of the message; NULL: the event has none
    message         text,
    occurred_at     timestamptz   -- NULL: now
);
