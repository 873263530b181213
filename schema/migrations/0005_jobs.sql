-- Jobs: consolidation jobs, the queue that carries their ids, and where processes offer their metrics.

-- One row per consolidation job. The queue's job carries only its id.
CREATE TABLE consolidation_jobs (
    id                   uuid PRIMARY KEY DEFAULT new_id(),
    thread_id            uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    job_type             text NOT NULL CHECK (job_type IN ('fast_replay', 'deep_reflection', 'full_consolidation')),
    status               text NOT NULL DEFAULT 'pending'
                         CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled')),
    attempts             integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    upto_seq             bigint NOT NULL CHECK (upto_seq >= 0),
    procrastinate_job_id bigint UNIQUE,
    result               jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(result) = 'object'),
    error                text,
    error_code           text,
    raw_reply            text,
    started_at           timestamptz,
    completed_at         timestamptz,
    created_at           timestamptz NOT NULL DEFAULT engine_now()
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01);
-- At most one fresh pending job per thread and type: later enqueues join it.
CREATE UNIQUE INDEX consolidation_jobs_fresh_idx ON consolidation_jobs (thread_id, job_type)
    WHERE status = 'pending' AND attempts = 0;
CREATE INDEX consolidation_jobs_thread_idx ON consolidation_jobs (thread_id);
CREATE INDEX consolidation_jobs_pending_idx ON consolidation_jobs (created_at) WHERE status = 'pending';
CREATE INDEX consolidation_jobs_failed_idx ON consolidation_jobs (completed_at) WHERE status = 'failed';
CREATE INDEX consolidation_jobs_ended_idx ON consolidation_jobs (completed_at)
    WHERE status IN ('completed', 'cancelled');

-- Jobs that ended some time ago.
CREATE TABLE consolidation_jobs_archive (
    LIKE consolidation_jobs,
    app_name    varchar(255),
    user_id     varchar(255),
    archived_at timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (id)
);
CREATE INDEX consolidation_jobs_archive_thread_idx ON consolidation_jobs_archive (thread_id);
CREATE INDEX consolidation_jobs_archive_time_idx ON consolidation_jobs_archive (archived_at);

-- Rows are rewritten at every step of a job: dead ones must not accumulate at the head of the queue.
ALTER TABLE procrastinate_jobs SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);

-- For each candidate, the fetch checks that its lock is free and that no earlier job has the same lock.
CREATE INDEX procrastinate_jobs_lock_order_idx ON procrastinate_jobs (lock, priority DESC, id)
    WHERE status IN ('todo', 'doing') AND lock IS NOT NULL;
-- Deleting a worker's row sets this column to NULL; without the index it would read every finished job.
CREATE INDEX procrastinate_jobs_worker_idx ON procrastinate_jobs (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX procrastinate_jobs_ended_idx ON procrastinate_jobs (id)
    WHERE status IN ('succeeded', 'cancelled', 'aborted');
-- For prune_queue, which searches for failed jobs that no consolidation job refers to, few among many.
CREATE INDEX procrastinate_jobs_failed_idx ON procrastinate_jobs (id) WHERE status = 'failed';

ALTER TABLE procrastinate_events SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);

-- Where each process serves its metrics, for scrapers.
CREATE TABLE metrics_targets (
    host       text NOT NULL,
    port       integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
    role       text NOT NULL,
    pid        integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host, port)
);
