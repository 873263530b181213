-- name: take_export_lock
-- True where this session is the one that exports the queue's gauges.
SELECT pg_try_advisory_lock(worker_lock_class(), 0)

-- name: queue_state
-- All that the gauges show: (queue, status, jobs), and of queues, models, breakers and limits a number or state by name.
SELECT (SELECT coalesce(jsonb_agg(jsonb_build_array(d.queue_name, d.status, d.jobs)), '[]')
        FROM queue_depths() AS d) AS depths,
       (SELECT coalesce(jsonb_object_agg(a.queue_name, a.oldest_seconds), '{}') FROM queue_ages() AS a) AS ages,
       -- Texts that stay without a vector, by the model that refused them.
       (SELECT coalesce(jsonb_object_agg(r.model, r.texts), '{}')
        FROM (SELECT model, count(*) AS texts FROM embedding_refusals GROUP BY model) AS r) AS refused,
       oldest_webhook_seconds() AS oldest_webhook,
       (SELECT coalesce(jsonb_object_agg(b.name, b.state), '{}') FROM call_breaker_states() AS b) AS breakers,
       (SELECT coalesce(jsonb_object_agg(l.name, l.blocked_seconds), '{}') FROM call_limit_states() AS l) AS limits

-- name: breaker_states
SELECT name, state, reason, probe_seconds, since_seconds FROM call_breaker_states()
