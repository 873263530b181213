-- name: find_work
-- The tasks that would find something to do, of those that are enqueued on demand. Each condition reads one row of an index.
SELECT t.task FROM (VALUES
    ('enqueue_idle', EXISTS (SELECT FROM threads WHERE fast_due_at <= engine_now())
                  OR EXISTS (SELECT FROM threads WHERE deep_due_at <= engine_now())),
    -- In the order of the partial index: otherwise the planner expects one at the beginning of the table, and reads all.
    ('reconcile', EXISTS (SELECT FROM (SELECT id FROM threads
                                       WHERE fast_upto_seq < fast_queued_seq OR deep_upto_seq < deep_queued_seq
                                       ORDER BY id LIMIT 1) AS behind)),
    ('expire_sessions', EXISTS (SELECT FROM threads WHERE expires_at <= engine_now())
                     OR EXISTS (SELECT FROM store_items WHERE expires_at <= engine_now())),
    ('erase', EXISTS (SELECT FROM erasures WHERE finished_at IS NULL)),
    ('reap_runs', EXISTS (SELECT FROM runs WHERE status = 'running' AND lease_until < engine_now())),
    ('prune_streams', EXISTS (SELECT FROM live_messages)
                   OR EXISTS (SELECT FROM stream_tickets WHERE expires_at <= engine_now())),
    ('reconcile_webhooks', EXISTS (SELECT FROM webhook_deliveries WHERE status IN ('waiting', 'parked', 'sending')))
) AS t (task, has_work) WHERE t.has_work

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
   OR EXISTS (SELECT FROM vector_index_changes($2)) OR EXISTS (SELECT FROM list_vectorless_chunks($1, 1))

-- name: reconcile_knowledge
-- documents at most
SELECT reconcile_knowledge($1)

-- name: prune_knowledge
-- How long superseded versions of documents are kept, versions at most.
SELECT prune_knowledge($1, $2)

-- name: prune_queue
-- How long finished jobs of the queue are kept, how many at most.
SELECT prune_queue($1, $2)

-- name: prune_audit_log
-- entries at most
SELECT prune_audit_log($1)

-- name: prune_webhooks
-- How long events are kept with their deliveries, how many at most.
SELECT prune_webhooks($1, $2)

-- name: keep_trace_partitions
-- How long traces are kept; returns how many days were dropped.
SELECT keep_trace_partitions($1)

-- name: keep_pulse_partitions
-- After how many months the record of the autonomic layer moves to its archive, 0 for never; returns how many moved.
SELECT keep_pulse_partitions($1)

-- name: prune_default_traces
-- How long traces are kept that no day's partition took, how many at most.
SELECT prune_default_traces($1, $2)

-- name: archive_jobs
-- How long completed and cancelled jobs stay, how long failed ones, how many at most.
SELECT archive_jobs($1, $2, $3)

-- name: prune_jobs_archive
-- How long archived jobs are kept, how many at most.
SELECT prune_jobs_archive($1, $2)

-- name: prune_tool_calls
-- How long to keep, rows at most.
SELECT prune_tool_calls($1, $2)

-- name: prune_sandbox
-- How long to keep, rows at most.
SELECT prune_sandbox($1, $2)

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
