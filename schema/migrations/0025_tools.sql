-- Tools: what agents of an app may call, where it was described, its versions, and every call.

-- A document, or a server, that describes many tools.
CREATE TABLE tool_sources (
    id         uuid PRIMARY KEY DEFAULT new_id(),
    app_name   varchar(255) NOT NULL CHECK (app_name <> ''),
    name       varchar(64) NOT NULL CHECK (name <> ''),
    kind       text NOT NULL CHECK (kind IN ('openapi', 'mcp')),
    document   jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(document) = 'object'),
    sha256     bytea NOT NULL CHECK (octet_length(sha256) = 32),
    base_url   varchar(2048) NOT NULL,
    -- Where credentials come from, by name, never themselves; networks that may be reached.
    options    jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(options) = 'object'),
    version    integer NOT NULL DEFAULT 1 CHECK (version > 0),
    created_at timestamptz NOT NULL DEFAULT engine_now(),
    updated_at timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE (app_name, name)
);

-- Changes of tools are numbered in the order of their commits: the trigger takes a lock for each app.
CREATE SEQUENCE tool_revisions;

-- A tool. Each call rewrites its counters: free space on its page keeps the new versions there.
CREATE TABLE tools (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    app_name        varchar(255) NOT NULL CHECK (app_name <> ''),
    name            varchar(64) NOT NULL CHECK (name ~ '^[A-Za-z_][A-Za-z0-9_-]*$'),
    display_name    varchar(255) NOT NULL DEFAULT '',
    description     text NOT NULL DEFAULT '' CHECK (char_length(description) <= 8192),
    openapi_schema  jsonb CHECK (jsonb_typeof(openapi_schema) = 'object'),     -- as it was given
    permissions     jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(permissions) = 'object'),
    is_active       boolean NOT NULL DEFAULT true,      -- false: a person has disabled it
    is_gone         boolean NOT NULL DEFAULT false,     -- its source no longer has it
    call_count      bigint NOT NULL DEFAULT 0 CHECK (call_count >= 0),         -- calls that were made and ended
    avg_latency_ms  double precision NOT NULL DEFAULT 0 CHECK (avg_latency_ms >= 0),
    source_id       uuid REFERENCES tool_sources ON DELETE CASCADE,
    kind            text NOT NULL CHECK (kind IN ('python', 'http', 'mcp', 'client', 'sandbox')),
    input_schema    jsonb NOT NULL CHECK (jsonb_typeof(input_schema) = 'object'),
    output_schema   jsonb CHECK (jsonb_typeof(output_schema) = 'object'),      -- NULL: results are not checked
    operation       jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(operation) = 'object'),
    nature          text NOT NULL DEFAULT 'once' CHECK (nature IN ('again', 'once')),  -- may a call be repeated?
    timeout_seconds double precision NOT NULL DEFAULT 30 CHECK (timeout_seconds > 0 AND timeout_seconds <= 3600),
    version         integer NOT NULL DEFAULT 1 CHECK (version > 0),
    revision        bigint NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    updated_at      timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE (app_name, name)
) WITH (fillfactor = 50);
CREATE INDEX tools_revision_idx ON tools (app_name, revision);
CREATE INDEX tools_source_idx ON tools (source_id);

-- What each version of a tool was, for a rollback.
CREATE TABLE tool_versions (
    tool_id    uuid NOT NULL REFERENCES tools ON DELETE CASCADE,
    version    integer NOT NULL CHECK (version > 0),
    definition jsonb NOT NULL CHECK (jsonb_typeof(definition) = 'object'),
    created_at timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (tool_id, version)
);

-- A call of a tool, also one that was refused.
CREATE TABLE tool_executions (
    id            uuid PRIMARY KEY DEFAULT new_id(),
    tool_id       uuid REFERENCES tools ON DELETE SET NULL,    -- NULL: there is no such tool
    run_id        uuid REFERENCES runs ON DELETE CASCADE,      -- NULL: called outside of a run
    app_name      varchar(255) NOT NULL,
    user_id       varchar(255) NOT NULL,                       -- '': on behalf of no user
    tool_name     varchar(255) NOT NULL,
    tool_version  integer,
    tool_call_id  varchar(255) NOT NULL,
    attempt       integer NOT NULL DEFAULT 1 CHECK (attempt > 0),
    input_params  jsonb NOT NULL DEFAULT '{}',                 -- redacted and bounded, as the result
    held_params   jsonb,                                       -- exactly, as long as a person has to confirm the call
    output_result jsonb,
    status        text NOT NULL CHECK (status IN
                  ('waiting', 'running', 'succeeded', 'failed', 'timeout', 'cancelled', 'unknown', 'refused')),
    error_code    text,
    error         text,
    latency_ms    double precision CHECK (latency_ms >= 0),
    output_bytes  bigint,                                      -- of the whole result
    output_sha256 bytea CHECK (octet_length(output_sha256) = 32),
    trace_id      text,
    span_id       text,
    expires_at    timestamptz NOT NULL,                        -- a call that has not ended by then is given up
    created_at    timestamptz NOT NULL DEFAULT engine_now(),
    ended_at      timestamptz,
    UNIQUE (run_id, tool_call_id, attempt),
    CHECK ((status IN ('waiting', 'running')) = (ended_at IS NULL)),
    CHECK (held_params IS NULL OR status = 'waiting')
) WITH (fillfactor = 80);
CREATE INDEX tool_executions_app_idx ON tool_executions (app_name, id);
CREATE INDEX tool_executions_user_idx ON tool_executions (app_name, user_id);
CREATE INDEX tool_executions_tool_idx ON tool_executions (tool_id, id);
CREATE INDEX tool_executions_call_idx ON tool_executions (app_name, tool_call_id);
CREATE INDEX tool_executions_open_idx ON tool_executions (expires_at) WHERE ended_at IS NULL;
CREATE INDEX tool_executions_time_idx ON tool_executions (created_at);

INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, event_rows, event_change, note) VALUES
(460, 'tool_executions', 'app_name = $1 AND user_id = $2',
 'run_id IN (SELECT id FROM runs WHERE thread_id = $1)',
 'run_id IN (SELECT r.id FROM runs AS r WHERE r.thread_id = $1 AND r.run_id IN (SELECT e.invocation_id FROM events AS e WHERE e.thread_id = $1 AND e.sequence_num = ANY ($2) AND e.invocation_id <> ''''))',
 'input_params = ''{}'', held_params = NULL, output_result = NULL, error = NULL, output_sha256 = NULL',
 'arguments and results of tools'),
(1310, 'tool_sources', NULL, NULL, NULL, NULL, 'documents of people who run the app'),
(1320, 'tools', NULL, NULL, NULL, NULL, 'described by people who run the app'),
(1330, 'tool_versions', NULL, NULL, NULL, NULL, 'as tools');
UPDATE data_catalogue SET app_rows = 'tool_id IN (SELECT id FROM tools WHERE app_name = $1)'
WHERE table_name = 'tool_versions';
