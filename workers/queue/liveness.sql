-- name: hold_worker
-- A worker's id; true once this session holds its lock.
SELECT hold_worker($1)

-- name: send_heartbeat
-- A worker's id.
SELECT procrastinate_update_heartbeat_v1($1)

-- name: find_orphans
-- The heartbeat's greatest age in seconds; the worker that polls, or NULL, the queue's jobs that it runs, its queues, how
-- many seconds ahead to look, whether to send its heartbeat. Beside each orphan, and in a row of its own where there is none: whether a job of these
-- queues is due; whether one will be within that time, or any job of any queue runs; which of those that the worker runs are to
-- be aborted.
WITH beat AS MATERIALIZED (SELECT procrastinate_update_heartbeat_v1($2) WHERE $6)
SELECT d.is_due, d.is_due OR d.is_running OR d.is_soon AS is_busy, d.to_abort, o.job_id, o.worker_id, o.attempts
FROM (SELECT EXISTS (SELECT FROM procrastinate_jobs AS j
                     WHERE j.status = 'todo' AND j.queue_name = ANY ($4::text[])
                       AND coalesce(j.scheduled_at <= now(), true)) AS is_due,
             EXISTS (SELECT FROM procrastinate_jobs AS j WHERE j.status = 'doing') AS is_running,
             EXISTS (SELECT FROM procrastinate_jobs AS j
                     WHERE j.status = 'todo' AND j.queue_name = ANY ($4::text[])
                       AND j.scheduled_at <= now() + make_interval(secs => $5)) AS is_soon,
             ARRAY(SELECT j.id FROM procrastinate_jobs AS j
                   WHERE j.id = ANY ($3::bigint[]) AND j.status = 'doing' AND j.abort_requested) AS to_abort) AS d
CROSS JOIN (SELECT count(*) FROM beat) AS sent
LEFT JOIN find_orphans($1, $2, $3) AS o ON true

-- name: rescue_job
-- An attempt, and attempts before a job is failed.
SELECT rescue_job($1, $2, $3, $4)
