-- name: begin_execution
-- A run or NULL, an app, a user, the backend, the code, the environment.
INSERT INTO sandbox_executions (run_id, app_name, user_id, sandbox_type, code, environment, status)
VALUES ($1, $2, $3, $4, $5, $6, 'running') RETURNING id

-- name: end_execution
-- An id, the status, both outputs, the exit code, the time, the usage, whether the output was cut.
UPDATE sandbox_executions SET status = $2, stdout = $3, stderr = $4, exit_code = $5, execution_time_ms = $6,
    resource_usage = $7, truncated = $8, ended_at = clock_timestamp()
WHERE id = $1 AND status = 'running'

-- name: list_executions
-- An app, a user or NULL, a status or NULL, an id before which to begin, rows at most.
SELECT id, run_id, app_name, user_id, sandbox_type, code, environment, status, stdout, stderr, exit_code,
       execution_time_ms, resource_usage, truncated, created_at, ended_at
FROM sandbox_executions
WHERE app_name = $1 AND ($2::text IS NULL OR user_id = $2) AND ($3::text IS NULL OR status = $3)
  AND ($4::uuid IS NULL OR id < $4)
ORDER BY id DESC LIMIT $5
