-- Replays: extracting memories again from the same turns, and swapping the result in.

-- A digest of the turns of a slice: it differs once something in them is erased or changed.
CREATE OR REPLACE FUNCTION slice_digest(p_thread_id uuid, p_from_seq bigint, p_upto_seq bigint) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT md5(coalesce(string_agg(concat_ws(E'\x1f', m.sequence_num, m.author, m.role, m.content), E'\x1e'
                                   ORDER BY m.sequence_num), ''))
    FROM messages AS m WHERE m.thread_id = p_thread_id AND m.sequence_num BETWEEN p_from_seq AND p_upto_seq
$$;

-- The open replay of a session (p_session_id) or of a user (NULL) with a provider; begun if there is none. Open replays
-- with another provider are dropped. Errors: HP001 no such session.
CREATE OR REPLACE FUNCTION begin_replay(p_app_name text, p_user_id text, p_session_id text, p_fingerprint text) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_thread uuid;
    v_id     uuid;
BEGIN
    IF p_session_id IS NOT NULL THEN
        SELECT id INTO v_thread FROM threads
        WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id FOR KEY SHARE;
        IF NOT FOUND THEN
            PERFORM refuse_missing_session(p_app_name, p_user_id, p_session_id);
        END IF;
    END IF;
    DELETE FROM replays WHERE app_name = p_app_name AND user_id = p_user_id AND thread_id IS NOT DISTINCT FROM v_thread
                          AND fingerprint <> p_fingerprint AND applied_at IS NULL;
    INSERT INTO replays AS r (app_name, user_id, thread_id, fingerprint)
    VALUES (p_app_name, p_user_id, v_thread, p_fingerprint)
    ON CONFLICT (app_name, user_id, coalesce(thread_id::text, ''), fingerprint) WHERE applied_at IS NULL
    DO UPDATE SET fingerprint = r.fingerprint
    RETURNING r.id INTO v_id;
    -- Slices in which turns were erased since they were read, and all later ones of their thread, are extracted again.
    DELETE FROM replay_draws AS d USING replay_draws AS b
    WHERE d.replay_id = v_id AND b.replay_id = v_id AND b.thread_id = d.thread_id AND b.stage = d.stage
      AND b.from_seq <= d.from_seq AND b.said <> slice_digest(b.thread_id, b.from_seq, b.upto_seq);
    RETURN v_id;
END
$$;

-- The stages of a replay's sessions: how far they are consolidated, and how far they were extracted again.
CREATE OR REPLACE FUNCTION replay_progress(r replays)
RETURNS TABLE (thread_id uuid, stage text, watermark bigint, drawn_seq bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT t.id, s.stage, s.watermark,
           coalesce((SELECT max(d.upto_seq) FROM replay_draws AS d
                     WHERE d.replay_id = r.id AND d.thread_id = t.id AND d.stage = s.stage), 0)
    FROM threads AS t
    CROSS JOIN LATERAL (VALUES ('fast', t.fast_upto_seq), ('deep', t.deep_upto_seq)) AS s (stage, watermark)
    WHERE t.app_name = r.app_name AND t.user_id = r.user_id AND (r.thread_id IS NULL OR t.id = r.thread_id)
$$;

-- Replaces what is stored by what a replay extracted, and returns what became of each: 'added', 'dropped' or 'kept'.
-- What comes out the same keeps its row, with its id, strength and age. What was added by hand, archived or erased is
-- left as it is. Statements of facts that were not extracted again are retracted: an earlier known_at still sees them.
-- Roll the transaction back for a dry run.
-- Errors: HP043 sessions were consolidated further, or changed, since they were read: nothing is changed.
CREATE OR REPLACE FUNCTION swap_replay(p_replay_id uuid)
RETURNS TABLE (change text, kind text, thread_id uuid, key text, content text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    r     replays;
    t     threads;
BEGIN
    SELECT * INTO r FROM replays WHERE id = p_replay_id AND applied_at IS NULL;
    -- A job that consolidates one of these waits, and then continues: no watermark is moved.
    PERFORM FROM threads AS x
    WHERE x.app_name = r.app_name AND x.user_id = r.user_id AND (r.thread_id IS NULL OR x.id = r.thread_id)
    ORDER BY x.id FOR NO KEY UPDATE;
    PERFORM lock_user_memory(r.app_name, r.user_id);
    SELECT * INTO r FROM replays WHERE id = p_replay_id AND applied_at IS NULL FOR UPDATE;
    IF r.id IS NULL OR EXISTS (SELECT FROM replay_progress(r) AS p WHERE p.drawn_seq <> p.watermark)
       OR EXISTS (SELECT FROM replay_draws AS d
                  WHERE d.replay_id = r.id AND d.said <> slice_digest(d.thread_id, d.from_seq, d.upto_seq)) THEN
        RAISE EXCEPTION 'replay % no longer matches what is stored: nothing was changed, replay again', p_replay_id
            USING ERRCODE = 'HP043';
    END IF;
    FOR t IN SELECT x.* FROM threads AS x
             WHERE x.app_name = r.app_name AND x.user_id = r.user_id AND (r.thread_id IS NULL OR x.id = r.thread_id)
             ORDER BY x.id LOOP
        RETURN QUERY SELECT s.change, s.kind, t.id, NULL::text, s.content FROM swap_memories(r, t) AS s;
    END LOOP;
    RETURN QUERY SELECT s.change, 'fact', s.thread_id, s.key, s.content FROM swap_facts(r) AS s;
    UPDATE messages AS m SET embedding = v.embedding, embedding_model = (d.origin).embedding_model
    FROM replay_draws AS d CROSS JOIN LATERAL unnest(d.vectors) AS v
    WHERE d.replay_id = r.id AND m.thread_id = d.thread_id AND m.sequence_num = v.sequence_num
      AND m.embedding_model IS DISTINCT FROM (d.origin).embedding_model;
    IF EXISTS (SELECT FROM replay_draws AS d WHERE d.replay_id = r.id AND d.vectorless) OR EXISTS (
        SELECT FROM facts AS f WHERE f.app_name = r.app_name AND f.user_id = r.user_id AND f.embedding IS NULL) THEN
        PERFORM enqueue_embedding_backfill();
    END IF;
    DELETE FROM replay_draws AS d WHERE d.replay_id = r.id;
    UPDATE replays SET applied_at = engine_now() WHERE id = r.id;
END
$$;

-- The memories of one session. A pinned one is kept, as is an insight that recurred: other sessions may support it.
CREATE OR REPLACE FUNCTION swap_memories(r replays, t threads)
RETURNS TABLE (change text, kind text, content text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    d         record;
    v_old     uuid[];
    v_kept    uuid[] := '{}';
    v_origins slice_origin[] := '{}';
    v_fresh   memory_input[] := '{}';
    v_id      uuid;
BEGIN
    SELECT array_agg(o.id) INTO v_old FROM (
        SELECT m.id FROM memories AS m
        WHERE m.thread_id = t.id AND m.from_seq IS NOT NULL AND m.metadata ->> 'source' IS DISTINCT FROM 'by hand' ORDER BY m.id FOR UPDATE) AS o;
    FOR d IN
        SELECT x.origin, x.memories[n] AS memory
        FROM replay_draws AS x CROSS JOIN LATERAL generate_subscripts(x.memories, 1) AS n
        WHERE x.replay_id = r.id AND x.thread_id = t.id
        ORDER BY x.stage DESC, x.from_seq, n
    LOOP
        v_id := CASE (d.memory).memory_type
            WHEN 'semantic' THEN find_insight(t, d.memory, (d.origin).embedding_model)
            ELSE (SELECT m.id FROM memories AS m
                  WHERE m.thread_id = t.id AND m.memory_type = (d.memory).memory_type
                    AND m.content = (d.memory).content AND m.from_seq = (d.origin).from_seq
                    AND m.upto_seq = (d.origin).upto_seq LIMIT 1) END;
        IF v_id IS NOT NULL THEN
            v_kept := v_kept || v_id;
        ELSIF NOT EXISTS (
            SELECT FROM memories_archive AS a
            WHERE a.thread_id = t.id AND a.memory_type = (d.memory).memory_type AND a.content = (d.memory).content)
            AND retired_memory(t, d.memory, (d.origin).from_seq, (d.origin).embedding_model) IS NULL
            AND NOT is_forgotten_memory(t.id, (d.memory).memory_type, (d.origin).from_seq, (d.origin).upto_seq,
                                        (d.memory).source_seqs) THEN
            v_origins := array_append(v_origins, d.origin);
            v_fresh := array_append(v_fresh, d.memory);
        END IF;
    END LOOP;
    RETURN QUERY
        SELECT CASE WHEN m.id = ANY (v_kept) OR m.pinned OR coalesce((m.metadata ->> 'support')::integer, 1) > 1
                    THEN 'kept' ELSE 'dropped' END, m.memory_type::text, m.content
        FROM memories AS m WHERE m.id = ANY (v_old) ORDER BY m.from_seq, m.id;
    DELETE FROM memories AS m
    WHERE m.id = ANY (v_old) AND m.id <> ALL (v_kept) AND NOT m.pinned
      AND coalesce((m.metadata ->> 'support')::integer, 1) = 1;
    FOR n IN 1 .. cardinality(v_fresh) LOOP
        v_id := (store_memories(t, v_origins[n], v_fresh[n:n]))[1];
        IF v_id <> ALL (v_kept) THEN
            v_kept := v_kept || v_id;
            RETURN QUERY SELECT 'added', v_fresh[n].memory_type, v_fresh[n].content;
        END IF;
    END LOOP;
END
$$;

-- The statements of all sessions of a replay, in the order in which they were made.
CREATE OR REPLACE FUNCTION swap_facts(r replays)
RETURNS TABLE (change text, thread_id uuid, key text, content text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    d         record;
    t         threads;
    v_fact    uuid;
    v_facts   uuid[];
    v_old     uuid[];
    v_kept    uuid[] := '{}';
    v_same    uuid;
    v_threads uuid[] := '{}';
    v_origins slice_origin[] := '{}';
    v_fresh   fact_input[] := '{}';
BEGIN
    SELECT array_agg(v.id), array_agg(DISTINCT v.fact_id) INTO v_old, v_facts
    FROM fact_versions AS v JOIN threads AS x ON x.id = v.thread_id
    WHERE x.app_name = r.app_name AND x.user_id = r.user_id AND (r.thread_id IS NULL OR x.id = r.thread_id)
      AND v.from_seq IS NOT NULL AND v.retracted_at IS NULL;
    PERFORM FROM facts WHERE id = ANY (v_facts) ORDER BY fact_type, key FOR UPDATE;
    FOR d IN
        SELECT x.thread_id, x.origin, x.facts[n] AS fact
        FROM replay_draws AS x CROSS JOIN LATERAL generate_subscripts(x.facts, 1) AS n
        WHERE x.replay_id = r.id
        ORDER BY x.facts[n].valid_from, x.from_seq, n
    LOOP
        SELECT v.id INTO v_same FROM fact_versions AS v
        WHERE v.id = ANY (v_old) AND v.id <> ALL (v_kept) AND v.thread_id = d.thread_id
          AND v.fact_type = (d.fact).fact_type AND v.key = (d.fact).key
          AND (v.value = (d.fact).value
               OR (d.fact).value IS NULL AND v.value IS NULL AND v.content = (d.fact).content)
          AND v.source_seqs = (d.fact).source_seqs AND v.confidence = (d.fact).confidence
        LIMIT 1;
        IF FOUND THEN
            v_kept := v_kept || v_same;
        ELSE
            v_threads := array_append(v_threads, d.thread_id);
            v_origins := array_append(v_origins, d.origin);
            v_fresh := array_append(v_fresh, d.fact);
        END IF;
    END LOOP;
    RETURN QUERY
        SELECT CASE WHEN v.id = ANY (v_kept) THEN 'kept' ELSE 'dropped' END, v.thread_id, v.key::text, v.content
        FROM fact_versions AS v WHERE v.id = ANY (v_old) ORDER BY v.key, v.valid_from, v.id;
    UPDATE fact_versions SET retracted_at = greatest(recording_time(), recorded_at)
    WHERE id = ANY (v_old) AND id <> ALL (v_kept);
    FOR v_fact IN SELECT DISTINCT v.fact_id FROM fact_versions AS v WHERE v.id = ANY (v_old) AND v.id <> ALL (v_kept)
    LOOP
        PERFORM rebuild_fact(v_fact);
    END LOOP;
    FOR n IN 1 .. cardinality(v_fresh) LOOP
        SELECT * INTO STRICT t FROM threads AS x WHERE x.id = v_threads[n];
        IF (SELECT o.fact_id FROM record_fact(t, v_origins[n], v_fresh[n]) AS o) IS NOT NULL THEN
            RETURN QUERY SELECT 'added', t.id, v_fresh[n].key, v_fresh[n].content;
        END IF;
    END LOOP;
END
$$;
