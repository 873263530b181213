-- Consolidation jobs: enqueued, found, listed, run again, cancelled.

-- name: enqueue_consolidation
-- thread, job type
SELECT job_id FROM enqueue_consolidation($1, $2)

-- name: enqueue_session
-- app, user, session id, job type; no row where there is no such session
SELECT q.job_id
FROM (SELECT id FROM threads AS each
      WHERE app_name = $1 AND user_id = $2 AND session_id = $3 AND NOT has_expired(each)) AS t
CROSS JOIN LATERAL enqueue_consolidation(t.id, $4) AS q

-- name: get_job
-- job
SELECT * FROM consolidation_jobs WHERE id = $1

-- name: find_job
-- job, app or null, user or null; also where it is archived, unless a user is asked for: the archive keeps none
SELECT j.id, j.thread_id, j.job_type, j.status, j.attempts, j.result, j.error, j.error_code, j.raw_reply, j.started_at,
       j.completed_at, j.created_at
FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
WHERE j.id = $1 AND ($2::text IS NULL OR t.app_name = $2) AND ($3::text IS NULL OR t.user_id = $3)
UNION ALL
SELECT a.id, a.thread_id, a.job_type, a.status, a.attempts, a.result, a.error, a.error_code, a.raw_reply, a.started_at,
       a.completed_at, a.created_at
FROM consolidation_jobs_archive AS a
WHERE a.id = $1 AND ($2::text IS NULL OR a.app_name = $2) AND $3::text IS NULL
LIMIT 1

-- name: list_jobs
-- app, user, session id, status, job type, error code (each null: any), before this job (null: from the newest), limit
SELECT j.id, j.thread_id, j.job_type, j.status, j.attempts, j.result, j.error, j.error_code, j.raw_reply, j.started_at,
       j.completed_at, j.created_at
FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
WHERE ($1::text IS NULL OR t.app_name = $1) AND ($2::text IS NULL OR t.user_id = $2)
  AND ($3::text IS NULL OR t.session_id = $3) AND ($4::text IS NULL OR j.status = $4)
  AND ($5::text IS NULL OR j.job_type = $5) AND ($6::text IS NULL OR j.error_code = $6)
  AND ($7::uuid IS NULL OR j.id < $7)
ORDER BY j.id DESC
LIMIT $8

-- name: retry_job
-- job
SELECT retry_failed_job($1)

-- name: cancel_job
-- job
SELECT cancel_job($1)
