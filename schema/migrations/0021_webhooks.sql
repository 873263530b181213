-- Webhooks: where an app's events are sent, the events, and their deliveries.

-- An address that is told of an app's events.
CREATE TABLE webhook_endpoints (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    app_name        varchar(255) NOT NULL CHECK (app_name <> ''),
    url             varchar(2048) NOT NULL,
    event_types     text[] NOT NULL DEFAULT '{}',   -- those that it is told of; empty: every type
    description     varchar(255) NOT NULL DEFAULT '',
    failures_in_row integer NOT NULL DEFAULT 0,     -- attempts since the last one that was answered with 2xx
    disabled_at     timestamptz,                    -- NULL: events are sent to it
    disabled_reason text,
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
CREATE INDEX webhook_endpoints_app_idx ON webhook_endpoints (app_name, id);

-- What its events are signed with. Only the sender reads this table: endpoints are listed without it.
CREATE TABLE webhook_secrets (
    id          uuid PRIMARY KEY DEFAULT new_id(),
    endpoint_id uuid NOT NULL REFERENCES webhook_endpoints ON DELETE CASCADE,
    secret      bytea NOT NULL CHECK (octet_length(secret) BETWEEN 24 AND 64),
    expires_at  timestamptz,                        -- NULL: the current one; else a former one, until then
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX webhook_secrets_endpoint_idx ON webhook_secrets (endpoint_id);

-- What happened: ids and types, no content. Written in the transaction that it reports.
CREATE TABLE webhook_events (
    id         uuid PRIMARY KEY DEFAULT new_id(),   -- the webhook-id of all its deliveries
    app_name   varchar(255) NOT NULL,
    user_id    varchar(255),
    thread_id  uuid,
    event_type text NOT NULL,
    data       jsonb NOT NULL CHECK (jsonb_typeof(data) = 'object' AND octet_length(data::text) < 20000),
    created_at timestamptz NOT NULL DEFAULT engine_now()
);
CREATE INDEX webhook_events_app_idx ON webhook_events (app_name, created_at, id);
CREATE INDEX webhook_events_user_idx ON webhook_events (app_name, user_id);
CREATE INDEX webhook_events_thread_idx ON webhook_events (thread_id);
CREATE INDEX webhook_events_time_idx ON webhook_events (created_at);

-- One event on its way to one endpoint. A replay adds another delivery of the same event.
CREATE TABLE webhook_deliveries (
    id                   uuid PRIMARY KEY DEFAULT new_id(),
    event_id             uuid NOT NULL REFERENCES webhook_events ON DELETE CASCADE,
    endpoint_id          uuid NOT NULL REFERENCES webhook_endpoints ON DELETE CASCADE,
    -- waiting: a job of the queue carries it. parked: its endpoint has as many attempts at once as it may have.
    status               text NOT NULL DEFAULT 'waiting'
                         CHECK (status IN ('waiting', 'parked', 'sending', 'delivered', 'failed', 'cancelled')),
    attempts             integer NOT NULL DEFAULT 0,
    procrastinate_job_id bigint,
    next_attempt_at      timestamptz DEFAULT clock_timestamp(),    -- NULL: there is none
    last_attempt_at      timestamptz,
    response_status      integer,                   -- of the last attempt; NULL: there was no response
    error_code           text,                      -- why the last attempt failed; NULL: it did not
    ended_at             timestamptz,
    created_at           timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX webhook_deliveries_event_idx ON webhook_deliveries (event_id);
CREATE INDEX webhook_deliveries_endpoint_idx ON webhook_deliveries (endpoint_id, id);
CREATE INDEX webhook_deliveries_open_idx ON webhook_deliveries (status, endpoint_id, id)
    WHERE status IN ('waiting', 'parked', 'sending');

INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, note) VALUES
(450, 'webhook_events', 'app_name = $1 AND user_id = $2 AND event_type <> ''erasure.completed''',
 'thread_id = $1 AND event_type <> ''erasure.completed''',
 'ids of what happened, with their deliveries; the report of an erasure itself stays until it is pruned'),
(1210, 'webhook_endpoints', NULL, NULL, 'addresses, set by people who run the app'),
(1220, 'webhook_secrets', NULL, NULL, 'keys of signatures, made for people who run the app'),
(1230, 'webhook_deliveries', NULL, NULL, 'deleted with their event');
