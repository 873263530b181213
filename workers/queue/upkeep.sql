-- name: enqueue_idle
SELECT enqueue_idle()

-- name: idle_waits
-- Whether an idle timer is due that no call has processed.
SELECT EXISTS (SELECT FROM threads WHERE fast_due_at <= engine_now())
    OR EXISTS (SELECT FROM threads WHERE deep_due_at <= engine_now())

-- name: reconcile_jobs
SELECT reconcile_jobs()

-- name: delete_expired_session
-- Whether there was one to process.
SELECT delete_expired_session()

-- name: expire_store_items
-- How many at most.
SELECT expire_store_items($1)

-- name: enqueue_redraws
-- Only where a slice waits to be extracted again.
SELECT enqueue_redraws()

-- name: enqueue_embedding_backfill
-- Only where something waits for a vector of this model, or for a copy or an index of vectors. $2: of how many rows.
SELECT enqueue_embedding_backfill()
WHERE EXISTS (SELECT FROM list_vectorless($1, 1)) OR EXISTS (SELECT FROM vector_fill)
   OR EXISTS (SELECT FROM vector_index_changes($2))

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

-- name: prune_live_messages
-- How long to keep, rows at most.
SELECT prune_live_messages($1, $2)

-- name: prune_tickets
-- Rows at most.
SELECT prune_tickets($1)
