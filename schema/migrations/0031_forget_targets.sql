-- Forgetting by itself a turn, a memory or a fact, each in one transaction; and a user, step by step.

-- Forgets for the memory what one turn says: nothing finds it, and nothing is drawn from it any more. What was drawn goes,
-- as with erase_events; the event stays in its session, and keeps a repeated append from bringing the turn back.
-- Returns NULL where this user has no such turn.
CREATE FUNCTION erase_turn(p_app_name text, p_user_id text, p_message_id uuid) RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e erasures;
BEGIN
    SELECT t.id INTO e.thread_id FROM threads AS t
    WHERE t.id = (SELECT m.thread_id FROM messages AS m
                  WHERE m.id = p_message_id AND m.app_name = p_app_name AND m.user_id = p_user_id)
    FOR NO KEY UPDATE;
    -- After the wait for the lock: it may be gone by now.
    SELECT ARRAY[m.sequence_num] INTO e.sequence_nums FROM messages AS m
    WHERE m.id = p_message_id AND m.thread_id = e.thread_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE threads SET erasures = erasures + 1 WHERE id = e.thread_id;
    INSERT INTO erasures (scope, app_name, user_id, thread_id, sequence_nums, finished_at)
    VALUES ('turn', p_app_name, p_user_id, e.thread_id, e.sequence_nums, clock_timestamp()) RETURNING * INTO e;
    PERFORM note_redraws(e);
    UPDATE erasures SET counts = erase_drawn(e) WHERE id = e.id RETURNING * INTO e;
    PERFORM enqueue_redraws();
    RETURN e;
END
$$;

-- Forgets one memory, kept or archived, or one fact with all its versions, and leaves a tombstone so that nothing draws
-- it again from what was said until now. The turns themselves stay: see erase_events. Errors: HP046.
CREATE FUNCTION erase_memory(p_app_name text, p_user_id text, p_id uuid) RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e      erasures;
    v_jobs uuid[];
BEGIN
    e := find_target(p_app_name, p_user_id, p_id);
    UPDATE threads SET erasures = erasures + 1 WHERE id = e.thread_id;
    INSERT INTO erasures (scope, app_name, user_id, thread_id, target_id, finished_at)
    VALUES (e.scope, p_app_name, p_user_id, e.thread_id, p_id, clock_timestamp()) RETURNING * INTO e;
    PERFORM lock_user_memory(p_app_name, p_user_id);
    PERFORM FROM facts WHERE id = p_id FOR UPDATE;
    INSERT INTO memory_tombstones (id, app_name, user_id, memory_type, fact_hash, thread_id, from_seq, upto_seq,
                                   source_seqs)
    SELECT p_id, p_app_name, p_user_id, s.memory_type, s.hash, s.thread_id, s.from_seq, s.upto_seq, s.source_seqs
    FROM (SELECT memory_type, NULL AS hash, thread_id, from_seq, upto_seq, source_seqs FROM memories WHERE id = p_id
          UNION ALL
          SELECT memory_type, NULL, thread_id, from_seq, upto_seq, source_seqs FROM memories_archive WHERE id = p_id
          UNION ALL
          SELECT NULL, fact_hash(fact_type, normal_key), thread_id, from_seq, upto_seq, source_seqs FROM facts
          WHERE id = p_id) AS s
    ON CONFLICT (id) DO UPDATE SET forgotten_at = clock_timestamp();
    -- And each of its other keys, under the id of a statement that was made under it.
    INSERT INTO memory_tombstones (id, app_name, user_id, fact_hash, thread_id, from_seq, upto_seq, source_seqs)
    SELECT DISTINCT ON (v.normal_key) v.id, p_app_name, p_user_id, fact_hash(v.fact_type, v.normal_key), v.thread_id,
           v.from_seq, v.upto_seq, v.source_seqs
    FROM fact_versions AS v
    WHERE v.fact_id = p_id AND v.normal_key <> (SELECT f.normal_key FROM facts AS f WHERE f.id = p_id)
    ORDER BY v.normal_key, v.id
    ON CONFLICT (id) DO NOTHING;
    SELECT array_agg(s.job_id) INTO v_jobs
    FROM (SELECT job_id FROM memories WHERE id = p_id UNION SELECT job_id FROM memories_archive WHERE id = p_id
          UNION SELECT job_id FROM facts WHERE id = p_id UNION SELECT job_id FROM fact_versions WHERE fact_id = p_id) AS s;
    UPDATE consolidation_jobs SET result = redact_result(result), error = NULL, raw_reply = NULL WHERE id = ANY (v_jobs);
    UPDATE consolidation_jobs_archive SET result = redact_result(result), error = NULL, raw_reply = NULL
    WHERE id = ANY (v_jobs);
    UPDATE erasures SET counts = erase_rows(e) WHERE id = e.id RETURNING * INTO e;
    RETURN e;
END
$$;

-- A request, not stored, for a memory or a fact of a user. Errors: HP046.
CREATE FUNCTION find_target(p_app_name text, p_user_id text, p_id uuid) RETURNS erasures
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    e erasures;
BEGIN
    SELECT s.scope, s.thread_id INTO e.scope, e.thread_id
    FROM (SELECT 'memory' AS scope, id, app_name, user_id, thread_id FROM memories
          UNION ALL SELECT 'memory', id, app_name, user_id, thread_id FROM memories_archive
          UNION ALL SELECT 'fact', id, app_name, user_id, thread_id FROM facts) AS s
    WHERE s.id = p_id AND s.app_name = p_app_name AND s.user_id = p_user_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no memory and no fact % of app % and user %',
            p_id, quote_nullable(p_app_name), quote_nullable(p_user_id) USING ERRCODE = 'HP046';
    END IF;
    e.app_name := p_app_name;
    e.user_id := p_user_id;
    e.target_id := p_id;
    RETURN e;
END
$$;

-- Asks for a user to be forgotten, and returns the request; the one that is being worked off where there is one.
CREATE FUNCTION request_user_erasure(p_app_name text, p_user_id text) RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e erasures;
BEGIN
    IF coalesce(p_app_name, '') = '' OR coalesce(p_user_id, '') = '' THEN
        RAISE EXCEPTION 'name the app and the user to forget' USING ERRCODE = 'HP007';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws(' ', 'erasure of', current_schema(), p_app_name, p_user_id), 0));
    SELECT * INTO e FROM erasures
    WHERE app_name = p_app_name AND user_id = p_user_id AND scope = 'user' AND finished_at IS NULL;
    IF NOT FOUND THEN
        INSERT INTO erasures (scope, app_name, user_id) VALUES ('user', p_app_name, p_user_id) RETURNING * INTO e;
    END IF;
    RETURN e;
END
$$;

-- One step of forgetting a user: a session, whole; or, when none is left, at most p_rows rows that hang on none. Returns
-- the request; finished_at says whether that was all. Call it again, each time in a transaction of its own; anybody may,
-- at any time, after any crash. Rows that somebody holds are left for the next step. Errors: HP046.
CREATE FUNCTION advance_erasure(p_id uuid, p_rows integer DEFAULT 1000) RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e        erasures;
    step     erasures;
    c        data_catalogue;
    v_rows   bigint := 0;
    v_counts jsonb := '{}';
BEGIN
    SELECT * INTO e FROM erasures WHERE id = p_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no erasure %', p_id USING ERRCODE = 'HP046';
    ELSIF e.finished_at IS NOT NULL THEN
        RETURN e;
    END IF;
    step := e;
    SELECT id INTO step.thread_id FROM threads
    WHERE app_name = e.app_name AND user_id = e.user_id AND created_at <= e.requested_at ORDER BY id LIMIT 1;
    IF FOUND THEN
        v_counts := erase_thread(step);
    ELSE
        FOR c IN SELECT * FROM data_catalogue WHERE user_rows IS NOT NULL AND NOT cascades AND table_name <> 'threads'
                 ORDER BY place LOOP
            EXECUTE format('DELETE FROM %1$I WHERE ctid = ANY (ARRAY('
                           'SELECT ctid FROM %1$I WHERE %2$s LIMIT $7 FOR UPDATE SKIP LOCKED))',
                           c.table_name, erasure_condition(c, 'user'))
            USING e.app_name, e.user_id, e.thread_id, e.sequence_nums, e.target_id, erasure_moment(e), p_rows;
            GET DIAGNOSTICS v_rows = ROW_COUNT;
            IF v_rows > 0 THEN
                v_counts := jsonb_build_object(c.table_name, v_rows);
                EXIT;
            END IF;
        END LOOP;
        IF v_rows = 0 AND NOT EXISTS (SELECT FROM erasure_rows(e)) THEN
            e.finished_at := clock_timestamp();
        END IF;
    END IF;
    UPDATE erasures SET
        finished_at = e.finished_at,
        counts = (SELECT coalesce(jsonb_object_agg(s.key, s.rows), '{}')
                  FROM (SELECT j.key, sum(j.value::bigint) AS rows
                        FROM (SELECT * FROM jsonb_each_text(e.counts) UNION ALL SELECT * FROM jsonb_each_text(v_counts)) AS j
                        GROUP BY j.key) AS s)
    WHERE id = e.id RETURNING * INTO e;
    RETURN e;
END
$$;

-- Whoever may erase is said by a GRANT; the owner may.
REVOKE EXECUTE ON FUNCTION erase_turn(text, text, uuid), erase_memory(text, text, uuid), request_user_erasure(text, text),
    advance_erasure(uuid, integer) FROM PUBLIC;
