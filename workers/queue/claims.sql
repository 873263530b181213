-- name: fence_job
-- The queue's job, the worker, the attempts before.
SELECT fence_job($1, $2, $3)

-- name: finish_job
-- An attempt, and its result or NULL.
SELECT finish_job($1, $2, $3, $4)

-- name: retry_job_at
-- An attempt, in how many seconds by the database's clock, error, its code, the raw reply.
SELECT retry_job_at($1, $2, $3, clock_timestamp() + make_interval(secs => $4), $5, $6, $7)

-- name: postpone_job
-- An attempt that does not count as one of the job's attempts: as `retry_job_at`.
SELECT postpone_job($1, $2, $3, clock_timestamp() + make_interval(secs => $4), $5, $6, $7)

-- name: release_job
SELECT release_job($1, $2, $3)

-- name: fail_job
-- An attempt, error, its code, the raw reply.
SELECT fail_job($1, $2, $3, $4, $5, $6)

-- name: abort_job
SELECT abort_job($1, $2, $3)
