-- name: fence_job
-- The queue's job, the worker, the attempts before.
SELECT fence_job($1, $2, $3)

-- name: finish_job
-- An attempt, and its result or NULL.
SELECT finish_job($1, $2, $3, $4)

-- name: retry_job_at
-- An attempt, when, error, its code, the raw reply.
SELECT retry_job_at($1, $2, $3, $4, $5, $6, $7)

-- name: postpone_job
-- An attempt that was none of the job's tries: when, error, its code, the raw reply.
SELECT postpone_job($1, $2, $3, $4, $5, $6, $7)

-- name: release_job
SELECT release_job($1, $2, $3)

-- name: fail_job
-- An attempt, error, its code, the raw reply.
SELECT fail_job($1, $2, $3, $4, $5, $6)

-- name: abort_job
SELECT abort_job($1, $2, $3)

-- name: hold_worker
-- A worker's id; true once this session holds its lock.
SELECT hold_worker($1)

-- name: find_orphans
-- The heartbeat's greatest age in seconds; the worker that asks, or NULL, and the queue's jobs that it runs.
SELECT job_id, worker_id, attempts FROM find_orphans($1, $2, $3)

-- name: rescue_job
-- An attempt, and attempts before a job is given up.
SELECT rescue_job($1, $2, $3, $4)

-- name: hold_keeper
-- True where this session is the one that exports the queue's gauges.
SELECT pg_try_advisory_lock(worker_lock_class(), 0)

-- name: queue_depths
SELECT queue_name, status, jobs FROM queue_depths()

-- name: queue_ages
SELECT queue_name, oldest_seconds FROM queue_ages()

-- name: enqueue_idle
SELECT enqueue_idle()

-- name: idle_waits
-- Whether an idle timer is due that no call has looked at.
SELECT EXISTS (SELECT FROM threads WHERE fast_due_at <= engine_now())
    OR EXISTS (SELECT FROM threads WHERE deep_due_at <= engine_now())

-- name: reconcile_jobs
SELECT reconcile_jobs()

-- name: delete_expired_session
-- Whether there was one to look at.
SELECT delete_expired_session()

-- name: enqueue_redraws
-- Only where a slice waits to be drawn anew.
SELECT enqueue_redraws()

-- name: enqueue_embedding_backfill
-- Only where something waits for a vector of this model.
SELECT enqueue_embedding_backfill() WHERE EXISTS (SELECT FROM list_vectorless($1, 1))

-- name: refused_texts
-- Texts that stay without a vector, by the model that refused them.
SELECT model, count(*) AS texts FROM embedding_refusals GROUP BY model

-- name: prune_queue
-- How long finished jobs of the queue are kept, how many at most.
SELECT prune_queue($1, $2)

-- name: archive_jobs
-- How long completed and cancelled jobs stay, how long failed ones, how many at most.
SELECT archive_jobs($1, $2, $3)

-- name: prune_jobs_archive
-- How long archived jobs are kept, how many at most.
SELECT prune_jobs_archive($1, $2)

-- name: prune_artifact_blobs
-- How long a file that no artifact refers to is kept, how many at most.
SELECT prune_artifact_blobs($1, $2)

-- name: reap_runs
-- How many at most.
SELECT reap_runs($1)

-- name: prune_snapshots
-- How long a superseded snapshot stays, how many at most.
SELECT prune_snapshots($1, $2)

-- name: put_metrics_target
-- host, port, role, pid.
INSERT INTO metrics_targets (host, port, role, pid) VALUES ($1, $2, $3, $4)
ON CONFLICT (host, port) DO UPDATE SET
    role = EXCLUDED.role, pid = EXCLUDED.pid, seen_at = now(),
    started_at = CASE WHEN metrics_targets.pid = EXCLUDED.pid THEN metrics_targets.started_at ELSE now() END

-- name: delete_metrics_target
-- host, port, pid. Also those that nobody has refreshed for a day.
DELETE FROM metrics_targets
WHERE (host = $1 AND port = $2 AND pid = $3) OR seen_at < now() - interval '1 day'

-- name: metrics_targets
-- Those seen within so many seconds.
SELECT host, port, role FROM metrics_targets
WHERE seen_at > now() - make_interval(secs => $1)
ORDER BY role, host, port

-- name: admit_call
-- Limit, breaker, calls a second, burst, the longest wait, the longest time of a probe.
SELECT wait_seconds, refusal, probe, failures FROM admit_call($1, $2, $3, $4, $5, $6)

-- name: blocked_seconds
-- A limit.
SELECT blocked_seconds($1)

-- name: penalise_limit
-- A limit, seconds, why.
SELECT penalise_limit($1, $2, $3)

-- name: report_success
-- A breaker, the probe's number or NULL.
SELECT report_success($1, $2)

-- name: report_failure
-- A breaker, the probe's number or NULL, how it failed, failures that open, within seconds, seconds open.
SELECT report_failure($1, $2, $3, $4, $5, $6)

-- name: release_probe
-- A breaker, the probe's number.
SELECT release_probe($1, $2)

-- name: limit_states
SELECT name, blocked_seconds, reason FROM call_limit_states()

-- name: breaker_states
SELECT name, state, reason, probe_seconds, since_seconds FROM call_breaker_states()

-- name: prune_live_messages
-- How long to keep, rows at most.
SELECT prune_live_messages($1, $2)

-- name: prune_tickets
-- Rows at most.
SELECT prune_tickets($1)
