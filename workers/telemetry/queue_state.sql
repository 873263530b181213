-- name: take_export_lock
-- True where this session is the one that exports the queue's gauges.
SELECT pg_try_advisory_lock(worker_lock_class(), 0)

-- name: queue_depths
SELECT queue_name, status, jobs FROM queue_depths()

-- name: queue_ages
SELECT queue_name, oldest_seconds FROM queue_ages()

-- name: refused_texts
-- Texts that stay without a vector, by the model that refused them.
SELECT model, count(*) AS texts FROM embedding_refusals GROUP BY model

-- name: oldest_webhook
SELECT oldest_webhook_seconds()

-- name: limit_states
SELECT name, blocked_seconds, reason FROM call_limit_states()

-- name: breaker_states
SELECT name, state, reason, probe_seconds, since_seconds FROM call_breaker_states()
