-- Consolidation: enqueuing jobs, and storing what was derived from a slice in one call, together with its watermark.

-- The job of the queue that carries a consolidation job.
CREATE OR REPLACE FUNCTION defer_consolidation(p_job_id uuid, p_thread_id uuid, p_job_type text) RETURNS bigint
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    SELECT (procrastinate_defer_jobs_v1(ARRAY[ROW(
        CASE p_job_type WHEN 'fast_replay' THEN 'fast_replay' ELSE 'deep_reflection' END, p_job_type, 0,
        p_job_type || ':' || p_thread_id, NULL,
        jsonb_strip_nulls(jsonb_build_object(
            'job_id', p_job_id, 'traceparent', nullif(current_setting('hippocampus.traceparent', true), ''))), NULL
        )::procrastinate_job_to_defer_v1]))[1]
$$;

-- Requests the consolidation of a thread up to its last event. Joins the fresh pending job of this type if there is
-- one, else creates one and its procrastinate job, all in the caller's transaction.
-- Errors: HP001 unknown thread, HP012 unknown job type.
CREATE OR REPLACE FUNCTION enqueue_consolidation(p_thread_id uuid, p_job_type text)
RETURNS TABLE (job_id uuid, created boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_last_seq bigint;
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
        v_queued := defer_consolidation(job_id, p_thread_id, p_job_type);
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

-- Enqueues what is due by the idle timers; at most p_limit threads of each kind. Returns how many it enqueued. A thread
-- whose app does not consolidate is checked again an hour later, in case its policy has changed.
CREATE OR REPLACE FUNCTION enqueue_idle(p_limit integer DEFAULT 500) RETURNS integer
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

-- Acquires the thread's lock for the end of a job and compares the watermark of its stage, 'fast' or 'deep'.
-- p_erasures: threads.erasures when the slice was read; what was derived from it may contain what was erased since.
-- Returns the time of this transaction; NULL if the thread is gone. Errors: HP011 the slice has changed.
CREATE OR REPLACE FUNCTION lock_slice(p_thread_id uuid, p_stage text, p_after_seq bigint, p_erasures integer) RETURNS timestamptz
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_upto_seq bigint;
    v_erasures integer;
BEGIN
    SELECT CASE p_stage WHEN 'fast' THEN fast_upto_seq WHEN 'deep' THEN deep_upto_seq END, erasures
    INTO v_upto_seq, v_erasures
    FROM threads WHERE id = p_thread_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF v_upto_seq IS DISTINCT FROM p_after_seq THEN
        RAISE EXCEPTION 'thread % is consolidated up to %, not %: nothing was written, read the slice again',
            p_thread_id, v_upto_seq, p_after_seq USING ERRCODE = 'HP011';
    ELSIF v_erasures IS DISTINCT FROM p_erasures THEN
        RAISE EXCEPTION 'something in thread % was erased: nothing was written, read the slice again', p_thread_id
            USING ERRCODE = 'HP011';
    END IF;
    RETURN engine_now();
END
$$;

-- Stores everything that one stage ('fast' or 'deep') derived from a slice, and moves its watermark to p_upto_seq.
-- Called after lock_slice, in the same transaction. Ids and outcomes are in the order of the input.
-- p_follow_up: the job type to enqueue for what is left after the slice; NULL: none.
-- p_backfill: some vector is missing and is to be made later.
CREATE OR REPLACE FUNCTION store_slice(
    p_thread_id uuid, p_stage text, p_upto_seq bigint, p_origin slice_origin, p_memories memory_input[],
    p_vectors message_vector[], p_facts fact_input[], p_follow_up text, p_backfill boolean,
    OUT memory_ids uuid[], OUT fact_ids uuid[], OUT fact_outcomes text[], OUT follow_up uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t          threads;
    f          record;
    v_recorded record;
BEGIN
    SELECT * INTO STRICT t FROM threads WHERE id = p_thread_id;
    IF p_stage = 'deep' THEN
        PERFORM lock_user_memory(t.app_name, t.user_id);
    END IF;

    memory_ids := store_memories(t, p_origin, p_memories);

    UPDATE messages AS m SET embedding = v.embedding, embedding_model = p_origin.embedding_model
    FROM unnest(p_vectors) AS v
    WHERE m.thread_id = t.id AND m.sequence_num = v.sequence_num;

    fact_ids := array_fill(NULL::uuid, ARRAY[coalesce(cardinality(p_facts), 0)]);
    fact_outcomes := array_fill(NULL::text, ARRAY[coalesce(cardinality(p_facts), 0)]);
    -- In the order of the keys that they are stored under, in which every job locks facts; then in the order given.
    FOR f IN
        SELECT p_facts[n.place] AS given, n.place FROM generate_subscripts(p_facts, 1) AS n (place)
        LEFT JOIN LATERAL resolve_fact(t.app_name, t.user_id, p_facts[n.place], p_origin.embedding_model) AS r ON true
        ORDER BY p_facts[n.place].fact_type, coalesce(r.key, p_facts[n.place].normal_key, p_facts[n.place].key), n.place
    LOOP
        SELECT * INTO v_recorded FROM record_fact(t, p_origin, f.given);
        fact_ids[f.place] := v_recorded.fact_id;
        fact_outcomes[f.place] := v_recorded.outcome;
    END LOOP;

    PERFORM move_watermark(t, p_stage, p_upto_seq);
    IF p_follow_up IS NOT NULL THEN
        SELECT q.job_id INTO follow_up FROM enqueue_consolidation(t.id, p_follow_up) AS q;
    END IF;
    IF p_backfill THEN
        PERFORM enqueue_embedding_backfill();
    END IF;
END
$$;

-- The policy counts from what is consolidated, even if a job went further than it was requested to.
CREATE OR REPLACE FUNCTION move_watermark(p_thread threads, p_stage text, p_upto_seq bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_whole boolean := p_upto_seq = p_thread.last_seq;
BEGIN
    IF p_stage = 'fast' THEN
        UPDATE threads AS t SET
            fast_upto_seq = p_upto_seq,
            fast_queued_seq = greatest(t.fast_queued_seq, p_upto_seq),
            fast_queued_tokens = CASE WHEN v_whole THEN t.token_count ELSE t.fast_queued_tokens END,
            fast_due_at = CASE WHEN v_whole THEN NULL ELSE t.fast_due_at END
        WHERE t.id = p_thread.id AND t.fast_upto_seq <> p_upto_seq;
    ELSE
        UPDATE threads AS t SET
            deep_upto_seq = p_upto_seq,
            deep_queued_seq = greatest(t.deep_queued_seq, p_upto_seq),
            deep_queued_tokens = CASE WHEN v_whole THEN t.token_count ELSE t.deep_queued_tokens END,
            deep_due_at = CASE WHEN v_whole THEN NULL ELSE t.deep_due_at END
        WHERE t.id = p_thread.id AND t.deep_upto_seq <> p_upto_seq;
    END IF;
END
$$;

-- Requests consolidation of what is left of a session, each stage separately; nothing if there is no such session.
-- Unlike finalize_session it leaves the session open.
CREATE OR REPLACE FUNCTION consolidate_session(p_app_name text, p_user_id text, p_session_id text)
RETURNS TABLE (job_id uuid, job_type text, created boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads AS each
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id AND NOT has_expired(each)
    FOR NO KEY UPDATE;
    IF t.last_seq > t.fast_upto_seq THEN
        RETURN QUERY SELECT q.job_id, 'fast_replay', q.created FROM enqueue_consolidation(t.id, 'fast_replay') AS q;
    END IF;
    IF t.last_seq > t.deep_upto_seq THEN
        RETURN QUERY SELECT q.job_id, 'deep_reflection', q.created
                     FROM enqueue_consolidation(t.id, 'deep_reflection') AS q;
    END IF;
END
$$;

-- Stores the memories of a slice, and returns their ids in its order. An insight that is known already, or that a person
-- retired after its turns, is not stored.
CREATE OR REPLACE FUNCTION store_memories(p_thread threads, p_origin slice_origin, p_memories memory_input[]) RETURNS uuid[]
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    m       memory_input;
    v_id    uuid;
    v_known text;
    v_ids   uuid[] := '{}';
BEGIN
    -- In the order in which accesses lock them.
    PERFORM FROM memories WHERE id IN (
        SELECT id FROM unnest(p_memories) AS i CROSS JOIN LATERAL (VALUES
            (find_insight(p_thread, i, p_origin.embedding_model)), ((i.metadata ->> 'repeats')::uuid)) AS found (id)
        WHERE i.memory_type = 'semantic')
    ORDER BY id FOR UPDATE;
    FOREACH m IN ARRAY p_memories LOOP
        v_known := m.metadata ->> 'repeats';
        m.metadata := m.metadata - 'repeats';
        v_id := CASE m.memory_type WHEN 'semantic' THEN find_insight(p_thread, m, p_origin.embedding_model) END;
        IF v_id IS NULL AND v_known IS NOT NULL THEN
            -- What a reply was shown and named; a person may have retired it meanwhile.
            SELECT id INTO v_id FROM memories
            WHERE id = v_known::uuid AND app_name = p_thread.app_name AND user_id = p_thread.user_id
              AND memory_type = 'semantic';
        END IF;
        IF v_id IS NULL AND m.memory_type = 'semantic' THEN
            v_id := retired_memory(p_thread, m, p_origin.from_seq, p_origin.embedding_model);
            IF v_id IS NOT NULL THEN
                v_ids := v_ids || v_id;
                CONTINUE;
            END IF;
        END IF;
        IF v_id IS NULL OR NOT support_insight(v_id, p_thread, m) THEN
            INSERT INTO memories (thread_id, user_id, app_name, memory_type, content, embedding, embedding_model,
                                  metadata, initial_score, from_seq, upto_seq, source_seqs, job_id, prompt_hash, model,
                                  occurred_at)
            VALUES (p_thread.id, p_thread.user_id, p_thread.app_name, m.memory_type, m.content, m.embedding,
                    CASE WHEN m.embedding IS NOT NULL THEN p_origin.embedding_model END, m.metadata, m.initial_score,
                    p_origin.from_seq, p_origin.upto_seq, m.source_seqs, p_origin.job_id, p_origin.prompt_hash,
                    p_origin.model, m.occurred_at)
            RETURNING id INTO v_id;
        END IF;
        v_ids := v_ids || v_id;
    END LOOP;
    RETURN v_ids;
END
$$;

-- The insight of a user with the same words or, for a model whose threshold is known, the same meaning.
CREATE OR REPLACE FUNCTION find_insight(p_thread threads, p_insight memory_input, p_embedding_model text) RETURNS uuid
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT m.id FROM memories AS m
    LEFT JOIN merge_thresholds AS h ON h.embedding_model = p_embedding_model AND h.kind = 'insight'
    CROSS JOIN LATERAL (SELECT plain_key(m.content) = plain_key(p_insight.content) AS same_words) AS k
    CROSS JOIN LATERAL (
        SELECT CASE WHEN k.same_words OR h.threshold IS NOT NULL
                    THEN model_similarity(m.embedding, m.embedding_model, p_insight.embedding, p_embedding_model)
                    END AS similarity OFFSET 0) AS s
    WHERE m.app_name = p_thread.app_name AND m.user_id = p_thread.user_id AND m.memory_type = 'semantic'
      AND (k.same_words OR s.similarity >= h.threshold)
    ORDER BY k.same_words DESC, s.similarity DESC NULLS LAST, m.id LIMIT 1
$$;

-- An insight that recurs: it takes the higher importance, one more support, and the new turns if they are of its
-- thread. That is an access: it is as strong as if it had been used now.
CREATE OR REPLACE FUNCTION support_insight(p_id uuid, p_thread threads, p_insight memory_input) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE memories AS m SET
        initial_score = greatest(m.initial_score, p_insight.initial_score),
        metadata = m.metadata || jsonb_build_object('support', coalesce((m.metadata ->> 'support')::integer, 1) + 1)
            || CASE WHEN p_insight.initial_score > m.initial_score AND p_insight.metadata ? 'importance'
                    THEN jsonb_build_object('importance', p_insight.metadata -> 'importance') ELSE '{}' END,
        source_seqs = CASE WHEN m.thread_id = p_thread.id
                           THEN ARRAY(SELECT DISTINCT s FROM unnest(m.source_seqs || p_insight.source_seqs) AS s ORDER BY s)
                           ELSE m.source_seqs END,
        access_count = least(m.access_count, 2147483646) + 1,
        last_accessed_at = greatest(m.last_accessed_at, engine_now()),
        occurred_at = greatest(m.occurred_at, p_insight.occurred_at)
    WHERE m.id = p_id;
    RETURN FOUND;
END
$$;

-- Stores a reply in place of an earlier one of its stage. The commit does not wait for the disk: what a crash of the
-- server forgets is requested again. Nothing is stored for a thread that is gone, or in which something was erased.
CREATE OR REPLACE FUNCTION save_model_reply(p_thread_id uuid, p_stage text, p_erasures integer, p_input_hash text, p_reply jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO model_replies (thread_id, stage, input_hash, reply)
    SELECT t.id, p_stage, p_input_hash, p_reply FROM threads AS t
    WHERE t.id = p_thread_id AND t.erasures = p_erasures FOR SHARE
    ON CONFLICT (thread_id, stage) DO UPDATE
        SET input_hash = excluded.input_hash, reply = excluded.reply, created_at = excluded.created_at,
            vectors_hash = NULL, vectors = NULL;
END
$$;

-- Stores the vectors of a stage's texts beside the reply that they were made from. A reply that cost nothing is not
-- kept: of it the row says only, in p_reply, up to which turn it was asked for.
CREATE OR REPLACE FUNCTION save_model_vectors(
    p_thread_id uuid, p_stage text, p_erasures integer, p_input_hash text, p_reply jsonb, p_vectors_hash text,
    p_vectors bytea)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO model_replies (thread_id, stage, input_hash, reply, vectors_hash, vectors)
    SELECT t.id, p_stage, p_input_hash, p_reply, p_vectors_hash, p_vectors FROM threads AS t
    WHERE t.id = p_thread_id AND t.erasures = p_erasures FOR SHARE
    ON CONFLICT (thread_id, stage) DO UPDATE SET vectors_hash = excluded.vectors_hash, vectors = excluded.vectors;
END
$$;

-- Adds what a slice cost, in the transaction that stores it and after its thread is locked.
CREATE OR REPLACE FUNCTION record_cost(
    p_thread_id uuid, p_stage text, p_generate_calls integer, p_embed_calls integer, p_prompt_tokens bigint,
    p_output_tokens bigint, p_reused_replies integer)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM model_replies WHERE thread_id = p_thread_id AND stage = p_stage;
    UPDATE threads SET
        generate_calls = generate_calls + p_generate_calls, embed_calls = embed_calls + p_embed_calls,
        prompt_tokens = prompt_tokens + p_prompt_tokens, output_tokens = output_tokens + p_output_tokens,
        reused_replies = reused_replies + p_reused_replies
    WHERE id = p_thread_id AND (p_generate_calls > 0 OR p_embed_calls > 0);
END
$$;

-- What each thread cost, in calls and tokens. A call that was retried after a fault counts once, and a call whose reply
-- was discarded does not count: the metrics count those. events_per_call: consolidated events per generate call.
CREATE OR REPLACE VIEW memory_costs AS
SELECT t.app_name, t.user_id, t.session_id, t.id AS thread_id, t.last_seq AS events,
       greatest(t.fast_upto_seq, t.deep_upto_seq) AS consolidated_events, t.token_count AS message_tokens,
       t.generate_calls, t.embed_calls, t.prompt_tokens, t.output_tokens, t.reused_replies,
       round(greatest(t.fast_upto_seq, t.deep_upto_seq)::numeric / nullif(t.generate_calls, 0), 1) AS events_per_call
FROM threads AS t;
