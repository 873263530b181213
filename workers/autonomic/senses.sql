-- name: survey
-- In one row: every process that was seen within an hour, and for how many seconds it has not been; how often each has
-- logged which errors; the breakers that are not closed, and for how many seconds.
SELECT (SELECT coalesce(jsonb_agg(to_jsonb(p) ORDER BY p.role, p.host, p.port), '[]')
        FROM (SELECT t.role, coalesce(t.machine, t.host) AS machine, t.host, t.port, t.pid,
                     extract(epoch FROM t.started_at)::double precision AS started_at,
                     extract(epoch FROM clock_timestamp() - t.seen_at)::double precision AS age
              FROM metrics_targets AS t WHERE t.seen_at > clock_timestamp() - interval '1 hour') AS p) AS processes,
       (SELECT coalesce(jsonb_agg(jsonb_build_array(t.host, t.port, t.pid,
                                                    extract(epoch FROM t.started_at)::double precision, t.errors)), '[]')
        FROM metrics_targets AS t WHERE t.errors IS NOT NULL) AS errors,
       (SELECT coalesce(jsonb_agg(to_jsonb(b) ORDER BY b.name), '[]')
        FROM (SELECT c.name, c.state,
                     extract(epoch FROM clock_timestamp()
                                        - coalesce(c.first_failure_at, c.changed_at))::double precision AS seconds
              FROM call_breakers AS c WHERE c.state <> 'closed') AS b) AS breakers

-- name: own_processes
-- Our processes on one machine.
SELECT role, machine, host, port, pid, extract(epoch FROM started_at)::double precision AS started_at
FROM metrics_targets WHERE machine = $1 AND seen_at > clock_timestamp() - interval '1 minute'

-- name: queues
-- For how many seconds the oldest job of each queue has waited; how many have failed.
SELECT (SELECT coalesce(jsonb_object_agg(q.queue_name, q.oldest_seconds), '{}') FROM queue_ages() AS q
        WHERE q.oldest_seconds IS NOT NULL) AS oldest_seconds,
       (SELECT count(*) FROM procrastinate_jobs WHERE status = 'failed') AS failed

-- name: database
-- whether to read the size, which takes longest
SELECT CASE WHEN $1 THEN pg_database_size(current_database()) END AS size,
       (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections,
       coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
                 WHERE datname = current_database()), 0)::double precision AS oldest_transaction

-- name: delete_target
DELETE FROM metrics_targets WHERE host = $1 AND port = $2 AND pid = $3

-- name: open_effect
-- An effect that has not ended, and whether it had not begun within the time for which it holds.
SELECT e.id, e.scope, e.meta,
       e.occurred_at < engine_now() - interval '15 minutes'
       AND NOT EXISTS (SELECT FROM pulse_events AS b WHERE b.scope = e.scope AND b.kind = 'effect-executing'
                                                       AND b.key = e.key AND b.ref = e.id) AS is_expired
FROM open_effect($1) AS e

-- name: begin_effect
SELECT begin_effect($1, $2, $3)

-- name: end_effect
-- Effect, whether it failed, what is recorded.
SELECT end_effect($1, $2, $3)

-- name: gc_vitals
SELECT gc_vitals()

-- name: shed_load
SELECT shed_load($1)

-- name: run_upkeep_now
SELECT run_upkeep_now($1)

-- name: enqueue_consolidation
SELECT job_id, created FROM enqueue_consolidation($1, $2)
