-- name: begin_webhook
-- An attempt at a job, the delivery, attempts at once of one endpoint, of all.
SELECT endpoint_id, url, secrets, event_id, event_type, created_at, data, attempt, sent_at
FROM begin_webhook($1, $2, $3, $4, $5, $6)

-- name: end_webhook
-- An attempt at a job, the delivery, outcome, the response's status, error code, delay in seconds, the two limits.
SELECT end_webhook($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: reconcile_webhooks
-- The two limits.
SELECT reconcile_webhooks($1, $2)
