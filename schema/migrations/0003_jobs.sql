-- Consolidation jobs: one row per business job, one procrastinate job that carries only its id.

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
-- At most one fresh pending job for a thread and type: later enqueues join it.
CREATE UNIQUE INDEX consolidation_jobs_fresh_idx ON consolidation_jobs (thread_id, job_type)
    WHERE status = 'pending' AND attempts = 0;
CREATE INDEX consolidation_jobs_thread_idx ON consolidation_jobs (thread_id);
CREATE INDEX consolidation_jobs_pending_idx ON consolidation_jobs (created_at) WHERE status = 'pending';
CREATE INDEX consolidation_jobs_failed_idx ON consolidation_jobs (completed_at) WHERE status = 'failed';
CREATE INDEX consolidation_jobs_ended_idx ON consolidation_jobs (completed_at)
    WHERE status IN ('completed', 'cancelled');

CREATE TABLE consolidation_jobs_archive (
    LIKE consolidation_jobs,
    app_name    varchar(255),
    user_id     varchar(255),
    archived_at timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (id)
);
CREATE INDEX consolidation_jobs_archive_thread_idx ON consolidation_jobs_archive (thread_id);

-- Asks for the consolidation of a thread up to its last event. Joins the fresh pending job of this type where
-- there is one, else makes one and its procrastinate job, all in the caller's transaction.
-- Errors: HP001 unknown thread, HP012 unknown job type.
CREATE FUNCTION enqueue_consolidation(p_thread_id uuid, p_job_type text)
RETURNS TABLE (job_id uuid, created boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_last_seq bigint;
    v_queue    text;
    v_queued   bigint;
BEGIN
    IF p_job_type IS NULL OR p_job_type NOT IN ('fast_replay', 'deep_reflection', 'full_consolidation') THEN
        RAISE EXCEPTION 'unknown job type %: use fast_replay, deep_reflection or full_consolidation',
            quote_nullable(p_job_type) USING ERRCODE = 'HP012';
    END IF;
    SELECT last_seq INTO v_last_seq FROM threads WHERE id = p_thread_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no thread %', p_thread_id USING ERRCODE = 'HP001';
    END IF;

    -- A worker that fetches this job waits for our commit, and reads its slice after it.
    UPDATE consolidation_jobs AS j SET upto_seq = greatest(j.upto_seq, v_last_seq)
    WHERE j.thread_id = p_thread_id AND j.job_type = p_job_type AND j.status = 'pending' AND j.attempts = 0
    RETURNING j.id INTO job_id;
    created := NOT FOUND;
    IF created THEN
        job_id := new_id();
        v_queue := CASE p_job_type WHEN 'fast_replay' THEN 'fast_replay' ELSE 'deep_reflection' END;
        SELECT (procrastinate_defer_jobs_v1(ARRAY[ROW(
                    v_queue, p_job_type, 0, p_job_type || ':' || p_thread_id, NULL,
                    jsonb_build_object('job_id', job_id), NULL)::procrastinate_job_to_defer_v1]))[1]
        INTO v_queued;
        INSERT INTO consolidation_jobs (id, thread_id, job_type, upto_seq, procrastinate_job_id)
        VALUES (job_id, p_thread_id, p_job_type, v_last_seq, v_queued);
    END IF;

    UPDATE threads AS t SET
        fast_queued_seq    = CASE WHEN p_job_type <> 'deep_reflection' THEN t.last_seq ELSE t.fast_queued_seq END,
        fast_queued_tokens = CASE WHEN p_job_type <> 'deep_reflection' THEN t.token_count ELSE t.fast_queued_tokens END,
        fast_due_at        = CASE WHEN p_job_type <> 'deep_reflection' THEN NULL ELSE t.fast_due_at END,
        deep_queued_seq    = CASE WHEN p_job_type <> 'fast_replay' THEN t.last_seq ELSE t.deep_queued_seq END,
        deep_queued_tokens = CASE WHEN p_job_type <> 'fast_replay' THEN t.token_count ELSE t.deep_queued_tokens END,
        deep_due_at        = CASE WHEN p_job_type <> 'fast_replay' THEN NULL ELSE t.deep_due_at END
    WHERE t.id = p_thread_id;
    RETURN NEXT;
END
$$;

-- The status of a consolidation job follows its procrastinate job in the same transaction, whoever moves it.
CREATE FUNCTION mirror_job_status() RETURNS trigger
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
CREATE TRIGGER mirror_job_status AFTER UPDATE OF status ON procrastinate_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION mirror_job_status();

-- Asks for what the idle timers say is due; at most p_limit threads of each kind. Returns how many it enqueued. A thread
-- whose app does not consolidate is looked at again an hour later: what was said is not lost if it does by then.
CREATE FUNCTION enqueue_idle(p_limit integer DEFAULT 500) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t        threads;
    v_policy app_policies;
    c_pause  constant interval := '1 hour';
    v_now    timestamptz := engine_now();
    v_count  integer := 0;
BEGIN
    FOR t IN SELECT * FROM threads WHERE fast_due_at <= v_now ORDER BY fast_due_at LIMIT p_limit
             FOR NO KEY UPDATE SKIP LOCKED LOOP
        v_policy := app_policy(t.app_name);
        IF t.last_seq <= t.fast_queued_seq THEN
            UPDATE threads SET fast_due_at = NULL WHERE id = t.id;
        ELSIF NOT v_policy.consolidate THEN
            UPDATE threads SET fast_due_at = v_now + c_pause WHERE id = t.id;
        ELSIF t.last_event_at + make_interval(secs => v_policy.fast_idle_seconds) > v_now THEN
            UPDATE threads SET fast_due_at = t.last_event_at + make_interval(secs => v_policy.fast_idle_seconds)
            WHERE id = t.id;
        ELSE
            PERFORM enqueue_consolidation(t.id, 'fast_replay');
            v_count := v_count + 1;
        END IF;
    END LOOP;
    FOR t IN SELECT * FROM threads WHERE deep_due_at <= v_now ORDER BY deep_due_at LIMIT p_limit
             FOR NO KEY UPDATE SKIP LOCKED LOOP
        v_policy := app_policy(t.app_name);
        IF t.last_seq <= t.deep_queued_seq THEN
            UPDATE threads SET deep_due_at = NULL WHERE id = t.id;
        ELSIF NOT v_policy.consolidate THEN
            UPDATE threads SET deep_due_at = v_now + c_pause WHERE id = t.id;
        ELSIF t.last_event_at + make_interval(secs => v_policy.deep_idle_seconds) > v_now THEN
            UPDATE threads SET deep_due_at = t.last_event_at + make_interval(secs => v_policy.deep_idle_seconds)
            WHERE id = t.id;
        ELSE
            PERFORM enqueue_consolidation(t.id, 'deep_reflection');
            v_count := v_count + 1;
        END IF;
    END LOOP;
    RETURN v_count;
END
$$;
