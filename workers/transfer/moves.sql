-- A move of an app between two cells: what is the same on both sides, and on each of them alone.

-- name: moved_tables
SELECT table_name, app_rows, columns, key_columns, is_shared, has_more_keys FROM moved_tables()

-- name: applied
-- The files of the schema, by name.
SELECT name, sha256 FROM hippocampus_migrations ORDER BY name

-- name: copying
-- Values as text that both servers read alike; a row that a policy would hide is an error, not absent.
SELECT set_config('timezone', 'UTC', true), set_config('intervalstyle', 'postgres', true),
       set_config('datestyle', 'ISO', true), set_config('bytea_output', 'hex', true),
       set_config('extra_float_digits', '1', true), set_config('row_security', 'off', true)

-- name: verbatim
-- Rows are stored as they are: no trigger runs, whose effects were copied, too.
SET LOCAL session_replication_role = replica

-- name: waiting_briefly
SET LOCAL lock_timeout = '2s'

-- name: snapshot_start
-- The oldest transaction that this snapshot may not see: what changes later has this number or a newer one.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::numeric::bigint & 4294967295

-- name: threads_of
SELECT id FROM threads WHERE app_name = $1

-- name: is_expiring
-- Without timers, the upkeep of this cell leaves the app's sessions alone until they are deleted.
UPDATE threads SET fast_due_at = NULL, deep_due_at = NULL WHERE app_name = $1
   AND (fast_due_at IS NOT NULL OR deep_due_at IS NOT NULL)

-- name: own_policy
-- Where the defaults of the two cells differ, the app takes its own along.
INSERT INTO app_policies SELECT (jsonb_populate_record(p, jsonb_build_object('app_name', $1::text))).*
FROM app_policies AS p WHERE p.app_name = '*' ON CONFLICT DO NOTHING

-- name: default_policy
SELECT (to_jsonb(p) - 'updated_at')::text FROM app_policies AS p WHERE p.app_name = '*'

-- name: drop_queued
-- Jobs of the queue that no worker has begun; their rows were copied.
DELETE FROM procrastinate_jobs AS q USING consolidation_jobs AS c, threads AS t
WHERE q.id = c.procrastinate_job_id AND q.status = 'todo' AND t.id = c.thread_id AND t.app_name = $1

-- name: mark_app_cell
-- app, cell, state
SELECT mark_app_cell($1, $2, $3)

-- name: serve_app
SELECT serve_app($1)

-- name: enqueue_documents
-- The jobs of documents were not copied; no operator ingests these by hand in a cell that has just taken over the app.
UPDATE knowledge_documents AS d SET status = 'waiting', procrastinate_job_id = defer_ingest(d.id)
WHERE d.app_name = $1 AND d.status IN ('waiting', 'running') AND d.procrastinate_job_id IS NULL

-- name: point_on
-- app, cell: the default cell names the cell itself, so that no process has to ask a former one.
UPDATE app_cells SET cell = $2 WHERE app_name = $1 AND state = 'moved'
