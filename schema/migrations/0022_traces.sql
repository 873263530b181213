-- Traces: what the processes did, span by span. A partition a day, so that old ones are dropped whole.

CREATE TABLE traces (
    id              uuid NOT NULL DEFAULT new_id(),
    start_time      timestamptz NOT NULL,           -- by the clock of the process
    trace_id        varchar(32) NOT NULL CHECK (trace_id ~ '^[0-9a-f]{32}$'),
    span_id         varchar(16) NOT NULL CHECK (span_id ~ '^[0-9a-f]{16}$'),
    parent_span_id  varchar(16),
    linked_trace_id varchar(32),                    -- of the append that caused a job
    is_root         boolean NOT NULL,               -- in its process
    operation_name  varchar(255) NOT NULL,
    span_kind       varchar(16) NOT NULL CHECK (span_kind IN ('internal', 'server', 'client', 'producer', 'consumer')),
    service_name    varchar(255) NOT NULL,
    -- Whose it is; NULL: nobody's, such as an upkeep. run_id has no foreign key: a deleted run would fail the batch.
    app_name        varchar(255),
    user_id         varchar(255),
    session_id      varchar(512),
    run_id          varchar(512),
    attributes      jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(attributes) = 'object'),
    events          jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(events) = 'array'),
    end_time        timestamptz NOT NULL,
    duration_ns     bigint NOT NULL CHECK (duration_ns >= 0),
    status_code     varchar(8) NOT NULL CHECK (status_code IN ('ok', 'error')),
    status_message  text,
    PRIMARY KEY (start_time, trace_id, span_id)
) PARTITION BY RANGE (start_time);
CREATE INDEX traces_trace_idx ON traces (trace_id);
CREATE INDEX traces_linked_idx ON traces (linked_trace_id) WHERE linked_trace_id IS NOT NULL;
CREATE INDEX traces_owner_idx ON traces (app_name, user_id, session_id, start_time DESC);
CREATE INDEX traces_root_idx ON traces (start_time DESC, span_id DESC) WHERE is_root;

-- What no day's partition takes: before the upkeep has made it, or by a clock that is far off.
CREATE TABLE traces_default PARTITION OF traces DEFAULT;

INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, event_rows, note) VALUES
(445, 'traces', 'app_name = $1 AND user_id = $2',
 '(app_name, user_id, session_id) = (SELECT t.app_name, t.user_id, t.session_id FROM threads AS t WHERE t.id = $1)',
 '(app_name, user_id, session_id) = (SELECT t.app_name, t.user_id, t.session_id FROM threads AS t WHERE t.id = $1)',
 'ids, names and durations; what was said only where content is asked for'),
(446, 'traces_default', NULL, NULL, NULL, 'a partition of traces');
