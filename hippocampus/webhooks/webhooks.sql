-- Every statement about endpoints and deliveries. None reads a secret: only the sender does.

-- name: add_endpoint
-- audited
-- app, URL, event types, description, secret
WITH made AS (
    INSERT INTO webhook_endpoints (app_name, url, event_types, description) VALUES ($1, $2, $3, $4) RETURNING *
), secret AS (
    INSERT INTO webhook_secrets (endpoint_id, secret) SELECT id, $5 FROM made
)
SELECT id, app_name, url, event_types, description, failures_in_row, disabled_at, disabled_reason, created_at FROM made

-- name: list_endpoints
-- app or null for all, limit, after this id or null
SELECT id, app_name, url, event_types, description, failures_in_row, disabled_at, disabled_reason, created_at
FROM webhook_endpoints
WHERE ($1::text IS NULL OR app_name = $1) AND ($3::uuid IS NULL OR id > $3)
ORDER BY id LIMIT $2

-- name: get_endpoint
-- id, app or null for any; no row where there is none
SELECT id, app_name, url, event_types, description, failures_in_row, disabled_at, disabled_reason, created_at
FROM webhook_endpoints WHERE id = $1 AND ($2::text IS NULL OR app_name = $2)

-- name: rotate_secret
-- audited
-- app, id, the new secret, seconds for which former ones still sign: how many sign; null where there is no endpoint
SELECT rotate_webhook_secret($1, $2, $3, $4)

-- name: disable_endpoint
-- audited
-- id, app, reason; one that is disabled keeps its time and reason
UPDATE webhook_endpoints SET
    disabled_at = coalesce(disabled_at, engine_now()), disabled_reason = coalesce(disabled_reason, $3)
WHERE id = $1 AND app_name = $2
RETURNING id, app_name, url, event_types, description, failures_in_row, disabled_at, disabled_reason, created_at

-- name: enable_endpoint
-- audited
-- id, app
UPDATE webhook_endpoints SET disabled_at = NULL, disabled_reason = NULL, failures_in_row = 0
WHERE id = $1 AND app_name = $2
RETURNING id, app_name, url, event_types, description, failures_in_row, disabled_at, disabled_reason, created_at

-- name: remove_endpoint
-- audited
-- app, id: whether there was one
SELECT remove_webhook($1, $2)

-- name: list_deliveries
-- app, endpoint or null for all, status or null, event or null, limit, before this id or null: the newest first
SELECT d.id, d.endpoint_id, d.event_id, v.event_type, v.created_at AS event_at, d.status, d.attempts, d.next_attempt_at,
       d.last_attempt_at, d.response_status, d.error_code, d.ended_at, d.created_at
FROM webhook_deliveries AS d
JOIN webhook_endpoints AS e ON e.id = d.endpoint_id
JOIN webhook_events AS v ON v.id = d.event_id
WHERE e.app_name = $1 AND ($2::uuid IS NULL OR d.endpoint_id = $2) AND ($3::text IS NULL OR d.status = $3)
  AND ($4::uuid IS NULL OR d.event_id = $4) AND ($6::uuid IS NULL OR d.id < $6)
ORDER BY d.id DESC LIMIT $5

-- name: get_delivery
-- app, id
SELECT d.id, d.endpoint_id, d.event_id, v.event_type, v.created_at AS event_at, d.status, d.attempts, d.next_attempt_at,
       d.last_attempt_at, d.response_status, d.error_code, d.ended_at, d.created_at
FROM webhook_deliveries AS d
JOIN webhook_endpoints AS e ON e.id = d.endpoint_id
JOIN webhook_events AS v ON v.id = d.event_id
WHERE e.app_name = $1 AND d.id = $2

-- name: replay_events
-- app, endpoint, event or null, since, until, how many events at most
SELECT replay_webhooks($1, $2, $3, $4, $5, $6)

-- name: ping_endpoint
-- app, endpoint
SELECT ping_webhook($1, $2)
