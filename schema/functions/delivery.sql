-- Delivery: how an attempt at a job ends, how the death of a worker is noticed, what wakes the next job, what is kept.
--
-- An attempt is identified by three numbers: the queue's job, the worker that fetched it, and how many attempts came
-- before. Every function that ends a job compares all three, so that a worker that was given up cannot end an attempt
-- that another worker has made since.

-- The status of a consolidation job follows its procrastinate job in the same transaction, whatever changes it.
CREATE OR REPLACE FUNCTION mirror_job_status() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_status text := CASE NEW.status::text
        WHEN 'todo' THEN 'pending' WHEN 'doing' THEN 'running' WHEN 'aborting' THEN 'running'
        WHEN 'succeeded' THEN 'completed' WHEN 'failed' THEN 'failed' ELSE 'cancelled' END;
BEGIN
    UPDATE consolidation_jobs AS j SET
        status       = v_status,
        attempts     = CASE v_status WHEN 'running' THEN NEW.attempts + 1 ELSE j.attempts END,
        started_at   = CASE v_status WHEN 'running' THEN engine_now() ELSE j.started_at END,
        completed_at = CASE WHEN v_status IN ('completed', 'failed', 'cancelled') THEN engine_now() END,
        error        = CASE WHEN v_status = 'completed' THEN NULL ELSE j.error END,
        error_code   = CASE WHEN v_status = 'completed' THEN NULL ELSE j.error_code END,
        raw_reply    = CASE WHEN v_status = 'completed' THEN NULL ELSE j.raw_reply END
    WHERE j.procrastinate_job_id = NEW.id;
    RETURN NULL;
END
$$;

-- Locks the job's row and returns it. Its session is locked first, against deletion only, as everywhere: a transaction
-- that then writes the consolidation job twice would lock the session last, since PostgreSQL checks the foreign key of
-- a row again that the same transaction wrote before. Error: HP010 if the job does not belong to this attempt.
CREATE OR REPLACE FUNCTION own_job(p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer)
RETURNS procrastinate_jobs
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    j procrastinate_jobs;
BEGIN
    PERFORM FROM threads AS t
    WHERE t.id = (SELECT c.thread_id FROM consolidation_jobs AS c WHERE c.procrastinate_job_id = p_procrastinate_job_id)
    FOR KEY SHARE;
    SELECT * INTO j FROM procrastinate_jobs AS q WHERE q.id = p_procrastinate_job_id FOR NO KEY UPDATE;
    IF j.id IS NULL OR j.status <> 'doing' OR j.worker_id IS DISTINCT FROM p_worker_id
       OR j.attempts <> p_attempts THEN
        RAISE EXCEPTION 'job % does not belong to attempt % of worker %', p_procrastinate_job_id, p_attempts, p_worker_id
            USING ERRCODE = 'HP010';
    END IF;
    RETURN j;
END
$$;

-- Holds the job for the rest of the transaction. Error: HP010.
CREATE OR REPLACE FUNCTION fence_job(p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM own_job(p_procrastinate_job_id, p_worker_id, p_attempts);
END
$$;

-- Changes the status of a job that the caller owns. An attempt that ended is counted; the worker's id is removed, so
-- that no finished row refers to a worker.
CREATE OR REPLACE FUNCTION move_job(p_procrastinate_job_id bigint, p_status procrastinate_job_status, p_counted boolean,
                         p_scheduled_at timestamptz DEFAULT NULL) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    UPDATE procrastinate_jobs SET
        status = p_status, abort_requested = false, worker_id = NULL, scheduled_at = p_scheduled_at,
        attempts = attempts + p_counted::integer
    WHERE id = p_procrastinate_job_id
$$;

-- Ends a successful attempt. Error: HP010.
CREATE OR REPLACE FUNCTION finish_job(p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer,
                           p_result jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM own_job(p_procrastinate_job_id, p_worker_id, p_attempts);
    PERFORM move_job(p_procrastinate_job_id, 'succeeded', true);
    IF p_result IS NOT NULL THEN
        UPDATE consolidation_jobs SET result = p_result WHERE procrastinate_job_id = p_procrastinate_job_id;
    END IF;
END
$$;

-- Ends a failed attempt that is to be retried. If the job was asked to abort, it is aborted. Error: HP010.
CREATE OR REPLACE FUNCTION retry_job_at(p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer,
                             p_retry_at timestamptz, p_error text, p_error_code text, p_raw_reply text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    j procrastinate_jobs := own_job(p_procrastinate_job_id, p_worker_id, p_attempts);
BEGIN
    IF j.abort_requested THEN
        PERFORM move_job(p_procrastinate_job_id, 'aborted', true);
    ELSE
        PERFORM move_job(p_procrastinate_job_id, 'todo', true, p_retry_at);
    END IF;
    UPDATE consolidation_jobs SET error = p_error, error_code = p_error_code, raw_reply = p_raw_reply
    WHERE procrastinate_job_id = p_procrastinate_job_id;
END
$$;

-- Gives a job back without counting the attempt, when the worker stops. Error: HP010.
CREATE OR REPLACE FUNCTION release_job(p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    j procrastinate_jobs := own_job(p_procrastinate_job_id, p_worker_id, p_attempts);
BEGIN
    IF j.abort_requested THEN
        PERFORM move_job(p_procrastinate_job_id, 'aborted', true);
    ELSE
        PERFORM move_job(p_procrastinate_job_id, 'todo', false);
    END IF;
END
$$;

-- Ends a job as failed, with its error. Error: HP010.
CREATE OR REPLACE FUNCTION fail_job(p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer,
                         p_error text, p_error_code text, p_raw_reply text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM own_job(p_procrastinate_job_id, p_worker_id, p_attempts);
    PERFORM move_job(p_procrastinate_job_id, 'failed', true);
    UPDATE consolidation_jobs SET error = p_error, error_code = p_error_code, raw_reply = p_raw_reply
    WHERE procrastinate_job_id = p_procrastinate_job_id;
END
$$;

-- Ends a job that was asked to abort. Error: HP010.
CREATE OR REPLACE FUNCTION abort_job(p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM own_job(p_procrastinate_job_id, p_worker_id, p_attempts);
    PERFORM move_job(p_procrastinate_job_id, 'aborted', true);
END
$$;

-- Gives a job back whose attempt was not allowed to call, or met a provider that is down: the attempt is numbered, as
-- fencing requires, but does not count towards the job's limit of attempts. Error: HP010.
CREATE OR REPLACE FUNCTION postpone_job(p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer,
                             p_retry_at timestamptz, p_error text, p_error_code text, p_raw_reply text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM own_job(p_procrastinate_job_id, p_worker_id, p_attempts);
    UPDATE procrastinate_jobs SET
        args = args || jsonb_build_object('tried', coalesce((args ->> 'tried')::integer, 0) + 1)
    WHERE id = p_procrastinate_job_id;
    PERFORM retry_job_at(p_procrastinate_job_id, p_worker_id, p_attempts, p_retry_at, p_error, p_error_code,
                         p_raw_reply);
END
$$;

-- Cancels a consolidation job: at once if it waits, as soon as its worker is informed if it runs.
-- Returns whether it was pending or running. Error: HP014 no such job.
CREATE OR REPLACE FUNCTION cancel_job(p_job_id uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_queued bigint;
BEGIN
    SELECT procrastinate_job_id INTO v_queued FROM consolidation_jobs WHERE id = p_job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', p_job_id USING ERRCODE = 'HP014';
    END IF;
    RETURN procrastinate_cancel_job_v1(v_queued, true, false) IS NOT NULL;
END
$$;

-- Runs a failed consolidation job again, with all its attempts. Their numbers continue.
-- Errors: HP014 no such job, HP015 it has not failed.
CREATE OR REPLACE FUNCTION retry_failed_job(p_job_id uuid) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_queued bigint;
    v_status text;
BEGIN
    SELECT procrastinate_job_id, status INTO v_queued, v_status FROM consolidation_jobs WHERE id = p_job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', p_job_id USING ERRCODE = 'HP014';
    END IF;
    -- The row is locked before its status is checked: two concurrent calls run it once.
    PERFORM FROM procrastinate_jobs WHERE id = v_queued AND status = 'failed' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % is %: only a failed job can be run again', p_job_id, v_status USING ERRCODE = 'HP015';
    END IF;
    UPDATE procrastinate_jobs SET args = args || jsonb_build_object('tried', attempts), scheduled_at = NULL
    WHERE id = v_queued;
    PERFORM procrastinate_retry_job_v2(v_queued, NULL, NULL, NULL, NULL);
    UPDATE procrastinate_jobs SET attempts = attempts - 1 WHERE id = v_queued;
END
$$;

-- Wakes the listeners of a queue: a job there became ready without being inserted, because it was given back or because
-- the previous job with the same lock ended. procrastinate itself notifies only of inserted jobs.
CREATE OR REPLACE FUNCTION wake_next_job() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    j procrastinate_jobs := NEW;
BEGIN
    IF NEW.lock IS NOT NULL THEN
        SELECT * INTO j FROM procrastinate_jobs AS q
        WHERE q.lock = NEW.lock AND q.status IN ('todo', 'doing')
        ORDER BY q.status = 'todo', q.priority DESC, q.id LIMIT 1;
    END IF;
    IF j.status = 'todo' AND coalesce(j.scheduled_at <= now(), true) THEN
        PERFORM pg_notify('procrastinate_queue_v1#' || j.queue_name,
                          json_build_object('type', 'job_inserted', 'job_id', j.id)::text);
    END IF;
    RETURN NULL;
END
$$;

-- The advisory locks of this schema's workers: each worker holds (class, its id) for as long as it lives.
CREATE OR REPLACE FUNCTION worker_lock_class() RETURNS integer
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT hashtext('hippocampus worker of ' || current_schema()) $$;

CREATE OR REPLACE FUNCTION worker_lock_key(p_worker_id bigint) RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT
AS $$ SELECT (p_worker_id % 2147483647)::integer $$;

-- Marks this database session as the worker's life. Returns false while another session holds the mark.
CREATE OR REPLACE FUNCTION hold_worker(p_worker_id bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ SELECT pg_try_advisory_lock(worker_lock_class(), worker_lock_key(p_worker_id)) $$;

-- Running attempts whose worker is dead: its lock is gone, or its row, or it has sent no heartbeat for a while (its
-- connection was cut unnoticed, or the process is stopped). For the worker that calls, attempts of its own too
-- but that it does not run: the reply to a fetch, or a job's end, was lost with a connection. Those that it runs are
-- never orphans, however old its heartbeat: a process that was stopped and continues is alive.
CREATE OR REPLACE FUNCTION find_orphans(p_stalled_seconds double precision, p_worker_id bigint DEFAULT NULL,
                             p_running bigint[] DEFAULT '{}')
RETURNS TABLE (job_id bigint, worker_id bigint, attempts integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM procrastinate_jobs AS j WHERE j.status = 'doing') THEN
        RETURN;
    END IF;
    RETURN QUERY
        WITH held AS MATERIALIZED (
            SELECT l.objid::bigint AS key FROM pg_locks AS l
            WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
              AND l.classid::bigint = (worker_lock_class()::bigint & 4294967295)
              AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
        )
        SELECT j.id, j.worker_id, j.attempts
        FROM procrastinate_jobs AS j
        LEFT JOIN procrastinate_workers AS w ON w.id = j.worker_id
        WHERE j.status = 'doing'
          AND (j.worker_id = p_worker_id AND j.id = ANY (p_running)) IS NOT TRUE
          AND (w.id IS NULL
               OR w.last_heartbeat < now() - make_interval(secs => p_stalled_seconds)
               OR NOT EXISTS (SELECT FROM held WHERE held.key = worker_lock_key(j.worker_id))
               OR j.worker_id = p_worker_id);
END
$$;

-- Gives back an attempt of a dead worker, counted; after p_rescues_max attempts the job fails, since it may be what
-- kills its workers. For callers that saw it among the orphans twice. It may be called at any time: a job is given back
-- once, because its attempt is named. One job per transaction, since the order of locking two is undefined. Returns
-- whether this call gave it back; false also if the attempt is just being ended.
CREATE OR REPLACE FUNCTION rescue_job(p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer, p_rescues_max integer)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    j procrastinate_jobs;
BEGIN
    PERFORM FROM threads AS t
    WHERE t.id = (SELECT c.thread_id FROM consolidation_jobs AS c WHERE c.procrastinate_job_id = p_procrastinate_job_id)
    FOR KEY SHARE;
    SELECT * INTO j FROM procrastinate_jobs AS q
    WHERE q.id = p_procrastinate_job_id AND q.status = 'doing' AND q.attempts = p_attempts
      AND q.worker_id IS NOT DISTINCT FROM p_worker_id
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF j.abort_requested THEN
        PERFORM move_job(j.id, 'aborted', true);
    ELSIF j.attempts + 1 - coalesce((j.args ->> 'tried')::integer, 0) >= p_rescues_max THEN
        PERFORM move_job(j.id, 'failed', true);
        UPDATE consolidation_jobs SET error_code = 'worker_died',
            error = 'the worker died at attempt ' || j.attempts + 1 || ', and the job is given up'
        WHERE procrastinate_job_id = j.id;
    ELSE
        PERFORM move_job(j.id, 'todo', true);
    END IF;
    RETURN true;
END
$$;

-- Whether a thread may be enqueued without a request: no job of this type waits or runs, and the last one that ended,
-- archived or not, either completed, or failed for transport p_failed_seconds ago, or covered less than p_queued_seq,
-- so that later requests were lost. After a job that was cancelled, or failed for its content, the next events decide.
CREATE OR REPLACE FUNCTION may_run_again(p_thread_id uuid, p_job_type text, p_queued_seq bigint, p_failed_seconds double precision)
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT coalesce((
        SELECT CASE
            WHEN j.status IN ('pending', 'running') THEN false
            WHEN j.status = 'completed' OR j.upto_seq < p_queued_seq THEN true
            WHEN j.status = 'failed' THEN
                j.completed_at <= engine_now() - make_interval(secs => p_failed_seconds)
                AND coalesce(j.error_code, '')
                    ~ '^(408|429|5\d\d|timeout|connection|unreadable|database|worker_died|WatermarkMovedError)$'
            ELSE false
        END
        FROM (SELECT c.status, c.upto_seq, c.error_code, c.completed_at FROM consolidation_jobs AS c
              WHERE c.thread_id = p_thread_id AND c.job_type IN (p_job_type, 'full_consolidation')
              UNION ALL
              SELECT a.status, a.upto_seq, a.error_code, a.completed_at FROM consolidation_jobs_archive AS a
              WHERE a.thread_id = p_thread_id AND a.job_type IN (p_job_type, 'full_consolidation')) AS j
        ORDER BY j.status IN ('pending', 'running') DESC, j.completed_at DESC NULLS LAST LIMIT 1), true)
$$;

-- Enqueues what should be enqueued and is not: threads behind their queued mark without a live job. A thread whose last
-- job was cancelled, or failed for its content, waits for a person or for its next events; one whose last job failed
-- for transport is taken up again after p_failed_seconds. Returns how many it enqueued.
CREATE OR REPLACE FUNCTION reconcile_jobs(p_limit integer DEFAULT 500, p_failed_seconds double precision DEFAULT 3600)
RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t            record;
    v_queued_seq bigint;
    v_count      integer := 0;
BEGIN
    FOR t IN
        SELECT h.id, k.job_type
        FROM threads AS h
        CROSS JOIN LATERAL (VALUES ('fast_replay', h.fast_upto_seq, h.fast_queued_seq),
                                   ('deep_reflection', h.deep_upto_seq, h.deep_queued_seq))
            AS k (job_type, upto_seq, queued_seq)
        WHERE (h.fast_upto_seq < h.fast_queued_seq OR h.deep_upto_seq < h.deep_queued_seq)
          AND k.upto_seq < k.queued_seq
          -- Before the limit: threads that wait for a person must not hide the others.
          AND may_run_again(h.id, k.job_type, k.queued_seq, p_failed_seconds)
        ORDER BY h.id, k.job_type LIMIT p_limit
    LOOP
        -- A writer holds this thread: it is not stuck, and the next scan finds it.
        SELECT CASE t.job_type WHEN 'fast_replay' THEN h.fast_queued_seq ELSE h.deep_queued_seq END INTO v_queued_seq
        FROM threads AS h WHERE h.id = t.id
            AND CASE t.job_type WHEN 'fast_replay' THEN h.fast_upto_seq < h.fast_queued_seq
                                ELSE h.deep_upto_seq < h.deep_queued_seq END
        FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        IF may_run_again(t.id, t.job_type, v_queued_seq, p_failed_seconds) THEN
            PERFORM enqueue_consolidation(t.id, t.job_type);
            v_count := v_count + 1;
        END IF;
    END LOOP;
    RETURN v_count;
END
$$;

-- Deletes at most p_limit finished jobs of the queue, with their events, that ended p_keep ago. The queue's job of a
-- failed consolidation job stays until that is archived, so that it can be run again. Returns how many it deleted.
CREATE OR REPLACE FUNCTION prune_queue(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    WITH ended AS (
        (SELECT j.id FROM procrastinate_jobs AS j WHERE j.status IN ('succeeded', 'cancelled', 'aborted')
         ORDER BY j.id LIMIT p_limit * 10)
        UNION ALL
        (SELECT j.id FROM procrastinate_jobs AS j WHERE j.status = 'failed'
           AND NOT EXISTS (SELECT FROM consolidation_jobs AS c WHERE c.procrastinate_job_id = j.id)
         ORDER BY j.id LIMIT p_limit)
    ), doomed AS (
        SELECT j.id FROM procrastinate_jobs AS j JOIN ended USING (id)
        WHERE NOT EXISTS (SELECT FROM procrastinate_events AS e WHERE e.job_id = j.id AND e.at > now() - p_keep)
          AND j.status IN ('succeeded', 'cancelled', 'aborted', 'failed')
        ORDER BY j.id LIMIT p_limit
        FOR UPDATE OF j SKIP LOCKED
    )
    DELETE FROM procrastinate_jobs AS j USING doomed WHERE j.id = doomed.id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

-- Moves at most p_limit ended consolidation jobs to the archive: completed and cancelled ones p_keep after they
-- ended, failed ones p_keep_failed after. Returns how many it moved.
CREATE OR REPLACE FUNCTION archive_jobs(p_keep interval, p_keep_failed interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_now   timestamptz := engine_now();
    v_jobs  uuid[];
    v_queue bigint[];
    v_count integer;
BEGIN
    SELECT array_agg(d.id), array_agg(d.procrastinate_job_id) FILTER (WHERE d.status = 'failed') INTO v_jobs, v_queue
    FROM (
        (SELECT c.id, c.procrastinate_job_id, c.status FROM consolidation_jobs AS c
         WHERE c.status IN ('completed', 'cancelled') AND c.completed_at <= v_now - p_keep
         ORDER BY c.completed_at LIMIT p_limit)
        UNION ALL
        (SELECT c.id, c.procrastinate_job_id, c.status FROM consolidation_jobs AS c
         WHERE c.status = 'failed' AND c.completed_at <= v_now - p_keep_failed
         ORDER BY c.completed_at LIMIT p_limit)
        LIMIT p_limit
    ) AS d;
    -- The queue's rows before ours, as everywhere. A failed job that is being run again is skipped: its row here
    -- is then pending, and kept.
    DELETE FROM procrastinate_jobs AS j WHERE j.id IN (
        SELECT q.id FROM procrastinate_jobs AS q WHERE q.id = ANY (v_queue) AND q.status = 'failed'
        ORDER BY q.id FOR UPDATE SKIP LOCKED);
    WITH doomed AS (
        SELECT c.id FROM consolidation_jobs AS c
        WHERE c.id = ANY (v_jobs) AND c.status IN ('completed', 'cancelled', 'failed')
          AND NOT (c.status = 'failed'
                   AND EXISTS (SELECT FROM procrastinate_jobs AS q WHERE q.id = c.procrastinate_job_id))
        FOR UPDATE SKIP LOCKED
    ), moved AS (
        DELETE FROM consolidation_jobs AS c USING doomed WHERE c.id = doomed.id RETURNING c.*
    )
    INSERT INTO consolidation_jobs_archive (id, thread_id, job_type, status, attempts, upto_seq, procrastinate_job_id,
        result, error, error_code, raw_reply, started_at, completed_at, created_at, app_name, user_id)
    SELECT m.id, m.thread_id, m.job_type, m.status, m.attempts, m.upto_seq, m.procrastinate_job_id, m.result, m.error,
           m.error_code, m.raw_reply, m.started_at, m.completed_at, m.created_at, t.app_name, t.user_id
    FROM moved AS m JOIN threads AS t ON t.id = m.thread_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

-- Deletes at most p_limit archived jobs, p_keep after they were archived. Returns how many it deleted.
CREATE OR REPLACE FUNCTION prune_jobs_archive(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    DELETE FROM consolidation_jobs_archive AS a WHERE a.id IN (
        SELECT d.id FROM consolidation_jobs_archive AS d WHERE d.archived_at <= engine_now() - p_keep
        ORDER BY d.archived_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

-- The state of the queue: jobs by queue and status, and the age of the oldest one that could run.
CREATE OR REPLACE FUNCTION queue_depths() RETURNS TABLE (queue_name text, status text, jobs bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT j.queue_name, j.status::text, count(*) FROM procrastinate_jobs AS j
    WHERE j.status IN ('todo', 'doing') GROUP BY 1, 2
    UNION ALL
    SELECT CASE c.job_type WHEN 'fast_replay' THEN 'fast_replay' ELSE 'deep_reflection' END, 'failed', count(*)
    FROM consolidation_jobs AS c WHERE c.status = 'failed' GROUP BY 1
$$;

CREATE OR REPLACE FUNCTION queue_ages() RETURNS TABLE (queue_name text, oldest_seconds double precision)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT h.queue_name, extract(epoch FROM clock_timestamp() - e.at)::double precision
    FROM (SELECT j.queue_name, min(j.id) AS id FROM procrastinate_jobs AS j
          WHERE j.status = 'todo' AND coalesce(j.scheduled_at <= now(), true) GROUP BY 1) AS h
    CROSS JOIN LATERAL (SELECT min(v.at) AS at FROM procrastinate_events AS v WHERE v.job_id = h.id) AS e
$$;
