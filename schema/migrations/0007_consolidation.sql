-- The end of a consolidation job: what was learned from a slice is stored in one call, beside its watermark.

CREATE TYPE memory_input AS (
    memory_type   text,
    content       text,
    embedding     vector(1536),
    metadata      jsonb,
    initial_score double precision,
    source_seqs   bigint[],
    occurred_at   timestamptz
);

CREATE TYPE fact_input AS (
    fact_type   text,
    key         text,
    value       jsonb,
    content     text,
    embedding   vector(1536),
    confidence  double precision,
    source_seqs bigint[],
    valid_from  timestamptz,   -- when it was said
    normal_key  text,          -- what its key has in common with other spellings; NULL: the key as it is
    collection  text,          -- the normal form of the collection that it is an element of; NULL: of none
    contrast    text           -- only facts of one contrast are merged by likeness; NULL: ''
);

CREATE TYPE message_vector AS (
    sequence_num bigint,
    embedding    vector(1536)
);

-- What the backfill gives to a row: a vector of the text that it held when it was read; then it had a vector of
-- former_model, or none.
CREATE TYPE vector_input AS (
    id           uuid,
    content      text,
    former_model text,
    embedding    vector(1536)
);

-- Where a slice comes from and what drew on it; stands on every row that it leaves.
CREATE TYPE slice_origin AS (
    job_id          uuid,
    from_seq        bigint,
    upto_seq        bigint,
    prompt_hash     text,
    model           text,
    embedding_model text
);

-- Takes the thread's lock for the end of a job and compares the watermark of its stage, 'fast' or 'deep'.
-- p_erasures: threads.erasures as it stood when the slice was read; what was drawn from it may hold what was erased
-- since. Returns the time of this transaction; NULL where the thread is gone. Errors: HP011 the slice is not the same.
CREATE FUNCTION lock_slice(p_thread_id uuid, p_stage text, p_after_seq bigint, p_erasures integer) RETURNS timestamptz
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
        RAISE EXCEPTION 'thread % is consolidated up to % by now, not %: nothing was written, read the slice again',
            p_thread_id, v_upto_seq, p_after_seq USING ERRCODE = 'HP011';
    ELSIF v_erasures IS DISTINCT FROM p_erasures THEN
        RAISE EXCEPTION 'something of thread % was erased meanwhile: nothing was written, read the slice again', p_thread_id
            USING ERRCODE = 'HP011';
    END IF;
    RETURN engine_now();
END
$$;

-- Asks for vectors for what was stored without, unless a run of the backfill waits already.
CREATE FUNCTION enqueue_embedding_backfill() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    -- One at a time, so that two jobs that end together cannot both see none waiting.
    PERFORM pg_advisory_xact_lock(hashtextextended('embedding_backfill of ' || current_schema(), 0));
    IF NOT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = 'embedding_backfill' AND status = 'todo') THEN
        PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW(
            'embedding', 'embedding_backfill', 0, 'embedding_backfill', NULL, '{}', NULL)::procrastinate_job_to_defer_v1]);
    END IF;
END
$$;
-- What the backfill looks for. An entry lives from an append to its fast_replay.
CREATE INDEX messages_without_vector_idx ON messages (id) WHERE embedding IS NULL;

-- Stores everything that one stage ('fast' or 'deep') drew from a slice, and moves its watermark to p_upto_seq.
-- Called after lock_slice, in the same transaction. Ids and outcomes are in the order of their input.
-- p_follow_up: the job type to enqueue for what is left past the slice; NULL where nothing is.
-- p_backfill: some vector is missing and is to be made later.
CREATE FUNCTION store_slice(
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
    -- By the key that they end up under, so that all who lock facts do so in one order; one key's in the order given.
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

-- The policy counts from what is consolidated, also where a job went further than it was asked to.
CREATE FUNCTION move_watermark(p_thread threads, p_stage text, p_upto_seq bigint) RETURNS void
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

-- Adds a version of an instruction and returns it; returns the newest where nothing changed.
-- p_expected_version: the newest version that the caller saw, 0 for none; NULL: whatever it is.
-- Errors: HP016 somebody else changed it.
CREATE FUNCTION put_instruction(
    p_app_name text, p_instruction_key text, p_content text, p_metadata jsonb, p_expected_version integer)
RETURNS instructions
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    newest instructions;
BEGIN
    -- Versions of one instruction are given one at a time; there may be no row yet to lock.
    PERFORM pg_advisory_xact_lock(hashtextextended(
        concat_ws(' ', 'instruction of', current_schema(), p_app_name, p_instruction_key), 0));
    SELECT * INTO newest FROM instructions AS i
    WHERE i.app_name = p_app_name AND i.instruction_key = p_instruction_key
    ORDER BY i.version DESC LIMIT 1;
    IF coalesce(newest.version, 0) <> p_expected_version THEN
        RAISE EXCEPTION 'instruction % is at version %, not %: read it again and redo the change',
            quote_literal(p_instruction_key), coalesce(newest.version, 0), p_expected_version USING ERRCODE = 'HP016';
    END IF;
    IF newest.content IS DISTINCT FROM p_content OR newest.metadata IS DISTINCT FROM p_metadata THEN
        INSERT INTO instructions (app_name, instruction_key, content, version, metadata)
        VALUES (p_app_name, p_instruction_key, p_content, coalesce(newest.version, 0) + 1, p_metadata)
        RETURNING * INTO newest;
    END IF;
    RETURN newest;
END
$$;
