-- Sessions: threads, their events and messages, state in three scopes, runs, snapshots.

CREATE TABLE threads (
    id                  uuid PRIMARY KEY DEFAULT new_id(),
    app_name            varchar(255) NOT NULL CHECK (app_name <> '' AND app_name <> '*'),
    user_id             varchar(255) NOT NULL CHECK (user_id <> ''),
    session_id          text NOT NULL CHECK (char_length(session_id) BETWEEN 1 AND 512),
    state               jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(state) = 'object'),
    version             integer NOT NULL DEFAULT 0 CHECK (version >= 0),
    metadata            jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    last_seq            bigint NOT NULL DEFAULT 0,
    token_count         bigint NOT NULL DEFAULT 0,
    -- Watermarks: everything up to here is consolidated.
    fast_upto_seq       bigint NOT NULL DEFAULT 0,
    deep_upto_seq       bigint NOT NULL DEFAULT 0,
    -- Up to where a job has been enqueued; the policy counts from here.
    fast_queued_seq     bigint NOT NULL DEFAULT 0,
    fast_queued_tokens  bigint NOT NULL DEFAULT 0,
    deep_queued_seq     bigint NOT NULL DEFAULT 0,
    deep_queued_tokens  bigint NOT NULL DEFAULT 0,
    -- When the idle scan looks at the thread next. Set once after an enqueue and pushed on by the scan, not by
    -- each append: an append stays a heap-only update.
    fast_due_at         timestamptz,
    deep_due_at         timestamptz,
    -- How often something of the thread was erased: who reads a slice compares it before storing what came of it.
    erasures            integer NOT NULL DEFAULT 0,
    last_event_at       timestamptz,
    finalized_at        timestamptz,
    created_at          timestamptz NOT NULL DEFAULT engine_now(),
    updated_at          timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE (app_name, user_id, session_id),
    CHECK (fast_upto_seq <= last_seq AND deep_upto_seq <= last_seq)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX threads_page_idx ON threads (app_name, user_id, id);
CREATE INDEX threads_fast_due_idx ON threads (fast_due_at) WHERE fast_due_at IS NOT NULL;
CREATE INDEX threads_deep_due_idx ON threads (deep_due_at) WHERE deep_due_at IS NOT NULL;

CREATE TABLE user_states (
    app_name    varchar(255) NOT NULL,
    user_id     varchar(255) NOT NULL,
    state       jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(state) = 'object'),
    updated_at  timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (app_name, user_id)
);
CREATE INDEX user_states_state_idx ON user_states USING gin (state jsonb_path_ops);

CREATE TABLE app_states (
    app_name    varchar(255) PRIMARY KEY,
    state       jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(state) = 'object'),
    updated_at  timestamptz NOT NULL DEFAULT engine_now()
);
CREATE INDEX app_states_state_idx ON app_states USING gin (state jsonb_path_ops);

-- Append-only. content and actions are opaque: stored and given back to the letter, never opened here.
CREATE TABLE events (
    thread_id       uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    sequence_num    bigint NOT NULL CHECK (sequence_num > 0),
    id              text NOT NULL CHECK (char_length(id) BETWEEN 1 AND 512),
    invocation_id   text NOT NULL DEFAULT '' CHECK (char_length(invocation_id) <= 512),
    author          text NOT NULL CHECK (char_length(author) BETWEEN 1 AND 255),
    event_type      text NOT NULL CHECK (char_length(event_type) BETWEEN 1 AND 64),
    content         json NOT NULL,
    actions         json NOT NULL DEFAULT '{}',
    occurred_at     timestamptz NOT NULL CHECK (isfinite(occurred_at)),
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    erased_at       timestamptz,   -- a tombstone: nothing is left of it but its number, its id and its time
    PRIMARY KEY (thread_id, sequence_num),
    UNIQUE (thread_id, id)
);

-- The text of the events that say something: the corpus of search and the history of a context window.
CREATE TABLE messages (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    thread_id       uuid NOT NULL,
    sequence_num    bigint NOT NULL,
    event_id        text NOT NULL,
    app_name        varchar(255) NOT NULL,
    user_id         varchar(255) NOT NULL,
    role            text NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
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
    FOREIGN KEY (thread_id, sequence_num) REFERENCES events ON DELETE CASCADE,
    CHECK ((embedding IS NULL) = (embedding_model IS NULL))
);

CREATE TABLE runs (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    thread_id       uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    app_name        varchar(255) NOT NULL,
    run_id          text NOT NULL CHECK (char_length(run_id) BETWEEN 1 AND 512),
    status          text NOT NULL DEFAULT 'pending'
                    CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'timeout')),
    thinking_steps  jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(thinking_steps) = 'array'),
    tool_calls      jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(tool_calls) = 'array'),
    error           text,
    started_at      timestamptz,
    completed_at    timestamptz,
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE (app_name, run_id)
);
CREATE INDEX runs_thread_idx ON runs (thread_id);
CREATE INDEX runs_live_idx ON runs (status) WHERE status IN ('pending', 'running');

CREATE TABLE snapshots (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    thread_id       uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    version         integer NOT NULL,
    sequence_num    bigint NOT NULL,
    state           jsonb NOT NULL CHECK (jsonb_typeof(state) = 'object'),
    events_summary  jsonb NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE (thread_id, version)
);

CREATE FUNCTION update_updated_at() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    NEW.updated_at := engine_now();
    RETURN NEW;
END
$$;
CREATE TRIGGER threads_updated_at BEFORE UPDATE OF state, metadata, version ON threads
    FOR EACH ROW WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION update_updated_at();
CREATE TRIGGER user_states_updated_at BEFORE UPDATE ON user_states
    FOR EACH ROW WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION update_updated_at();
CREATE TRIGGER app_states_updated_at BEFORE UPDATE ON app_states
    FOR EACH ROW WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION update_updated_at();
CREATE TRIGGER app_policies_updated_at BEFORE UPDATE ON app_policies
    FOR EACH ROW WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION update_updated_at();

-- Events are history. They go only with their thread, and are emptied only by erase_events, which says whose they are.
CREATE FUNCTION refuse_event_change() RETURNS trigger
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
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION refuse_event_change();

-- 'Look': ids only. A caller that wakes the listeners itself, after its commit, sets hippocampus.notify to off.
CREATE FUNCTION notify_event_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM pg_notify('agent_events', json_build_object(
        'thread_id', NEW.thread_id, 'sequence_num', NEW.sequence_num, 'event_id', NEW.id,
        'run_id', NEW.invocation_id, 'event_type', NEW.event_type)::text);
    RETURN NULL;
END
$$;
CREATE TRIGGER notify_event_insert AFTER INSERT ON events
    FOR EACH ROW WHEN (current_setting('hippocampus.notify', true) IS DISTINCT FROM 'off')
    EXECUTE FUNCTION notify_event_insert();
