-- Executions of code in the sandbox.

CREATE TABLE sandbox_executions (
    id                uuid PRIMARY KEY DEFAULT new_id(),
    run_id            uuid REFERENCES runs ON DELETE CASCADE,     -- NULL: outside of a run
    app_name          varchar(255) NOT NULL CHECK (app_name <> ''),
    user_id           varchar(255) NOT NULL,                      -- '': on behalf of no user
    sandbox_type      text NOT NULL CHECK (sandbox_type <> ''),
    code              text NOT NULL,                              -- bounded, as the output
    environment       jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(environment) = 'object'),    -- limits, names of files
    status            text NOT NULL CHECK (status IN
                      ('running', 'ok', 'failed', 'timeout', 'memory', 'output', 'crashed', 'refused', 'unavailable')),
    stdout            text,
    stderr            text,
    exit_code         integer,
    execution_time_ms double precision CHECK (execution_time_ms >= 0),
    resource_usage    jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(resource_usage) = 'object'),
    truncated         boolean NOT NULL DEFAULT false,
    created_at        timestamptz NOT NULL DEFAULT engine_now(),
    ended_at          timestamptz,
    CHECK ((status = 'running') = (ended_at IS NULL))
);
CREATE INDEX sandbox_executions_app_idx ON sandbox_executions (app_name, id);
CREATE INDEX sandbox_executions_user_idx ON sandbox_executions (app_name, user_id);
CREATE INDEX sandbox_executions_run_idx ON sandbox_executions (run_id);
CREATE INDEX sandbox_executions_time_idx ON sandbox_executions (created_at);

INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, event_rows, event_change, note) VALUES
(470, 'sandbox_executions', 'app_name = $1 AND user_id = $2',
 'run_id IN (SELECT id FROM runs WHERE thread_id = $1)',
 'run_id IN (SELECT r.id FROM runs AS r WHERE r.thread_id = $1 AND r.run_id IN (SELECT e.invocation_id FROM events AS e WHERE e.thread_id = $1 AND e.sequence_num = ANY ($2) AND e.invocation_id <> ''''))',
 'code = '''', environment = ''{}'', stdout = NULL, stderr = NULL',
 'code and its output');
