-- The end of a consolidation job: what was learned from a slice is stored in one call, beside its watermark.

-- A statement that arrives late may be older than the last time that the current value was heard.
ALTER TABLE facts ADD COLUMN last_said_at timestamptz;
COMMENT ON COLUMN facts.last_said_at IS 'When the current value was said last; valid_from is when it was said first. NULL: the same.';

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
    valid_from  timestamptz
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

-- Keeps a version of a fact that is not the current one.
CREATE FUNCTION keep_fact_version(p_fact facts, p_outcome text, p_valid_until timestamptz) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    INSERT INTO fact_versions (fact_id, thread_id, user_id, app_name, fact_type, key, value, confidence, valid_from,
                               valid_until, recorded_at, outcome, from_seq, upto_seq, source_seqs, job_id, prompt_hash,
                               model)
    VALUES (p_fact.id, p_fact.thread_id, p_fact.user_id, p_fact.app_name, p_fact.fact_type, p_fact.key, p_fact.value,
            p_fact.confidence, p_fact.valid_from, p_valid_until, p_fact.recorded_at, p_outcome, p_fact.from_seq,
            p_fact.upto_seq, p_fact.source_seqs, p_fact.job_id, p_fact.prompt_hash, p_fact.model)
$$;

-- Records what a user was heard to say, under the thread's app and user, whatever the text claims.
--
--   no such key yet                             'created'
--   the current one had expired by then         'reopened'      the old version is kept
--   the same value again                        'confirmed'     confidence: the higher; sources merged; no version
--   said before the current one was said last   'out_of_order'  kept as a version, true until the next one
--   less sure than the current one by over 0.1  'less_sure'     kept as a version that was never current
--   else                                        'updated'       the old version is kept, true until the new one
--   said before somebody had the key forgotten  'forgotten'     nothing is stored
--
-- Models grade the same certainty a little differently each time: a newer statement that is about as sure counts.
CREATE FUNCTION record_fact(p_thread threads, p_origin slice_origin, p_fact fact_input)
RETURNS TABLE (fact_id uuid, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_now   timestamptz := engine_now();
    current facts;
    fresh   facts;
BEGIN
    fresh.id := new_id();
    fresh.thread_id := p_thread.id;
    fresh.user_id := p_thread.user_id;
    fresh.app_name := p_thread.app_name;
    fresh.fact_type := p_fact.fact_type;
    fresh.key := p_fact.key;
    fresh.value := p_fact.value;
    fresh.content := p_fact.content;
    fresh.embedding := p_fact.embedding;
    fresh.embedding_model := CASE WHEN p_fact.embedding IS NOT NULL THEN p_origin.embedding_model END;
    fresh.confidence := p_fact.confidence;
    -- A turn that is dated ahead of the clock must not outrank everything that is said until then.
    fresh.valid_from := least(p_fact.valid_from, v_now);
    fresh.last_said_at := fresh.valid_from;
    fresh.recorded_at := v_now;
    fresh.from_seq := p_origin.from_seq;
    fresh.upto_seq := p_origin.upto_seq;
    fresh.source_seqs := p_fact.source_seqs;
    fresh.job_id := p_origin.job_id;
    fresh.prompt_hash := p_origin.prompt_hash;
    fresh.model := p_origin.model;
    fresh.created_at := v_now;
    fresh.updated_at := v_now;

    LOOP
        SELECT * INTO current FROM facts AS f
        WHERE f.user_id = fresh.user_id AND f.app_name = fresh.app_name AND f.fact_type = fresh.fact_type
          AND f.key = fresh.key
        FOR UPDATE;
        -- After the wait for the row: whoever held it may have been about to forget it.
        IF is_forgotten_fact(p_thread, p_fact) THEN
            RETURN QUERY SELECT NULL::uuid, 'forgotten';
            RETURN;
        END IF;
        EXIT WHEN FOUND;
        INSERT INTO facts (id, thread_id, user_id, app_name, fact_type, key, value, content, embedding,
                           embedding_model, confidence, valid_from, last_said_at, recorded_at, from_seq, upto_seq,
                           source_seqs, job_id, prompt_hash, model, created_at, updated_at)
        VALUES (fresh.id, fresh.thread_id, fresh.user_id, fresh.app_name, fresh.fact_type, fresh.key, fresh.value,
                fresh.content, fresh.embedding, fresh.embedding_model, fresh.confidence, fresh.valid_from,
                fresh.last_said_at, fresh.recorded_at, fresh.from_seq, fresh.upto_seq, fresh.source_seqs,
                fresh.job_id, fresh.prompt_hash, fresh.model, fresh.created_at, fresh.updated_at)
        ON CONFLICT ON CONSTRAINT facts_user_key_unique DO NOTHING;
        IF FOUND THEN
            RETURN QUERY SELECT fresh.id, 'created';
            RETURN;
        END IF;
    END LOOP;

    -- Its thread may be another than the job's, and the foreign key locks it: that of a version, and that of the fact
    -- where this transaction writes it a second time. One that is being deleted waits for the very fact that we hold,
    -- so it counts as gone already.
    IF current.thread_id <> p_thread.id THEN
        current.thread_id := (SELECT t.id FROM threads AS t WHERE t.id = current.thread_id FOR KEY SHARE SKIP LOCKED);
    END IF;
    fresh.id := current.id;
    outcome := CASE
        WHEN current.valid_until <= fresh.valid_from THEN 'reopened'
        WHEN current.value = fresh.value AND NOT EXISTS (
            SELECT FROM fact_versions AS v
            WHERE v.app_name = fresh.app_name AND v.user_id = fresh.user_id AND v.fact_type = fresh.fact_type
              AND v.key = fresh.key AND v.outcome <> 'less_sure'
              AND v.valid_from >= fresh.valid_from AND v.valid_from < current.valid_from) THEN 'confirmed'
        WHEN fresh.valid_from < coalesce(current.last_said_at, current.valid_from) THEN 'out_of_order'
        WHEN fresh.confidence < current.confidence - 0.1 THEN 'less_sure'
        ELSE 'updated' END;
    fact_id := current.id;

    IF outcome = 'confirmed' THEN
        PERFORM confirm_fact(current, fresh);
    ELSIF outcome = 'less_sure' THEN
        PERFORM keep_fact_version(fresh, 'less_sure', NULL);
    ELSIF outcome = 'out_of_order' THEN
        PERFORM keep_late_fact(current, fresh);
    ELSE
        PERFORM keep_fact_version(current, 'superseded', least(current.valid_until, fresh.valid_from));
        UPDATE facts AS f SET
            thread_id = fresh.thread_id, value = fresh.value, content = fresh.content, embedding = fresh.embedding,
            embedding_model = fresh.embedding_model, confidence = fresh.confidence, valid_from = fresh.valid_from,
            valid_until = NULL, last_said_at = fresh.last_said_at, recorded_at = v_now, from_seq = fresh.from_seq, upto_seq = fresh.upto_seq,
            source_seqs = fresh.source_seqs, job_id = fresh.job_id, prompt_hash = fresh.prompt_hash,
            model = fresh.model, updated_at = v_now
        WHERE f.id = current.id;
    END IF;
    RETURN NEXT;
END
$$;

-- Keeps a statement that was made before the current value was heard last. It was true until the next statement;
-- where the current value was heard both before it and after it, the time before becomes a version of its own.
CREATE FUNCTION keep_late_fact(p_current facts, p_late facts) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_late.valid_from >= p_current.valid_from THEN
        PERFORM keep_fact_version(p_current, 'superseded', p_late.valid_from);
        PERFORM keep_fact_version(p_late, 'out_of_order', p_current.last_said_at);
        UPDATE facts SET valid_from = last_said_at, thread_id = p_current.thread_id WHERE id = p_current.id;
    ELSE
        PERFORM keep_fact_version(p_late, 'out_of_order', least(p_current.valid_from, (
            SELECT min(v.valid_from) FROM fact_versions AS v
            WHERE v.app_name = p_late.app_name AND v.user_id = p_late.user_id AND v.fact_type = p_late.fact_type
              AND v.key = p_late.key AND v.outcome <> 'less_sure' AND v.valid_from > p_late.valid_from)));
    END IF;
END
$$;

-- Heard again: surer, from more turns, perhaps true for longer. Turns are numbered by thread, so those of another
-- thread cannot join the list; they replace it only where its thread is gone.
CREATE FUNCTION confirm_fact(p_current facts, p_again facts) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    UPDATE facts AS f SET
        confidence = greatest(f.confidence, p_again.confidence),
        valid_from = least(f.valid_from, p_again.valid_from),
        last_said_at = greatest(f.last_said_at, p_again.last_said_at),
        embedding = coalesce(f.embedding, p_again.embedding),
        embedding_model = coalesce(f.embedding_model, p_again.embedding_model),
        thread_id = coalesce(p_current.thread_id, p_again.thread_id),
        source_seqs = CASE
            WHEN p_current.thread_id = p_again.thread_id THEN
                ARRAY(SELECT DISTINCT s FROM unnest(f.source_seqs || p_again.source_seqs) AS s ORDER BY s)
            WHEN p_current.thread_id IS NULL THEN p_again.source_seqs
            ELSE f.source_seqs END,
        from_seq = CASE WHEN p_current.thread_id = p_again.thread_id THEN least(f.from_seq, p_again.from_seq)
                        WHEN p_current.thread_id IS NULL THEN p_again.from_seq ELSE f.from_seq END,
        upto_seq = CASE WHEN p_current.thread_id = p_again.thread_id THEN greatest(f.upto_seq, p_again.upto_seq)
                        WHEN p_current.thread_id IS NULL THEN p_again.upto_seq ELSE f.upto_seq END,
        updated_at = engine_now()
    WHERE f.id = p_current.id
$$;

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

    WITH given AS (
        SELECT new_id() AS id, m.*
        FROM unnest(p_memories) WITH ORDINALITY
             AS m (memory_type, content, embedding, metadata, initial_score, source_seqs, occurred_at, place)
    ), stored AS (
        INSERT INTO memories (id, thread_id, user_id, app_name, memory_type, content, embedding, embedding_model,
                              metadata, initial_score, from_seq, upto_seq, source_seqs, job_id, prompt_hash, model,
                              occurred_at)
        SELECT g.id, t.id, t.user_id, t.app_name, g.memory_type, g.content, g.embedding,
               CASE WHEN g.embedding IS NOT NULL THEN p_origin.embedding_model END, g.metadata, g.initial_score,
               p_origin.from_seq, p_origin.upto_seq, g.source_seqs, p_origin.job_id, p_origin.prompt_hash,
               p_origin.model, g.occurred_at
        FROM given AS g
    )
    SELECT coalesce(array_agg(g.id ORDER BY g.place), '{}') INTO memory_ids FROM given AS g;

    UPDATE messages AS m SET embedding = v.embedding, embedding_model = p_origin.embedding_model
    FROM unnest(p_vectors) AS v
    WHERE m.thread_id = t.id AND m.sequence_num = v.sequence_num;

    fact_ids := array_fill(NULL::uuid, ARRAY[coalesce(cardinality(p_facts), 0)]);
    fact_outcomes := array_fill(NULL::text, ARRAY[coalesce(cardinality(p_facts), 0)]);
    -- By key, so that jobs of two threads of one user lock their facts in one order; one key's in the order given.
    FOR f IN
        SELECT p_facts[place] AS given, place FROM generate_subscripts(p_facts, 1) AS place
        ORDER BY p_facts[place].fact_type, p_facts[place].key, place
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

-- What was held true of a user at a time, as it was known at a time: of each key, the statement with the latest
-- valid_from among those recorded by then, unless it had expired. Statements that were too unsure never count.
CREATE FUNCTION facts_as_of(p_app_name text, p_user_id text, p_as_of timestamptz, p_known_at timestamptz)
RETURNS TABLE (id uuid, thread_id uuid, fact_type varchar, key varchar, value jsonb, confidence double precision,
               source_seqs bigint[], valid_from timestamptz, valid_until timestamptz, recorded_at timestamptz)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    WITH said AS (
        SELECT f.id, f.thread_id, f.fact_type, f.key, f.value, f.confidence, f.source_seqs, f.valid_from,
               f.valid_until, f.recorded_at, NULL::timestamptz AS superseded_at
        FROM facts AS f WHERE f.app_name = p_app_name AND f.user_id = p_user_id
        UNION ALL
        SELECT v.fact_id, v.thread_id, v.fact_type, v.key, v.value, v.confidence, v.source_seqs, v.valid_from,
               v.valid_until, v.recorded_at, v.superseded_at
        FROM fact_versions AS v
        WHERE v.app_name = p_app_name AND v.user_id = p_user_id AND v.outcome <> 'less_sure'
    ), ended AS (
        -- An end that is the beginning of another statement is no expiry: it counts only if that one is known.
        SELECT s.*, s.valid_until <= p_as_of
                    AND s.valid_until <> ALL (array_agg(s.valid_from) OVER (PARTITION BY s.fact_type, s.key)) AS expired
        FROM said AS s
    ), latest AS (
        -- Of two statements of one moment, the one that stood last; of two that were replaced at once, the one that
        -- was not over as it began.
        SELECT DISTINCT ON (e.fact_type, e.key) e.*
        FROM ended AS e WHERE e.recorded_at <= p_known_at AND e.valid_from <= p_as_of
        ORDER BY e.fact_type, e.key, e.valid_from DESC, e.superseded_at DESC NULLS FIRST,
                 e.valid_until DESC NULLS FIRST
    )
    SELECT l.id, l.thread_id, l.fact_type, l.key, l.value, l.confidence, l.source_seqs, l.valid_from, l.valid_until,
           l.recorded_at
    FROM latest AS l WHERE l.expired IS NOT TRUE
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
