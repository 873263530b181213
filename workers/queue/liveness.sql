-- name: hold_worker
-- A worker's id; true once this session holds its lock.
SELECT hold_worker($1)

-- name: send_heartbeat
-- A worker's id.
SELECT procrastinate_update_heartbeat_v1($1)

-- name: find_orphans
-- The heartbeat's greatest age in seconds; the worker that polls, or NULL, and the queue's jobs that it runs.
SELECT job_id, worker_id, attempts FROM find_orphans($1, $2, $3)

-- name: rescue_job
-- An attempt, and attempts before a job is failed.
SELECT rescue_job($1, $2, $3, $4)
