-- Erasure on request: of a session, events, a turn, a memory, a fact, or a user.
--
-- `data_catalogue` names every table and says which of its rows belong to a user, a session or an event; the functions
-- here follow it, so that a new table needs one more row there and nothing else. A session, the events of one session,
-- a memory and a fact are each erased in one transaction. A user is erased by `advance_erasure`, one session or a
-- bounded batch of rows per call; the row of `erasures` records that there is more to do, if a process dies in between.
--
-- What was erased does not come back: a job compares `threads.erasures` before it stores what it derived from a slice;
-- a tombstone keeps its event's id, so that a repeated append has no effect; `memory_tombstones` holds what replays and
-- late jobs must not extract again.

CREATE OR REPLACE FUNCTION fact_hash(p_fact_type text, p_key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(sha256(convert_to(p_fact_type || E'\n' || lower(p_key), 'UTF8')), 'hex');

-- Whether this key was erased after all the turns that state it now were recorded. A later turn may state it again.
-- Every function that stores a fact checks this.
CREATE OR REPLACE FUNCTION is_forgotten_fact(p_thread threads, p_fact fact_input) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (
        SELECT FROM memory_tombstones AS x
        WHERE x.app_name = p_thread.app_name AND x.user_id = p_thread.user_id
          AND x.fact_hash = fact_hash(p_fact.fact_type, coalesce(p_fact.normal_key, plain_key(p_fact.key)))
          AND NOT EXISTS (SELECT FROM events AS e
                          WHERE e.thread_id = p_thread.id AND e.sequence_num = ANY (p_fact.source_seqs)
                            AND e.created_at > x.forgotten_at))
$$;

-- Whether a memory of this kind from these turns was erased by itself: a summary or a slice by its range, an insight
-- by any of its source turns. Every function that derives a slice again checks this.
CREATE OR REPLACE FUNCTION is_forgotten_memory(
    p_thread_id uuid, p_memory_type text, p_from_seq bigint, p_upto_seq bigint, p_source_seqs bigint[])
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (
        SELECT FROM memory_tombstones AS x
        WHERE x.thread_id = p_thread_id AND x.memory_type = p_memory_type
          AND CASE p_memory_type WHEN 'semantic' THEN x.source_seqs && p_source_seqs
                                 ELSE x.from_seq <= p_upto_seq AND p_from_seq <= x.upto_seq END)
$$;

-- Whether a statement rests on any of some turns: it cites one; or it cites none, and its slice contains one; or its
-- slice contains one that states the value itself.
CREATE OR REPLACE FUNCTION rests_on(p_from_seq bigint, p_upto_seq bigint, p_source_seqs bigint[], p_value jsonb,
                         p_thread_id uuid, p_seqs bigint[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT p_source_seqs && p_seqs
        OR (EXISTS (SELECT FROM unnest(p_seqs) AS s WHERE s BETWEEN p_from_seq AND p_upto_seq)
            AND (p_source_seqs = '{}' OR EXISTS (
                SELECT FROM messages AS m
                WHERE m.thread_id = p_thread_id AND m.sequence_num = ANY (p_seqs)
                  AND m.sequence_num BETWEEN p_from_seq AND p_upto_seq
                  AND strpos(lower(m.content), lower(coalesce(p_value ->> 'text', p_value #>> '{}'))) > 0)))
$$;

-- What a job's result may contain after something of its thread was erased: ids.
CREATE OR REPLACE FUNCTION redact_result(p_result jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_strip_nulls(jsonb_build_object(
    'message', 'Something of this session was forgotten since',
    'summary', CASE WHEN p_result ? 'summary'
                    THEN jsonb_build_object('memory_id', p_result #> '{summary,memory_id}') END,
    'episodic', p_result -> 'episodic', 'insights', p_result -> 'insights', 'follow_up', p_result -> 'follow_up'));

-- The condition on a table's rows that a scope of `erasures` covers: $1 app, $2 user, $3 thread, $4 sequence numbers,
-- $5 target, $6 the time up to which it applies. A user's sessions that began later are new and stay, as does what is
-- derived again from a slice after one of its events was erased.
CREATE OR REPLACE FUNCTION erasure_condition(c data_catalogue, p_scope text) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT CASE p_scope
        WHEN 'user' THEN c.user_rows || CASE
            WHEN c.table_name = 'threads' THEN ' AND created_at <= $6'
            WHEN c.table_name = 'traces' THEN ' AND start_time <= $6'
            WHEN c.thread_rows LIKE 'thread_id%' AND c.user_rows IS NOT NULL
            THEN ' AND NOT EXISTS (SELECT FROM threads AS young WHERE young.id = thread_id AND young.created_at > $6)'
            ELSE '' END
        WHEN 'session' THEN replace(c.thread_rows, '$1', '$3')
        WHEN 'events' THEN replace(replace(c.event_rows, '$2', '$4'), '$1', '$3')
        -- What is searched and what was extracted; the event, its run and the state stay.
        WHEN 'turn' THEN CASE WHEN c.table_name IN (
                'facts', 'fact_versions', 'fact_aliases', 'instruction_proposals', 'replay_draws', 'consolidation_jobs',
                'consolidation_jobs_archive', 'model_replies', 'memories', 'memories_archive', 'messages')
            THEN replace(replace(c.event_rows, '$2', '$4'), '$1', '$3') END
        ELSE replace(c.target_rows, '$1', '$5') || ' AND app_name = $1 AND user_id = $2' END
$$;

-- For a user: the time of the request. Otherwise: the time of the erasure, under the session's lock.
CREATE OR REPLACE FUNCTION erasure_moment(e erasures) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ SELECT CASE e.scope WHEN 'user' THEN e.requested_at ELSE coalesce(e.finished_at, clock_timestamp()) END $$;

-- The rows that a request covers now: counts by table, and the first p_limit of each table without their vectors.
CREATE OR REPLACE FUNCTION erasure_rows(e erasures, p_limit integer DEFAULT 0)
RETURNS TABLE (table_name text, row_count bigint, sample jsonb[])
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    c       data_catalogue;
    v_where text;
BEGIN
    FOR c IN SELECT * FROM data_catalogue ORDER BY place LOOP
        v_where := erasure_condition(c, e.scope);
        CONTINUE WHEN v_where IS NULL;
        table_name := c.table_name;
        EXECUTE format('SELECT count(*) FROM %I WHERE %s', c.table_name, v_where) INTO row_count
        USING e.app_name, e.user_id, e.thread_id, e.sequence_nums, e.target_id, erasure_moment(e);
        CONTINUE WHEN row_count = 0;
        EXECUTE format($f$SELECT array_agg(to_jsonb(x) - 'embedding' - 'vectors' - 'search')
                          FROM (SELECT * FROM %I WHERE %s LIMIT $7) AS x$f$, c.table_name, v_where) INTO sample
        USING e.app_name, e.user_id, e.thread_id, e.sequence_nums, e.target_id, erasure_moment(e), p_limit;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Erases what a request for a session, events, a memory or a fact covers, in the order of the catalogue.
-- The caller holds the session's lock. Returns rows by table.
CREATE OR REPLACE FUNCTION erase_rows(e erasures) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    c        data_catalogue;
    v_where  text;
    v_rows   bigint;
    v_counts jsonb := '{}';
BEGIN
    PERFORM set_config('hippocampus.erasing', coalesce(e.thread_id::text, ''), true);
    -- What is deleted with its session is counted before.
    FOR c IN SELECT * FROM data_catalogue ORDER BY e.scope = 'session' AND NOT cascades, place LOOP
        v_where := erasure_condition(c, e.scope);
        CONTINUE WHEN v_where IS NULL;
        IF e.scope = 'session' AND c.cascades THEN
            EXECUTE format('SELECT count(*) FROM %I WHERE %s', c.table_name, v_where) INTO v_rows
            USING e.app_name, e.user_id, e.thread_id;
        ELSIF e.scope IN ('events', 'turn') AND c.event_change IS NOT NULL THEN
            EXECUTE format('UPDATE %I SET %s WHERE %s', c.table_name,
                           replace(replace(c.event_change, '$2', '$4'), '$1', '$3'), v_where)
            USING e.app_name, e.user_id, e.thread_id, e.sequence_nums;
            GET DIAGNOSTICS v_rows = ROW_COUNT;
        ELSE
            EXECUTE format('DELETE FROM %I WHERE %s', c.table_name, v_where)
            USING e.app_name, e.user_id, e.thread_id, e.sequence_nums, e.target_id, erasure_moment(e);
            GET DIAGNOSTICS v_rows = ROW_COUNT;
        END IF;
        IF v_rows > 0 THEN
            v_counts := v_counts || jsonb_build_object(c.table_name, v_rows);
        END IF;
    END LOOP;
    PERFORM set_config('hippocampus.erasing', '', true);
    RETURN v_counts;
END
$$;

-- Like erase_rows, for what was extracted from a thread: facts that lose a statement are rebuilt afterwards.
CREATE OR REPLACE FUNCTION erase_drawn(e erasures) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_facts  uuid[];
    v_fact   uuid;
    v_counts jsonb;
BEGIN
    PERFORM lock_user_memory(e.app_name, e.user_id);
    -- In the order in which jobs of the user's other threads lock them, and in which accesses lock memories.
    PERFORM FROM facts WHERE thread_id = e.thread_id ORDER BY fact_type, key FOR UPDATE;
    PERFORM FROM memories WHERE thread_id = e.thread_id ORDER BY id FOR UPDATE;
    SELECT array_agg(g.fact_id ORDER BY g.fact_type, g.key, g.fact_id) INTO v_facts
    FROM (SELECT f.id AS fact_id, f.fact_type, f.key, f.thread_id, f.from_seq, f.upto_seq, f.source_seqs, f.value
          FROM facts AS f
          UNION ALL
          SELECT v.fact_id, v.fact_type, v.key, v.thread_id, v.from_seq, v.upto_seq, v.source_seqs, v.value
          FROM fact_versions AS v) AS g
    WHERE g.thread_id = e.thread_id
      AND (e.scope = 'session'
           OR rests_on(g.from_seq, g.upto_seq, g.source_seqs, g.value, e.thread_id, e.sequence_nums));
    v_counts := erase_rows(e);
    -- From the remaining statements of each fact.
    FOREACH v_fact IN ARRAY coalesce(v_facts, '{}') LOOP
        PERFORM rebuild_fact(v_fact);
    END LOOP;
    IF v_facts IS NOT NULL THEN
        PERFORM enqueue_embedding_backfill();
    END IF;
    RETURN v_counts;
END
$$;

-- Erases a session with everything that was stored and extracted in it. delete_session keeps what was extracted.
-- Errors: HP001.
CREATE OR REPLACE FUNCTION erase_session(p_app_name text, p_user_id text, p_session_id text) RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e erasures;
BEGIN
    SELECT id INTO e.thread_id FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id;
    IF NOT FOUND THEN
        PERFORM refuse_missing_session(p_app_name, p_user_id, p_session_id);
    END IF;
    INSERT INTO erasures (scope, app_name, user_id, thread_id, finished_at)
    VALUES ('session', p_app_name, p_user_id, e.thread_id, clock_timestamp()) RETURNING * INTO e;
    PERFORM FROM threads WHERE id = e.thread_id FOR UPDATE;
    PERFORM note_erased_import(e);
    UPDATE erasures SET counts = erase_thread(e) WHERE id = e.id RETURNING * INTO e;
    RETURN e;
END
$$;

-- Erases one thread as a whole. Concurrent readers and writers wait, and find it gone.
CREATE OR REPLACE FUNCTION erase_thread(e erasures) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM FROM threads WHERE id = e.thread_id FOR UPDATE;
    UPDATE procrastinate_jobs SET status = 'cancelled'
    WHERE status = 'todo' AND id IN (
        SELECT procrastinate_job_id FROM consolidation_jobs WHERE thread_id = e.thread_id AND status = 'pending');
    e.scope := 'session';
    RETURN erase_drawn(e);
END
$$;

-- Erases events of a session: each leaves a tombstone with its number, id and time. State and snapshots become what
-- they would be without them; what rests on them is deleted, and slices that lose something are derived again from the
-- rest. Privileged: it changes history. Events that are erased already are skipped.
-- Errors: HP001; HP007 none or over 1,000 were named; HP046 one of them does not exist, and nothing was changed.
CREATE OR REPLACE FUNCTION erase_events(p_app_name text, p_user_id text, p_session_id text, p_seqs bigint[], p_event_ids text[])
RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e       erasures;
    v_wrong text;
BEGIN
    -- First of all: what is named must still be what is erased.
    SELECT id INTO e.thread_id FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id FOR NO KEY UPDATE;
    e.sequence_nums := event_numbers(p_app_name, p_user_id, p_session_id, p_seqs, p_event_ids);
    INSERT INTO erasures (scope, app_name, user_id, thread_id, sequence_nums, finished_at)
    VALUES ('events', p_app_name, p_user_id, e.thread_id, e.sequence_nums, clock_timestamp()) RETURNING * INTO e;

    PERFORM note_redraws(e);
    PERFORM note_erased_import(e);
    UPDATE erasures SET counts = erase_drawn(e) WHERE id = e.id RETURNING * INTO e;
    PERFORM enqueue_redraws();
    RETURN e;
END
$$;

-- The numbers of named events that are not erased, each once, in order. Errors: as erase_events.
CREATE OR REPLACE FUNCTION event_numbers(p_app_name text, p_user_id text, p_session_id text, p_seqs bigint[], p_event_ids text[])
RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    v_thread  uuid;
    v_found   bigint[];
    v_missing text;
BEGIN
    SELECT id INTO v_thread FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id;
    IF NOT FOUND THEN
        PERFORM refuse_missing_session(p_app_name, p_user_id, p_session_id);
    ELSIF coalesce(cardinality(p_seqs), 0) + coalesce(cardinality(p_event_ids), 0) NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'name 1 to 1000 events, by number or by id' USING ERRCODE = 'HP007';
    END IF;
    SELECT string_agg(w.name, ', ') INTO v_missing
    FROM (SELECT '#' || s FROM unnest(p_seqs) AS s
          WHERE NOT EXISTS (SELECT FROM events WHERE thread_id = v_thread AND sequence_num = s)
          UNION ALL
          SELECT quote_nullable(i) FROM unnest(p_event_ids) AS i
          WHERE NOT EXISTS (SELECT FROM events WHERE thread_id = v_thread AND id = i)
          LIMIT 10) AS w (name);
    IF v_missing IS NOT NULL THEN
        RAISE EXCEPTION 'session % has no event %', quote_literal(p_session_id), v_missing USING ERRCODE = 'HP046';
    END IF;
    SELECT coalesce(array_agg(sequence_num ORDER BY sequence_num), '{}') INTO v_found FROM events
    WHERE thread_id = v_thread AND erased_at IS NULL AND (sequence_num = ANY (p_seqs) OR id = ANY (p_event_ids));
    RETURN v_found;
END
$$;

-- Requests that slices be derived again, unless a run waits already.
CREATE OR REPLACE FUNCTION enqueue_redraws() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('slice_redraws of ' || current_schema(), 0));
    IF EXISTS (SELECT FROM slice_redraws)
       AND NOT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = 'redraw_slices' AND status = 'todo') THEN
        PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW(
            'deep_reflection', 'redraw_slices', 0, 'redraw_slices', NULL, '{}', NULL)::procrastinate_job_to_defer_v1]);
    END IF;
END
$$;

-- Records the slices that lose something by the erasure, to be derived again from the remaining turns.
CREATE OR REPLACE FUNCTION note_redraws(e erasures) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    WITH lost AS (
        SELECT CASE m.memory_type WHEN 'semantic' THEN 'deep' ELSE 'fast' END AS stage, m.from_seq, m.upto_seq
        FROM memories AS m
        WHERE m.thread_id = e.thread_id
          AND EXISTS (SELECT FROM unnest(e.sequence_nums) AS s WHERE s BETWEEN m.from_seq AND m.upto_seq)
        UNION
        SELECT 'facts', f.from_seq, f.upto_seq
        FROM (SELECT thread_id, from_seq, upto_seq, source_seqs, value FROM facts
              UNION ALL SELECT thread_id, from_seq, upto_seq, source_seqs, value FROM fact_versions) AS f
        WHERE f.thread_id = e.thread_id AND f.from_seq IS NOT NULL
          AND rests_on(f.from_seq, f.upto_seq, f.source_seqs, f.value, e.thread_id, e.sequence_nums)
    )
    INSERT INTO slice_redraws AS r (thread_id, stage, from_seq, upto_seq)
    SELECT e.thread_id, l.stage, l.from_seq, max(l.upto_seq) FROM lost AS l
    WHERE EXISTS (SELECT FROM messages AS m
                  WHERE m.thread_id = e.thread_id AND m.sequence_num BETWEEN l.from_seq AND l.upto_seq
                    AND m.sequence_num <> ALL (e.sequence_nums) AND m.content ~ '\S')
      AND NOT (l.stage = 'facts' AND EXISTS (
          SELECT FROM lost AS d WHERE d.stage = 'deep' AND d.from_seq <= l.from_seq AND d.upto_seq >= l.upto_seq))
    GROUP BY l.stage, l.from_seq
    ON CONFLICT (thread_id, stage, from_seq) DO UPDATE SET upto_seq = greatest(r.upto_seq, EXCLUDED.upto_seq);
END
$$;

-- Stores what was derived again from a slice, up to p_upto_seq, unless something of its thread was erased since it was
-- read. What was erased by itself is left out, as are statements that the same turns made already. Returns whether it
-- was stored; false also if the slice was derived, or its session deleted, in the meantime.
CREATE OR REPLACE FUNCTION store_redraw(
    p_redraw_id uuid, p_erasures integer, p_origin slice_origin, p_memories memory_input[], p_facts fact_input[],
    p_upto_seq bigint, p_backfill boolean)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    r slice_redraws;
    t threads;
    f fact_input;
BEGIN
    SELECT * INTO t FROM threads
    WHERE id = (SELECT thread_id FROM slice_redraws WHERE id = p_redraw_id) FOR NO KEY UPDATE;
    SELECT * INTO r FROM slice_redraws WHERE id = p_redraw_id FOR UPDATE;
    IF r.id IS NULL OR t.erasures IS DISTINCT FROM p_erasures THEN
        RETURN false;
    END IF;
    FOR f IN SELECT g.* FROM generate_subscripts(p_facts, 1) AS n (place) CROSS JOIN LATERAL unnest(p_facts[n.place:n.place]) AS g
             WHERE NOT EXISTS (
                 SELECT FROM drawn AS d
                 WHERE d.source IN ('fact', 'fact_version') AND d.thread_id = t.id AND d.source_seqs && g.source_seqs
                   AND d.app_name = t.app_name AND d.user_id = t.user_id AND d.kind = g.fact_type
                   AND d.content = g.content)
               AND NOT is_forgotten_fact(t, g)
             ORDER BY g.fact_type, g.key, n.place LOOP
        PERFORM record_fact(t, p_origin, f);
    END LOOP;
    INSERT INTO memories (thread_id, user_id, app_name, memory_type, content, embedding, embedding_model, metadata,
                          initial_score, from_seq, upto_seq, source_seqs, job_id, prompt_hash, model, occurred_at)
    SELECT t.id, t.user_id, t.app_name, m.memory_type, m.content, m.embedding,
           CASE WHEN m.embedding IS NOT NULL THEN p_origin.embedding_model END, m.metadata, m.initial_score,
           p_origin.from_seq, p_origin.upto_seq, m.source_seqs, p_origin.job_id, p_origin.prompt_hash, p_origin.model,
           m.occurred_at
    FROM unnest(p_memories) AS m
    WHERE NOT is_forgotten_memory(t.id, m.memory_type, p_origin.from_seq, p_origin.upto_seq, m.source_seqs)
      AND retired_memory(t, m, p_origin.from_seq, p_origin.embedding_model) IS NULL
    ON CONFLICT DO NOTHING;
    IF p_upto_seq < r.upto_seq THEN
        UPDATE slice_redraws SET from_seq = p_upto_seq + 1 WHERE id = r.id;
    ELSE
        DELETE FROM slice_redraws WHERE id = r.id;
    END IF;
    IF p_backfill THEN
        PERFORM enqueue_embedding_backfill();
    END IF;
    RETURN true;
END
$$;

-- Erases one turn from the memory: it is no longer found, and nothing is extracted from it. What was extracted is
-- erased as with erase_events; the event stays in its session, so that a repeated append does not bring the turn back.
-- Returns NULL if the user has no such turn.
CREATE OR REPLACE FUNCTION erase_turn(p_app_name text, p_user_id text, p_message_id uuid) RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e erasures;
BEGIN
    SELECT t.id INTO e.thread_id FROM threads AS t
    WHERE t.id = (SELECT m.thread_id FROM messages AS m
                  WHERE m.id = p_message_id AND m.app_name = p_app_name AND m.user_id = p_user_id)
    FOR NO KEY UPDATE;
    -- After the wait for the lock it may be gone.
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

-- Erases one memory, stored or archived, or one fact with all its versions, and leaves a tombstone so that it is not
-- extracted again from earlier turns. The turns themselves stay: see erase_events. Errors: HP046.
CREATE OR REPLACE FUNCTION erase_memory(p_app_name text, p_user_id text, p_id uuid) RETURNS erasures
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
    ON CONFLICT (id) DO UPDATE SET forgotten_at = clock_timestamp()
        WHERE memory_tombstones.app_name = EXCLUDED.app_name AND memory_tombstones.user_id = EXCLUDED.user_id;
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
CREATE OR REPLACE FUNCTION find_target(p_app_name text, p_user_id text, p_id uuid) RETURNS erasures
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

-- Requests the erasure of a user, and returns the request, or the one that is in progress.
CREATE OR REPLACE FUNCTION request_user_erasure(p_app_name text, p_user_id text) RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e erasures;
BEGIN
    IF coalesce(p_app_name, '') = '' OR coalesce(p_user_id, '') = '' THEN
        RAISE EXCEPTION 'name the app and the user to erase' USING ERRCODE = 'HP007';
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

-- One step of the erasure of a user: a whole session or, once none is left, at most p_rows rows that belong to none.
-- Returns the request; finished_at says whether that was all. Call it again, each time in a transaction of its own; any
-- process may, at any time, even after a crash. Locked rows are left for the next step. Errors: HP046.
CREATE OR REPLACE FUNCTION advance_erasure(p_id uuid, p_rows integer DEFAULT 1000) RETURNS erasures
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
            -- The condition twice: in a partitioned table, a row of another partition may have the same ctid.
            EXECUTE format('DELETE FROM %1$I WHERE ctid = ANY (ARRAY('
                           'SELECT ctid FROM %1$I WHERE %2$s LIMIT $7 FOR UPDATE SKIP LOCKED)) AND (%2$s)',
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

-- Records what is about to be erased of an imported session: the session, or what some of its events set in shared
-- states. The caller holds the session's lock.
CREATE OR REPLACE FUNCTION note_erased_import(e erasures) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads WHERE id = e.thread_id AND metadata ? 'import';
    IF NOT FOUND THEN
        RETURN;
    ELSIF e.scope = 'session' THEN
        INSERT INTO erased_imports (app_name, user_id, hash) VALUES (t.app_name, t.user_id, import_hash(t.session_id))
        ON CONFLICT (app_name, user_id, hash) DO UPDATE SET erased_at = EXCLUDED.erased_at;
        RETURN;
    END IF;
    INSERT INTO erased_imports (app_name, user_id, hash)
    SELECT t.app_name, CASE WHEN d.key LIKE 'user:%' THEN t.user_id END,
           import_hash(regexp_replace(d.key, '^(user|app):', ''), state_value(d.value))
    FROM events AS v CROSS JOIN LATERAL json_each(event_delta(v.actions)) AS d
    WHERE v.thread_id = e.thread_id AND v.sequence_num = ANY (e.sequence_nums) AND d.key ~ '^(user|app):'
    ON CONFLICT DO NOTHING;
END
$$;

-- Whether a session that exists elsewhere, or its user, was erased here after the session began there.
CREATE OR REPLACE FUNCTION is_erased_import(p_app_name text, p_user_id text, p_session_id text, p_created_at timestamptz)
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (SELECT FROM erased_imports AS x WHERE x.app_name = p_app_name AND x.user_id = p_user_id
                   AND x.hash = import_hash(p_session_id) AND x.erased_at >= p_created_at)
        OR EXISTS (SELECT FROM erasures AS e WHERE e.scope = 'user' AND e.app_name = p_app_name
                   AND e.user_id = p_user_id AND e.requested_at >= p_created_at)
$$;

-- A shared state that exists elsewhere, without what was erased here: values that an erased event set; all of it if the
-- user was erased, since keys do not record when they were set.
CREATE OR REPLACE FUNCTION without_erased(p_app_name text, p_user_id text, p_state jsonb) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(jsonb_object_agg(g.key, g.value), '{}') FROM jsonb_each(p_state) AS g
    WHERE NOT EXISTS (SELECT FROM erased_imports AS x WHERE x.app_name = p_app_name
                      AND x.user_id IS NOT DISTINCT FROM p_user_id AND x.hash = import_hash(g.key, g.value))
      AND NOT EXISTS (SELECT FROM erasures AS e WHERE e.scope = 'user' AND e.app_name = p_app_name
                      AND e.user_id = p_user_id)
$$;

-- Memories and facts of a user that exist although a tombstone records their erasure, as after an import; not what was
-- stored or stated again since. The next p_limit after p_after, by id.
CREATE OR REPLACE FUNCTION standing_though_forgotten(p_app_name text, p_user_id text, p_after uuid, p_limit integer)
RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT x.id FROM memory_tombstones AS x
    WHERE x.app_name = p_app_name AND x.user_id = p_user_id AND x.id > p_after AND (
        EXISTS (SELECT FROM memories AS m WHERE m.id = x.id AND m.app_name = p_app_name AND m.user_id = p_user_id
                AND m.created_at <= x.forgotten_at)
        OR EXISTS (SELECT FROM memories_archive AS m WHERE m.id = x.id AND m.app_name = p_app_name
                   AND m.user_id = p_user_id AND m.created_at <= x.forgotten_at)
        OR EXISTS (SELECT FROM facts AS f WHERE f.id = x.id AND f.app_name = p_app_name AND f.user_id = p_user_id
                   AND NOT EXISTS (SELECT FROM fact_versions AS v
                                   WHERE v.fact_id = f.id AND v.recorded_at > x.forgotten_at)))
    ORDER BY x.id LIMIT p_limit
$$;

-- Erases what a tombstone records as erased, as of then: later statements are kept. False: it is gone already.
CREATE OR REPLACE FUNCTION forget_as_of_tombstone(p_app_name text, p_user_id text, p_id uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_at timestamptz := (
        SELECT forgotten_at FROM memory_tombstones WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id);
BEGIN
    PERFORM erase_memory(p_app_name, p_user_id, p_id);
    UPDATE memory_tombstones SET forgotten_at = v_at
    WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id AND v_at IS NOT NULL;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'HP046' THEN
    RETURN false;
END
$$;

CREATE OR REPLACE FUNCTION import_hash(p_name text, p_value jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(sha256(convert_to(jsonb_build_array(p_name, p_value)::text, 'UTF8')), 'hex');

-- What an event set in the state, by full key; NULL: nothing. Escapes that JSON allows and PostgreSQL cannot read
-- become U+FFFD.
CREATE OR REPLACE FUNCTION event_delta(p_actions json) RETURNS json
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT
AS $$
DECLARE
    v_delta json;
BEGIN
    BEGIN
        v_delta := p_actions -> 'state_delta';
        PERFORM FROM json_each(v_delta);
    EXCEPTION WHEN untranslatable_character OR invalid_text_representation THEN
        v_delta := regexp_replace(p_actions::text, '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})',
                                  '\1\\ufffd', 'g')::json -> 'state_delta';
    END;
    RETURN CASE json_typeof(v_delta) WHEN 'object' THEN v_delta END;
END
$$;

-- A value of a delta as the state stores it.
CREATE OR REPLACE FUNCTION state_value(p_value json) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN json_typeof(p_value) = 'number' AND p_value::text ~ '(e\+|^-0\.0$)'
            THEN jsonb_build_object('$hippocampus', jsonb_build_array('float', p_value::text))
            ELSE p_value::jsonb END;

-- A state as it would be without some events of a thread. Each key that they set gets the value that the latest other
-- event set; if there is none, the one that the session was created with; else the key is removed.
-- p_scope: 'session' (keys without a prefix), 'user', 'app' (keys stored without their prefix), or 'snapshot' (keys as
-- they are written). p_upto_seq: of a snapshot. A user's keys are searched for in all of the user's threads.
CREATE OR REPLACE FUNCTION rebase_state(
    p_state jsonb, p_scope text, p_thread_id uuid, p_seqs bigint[], p_upto_seq bigint DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    k       record;
    v_last  record;
    v_name  text;
    v_wide  boolean := p_scope = 'user';
BEGIN
    FOR k IN
        SELECT d.key AS full_key, max(e.sequence_num) AS seq, max(e.created_at) AS at
        FROM events AS e CROSS JOIN LATERAL json_each(event_delta(e.actions)) AS d
        WHERE e.thread_id = p_thread_id AND e.sequence_num = ANY (p_seqs)
          AND (p_upto_seq IS NULL OR e.sequence_num <= p_upto_seq)
          AND CASE p_scope WHEN 'session' THEN d.key !~ '^(user|app|temp):' WHEN 'snapshot' THEN true
                           ELSE d.key LIKE p_scope || ':%' END
        GROUP BY d.key
    LOOP
        v_name := CASE WHEN p_scope IN ('user', 'app') THEN substr(k.full_key, length(p_scope) + 2) ELSE k.full_key END;
        CONTINUE WHEN NOT p_state ? v_name;
        SELECT e.thread_id, e.sequence_num, e.created_at, event_delta(e.actions) -> k.full_key AS value INTO v_last
        FROM events AS e
        WHERE (e.thread_id = p_thread_id
               OR (v_wide AND e.thread_id IN (
                   SELECT o.id FROM threads AS o JOIN threads AS t ON t.id = p_thread_id
                   WHERE o.app_name = t.app_name AND o.user_id = t.user_id)))
          AND NOT (e.thread_id = p_thread_id AND e.sequence_num = ANY (p_seqs)) AND e.erased_at IS NULL
          AND (p_upto_seq IS NULL OR e.sequence_num <= p_upto_seq)
          -- Before a delta is unpacked.
          AND strpos(e.actions::text, '"state_delta"') > 0 AND event_delta(e.actions) -> k.full_key IS NOT NULL
        ORDER BY e.created_at DESC, e.sequence_num DESC LIMIT 1;
        IF NOT FOUND THEN
            p_state := p_state - v_name;
            IF p_scope IN ('session', 'snapshot') THEN
                p_state := p_state || coalesce((
                    SELECT jsonb_build_object(v_name, i.session_state -> v_name) FROM initial_states AS i
                    WHERE i.thread_id = p_thread_id AND i.session_state ? v_name), '{}');
            END IF;
        ELSIF (v_last.created_at, v_last.sequence_num) < (k.at, k.seq) THEN
            p_state := jsonb_set(p_state, ARRAY[v_name], state_value(v_last.value));
        END IF;
    END LOOP;
    RETURN p_state;
END
$$;

-- Who else may erase is decided by GRANT.
REVOKE EXECUTE ON FUNCTION erase_events(text, text, text, bigint[], text[]), erase_session(text, text, text),
    erase_rows(erasures), erase_drawn(erasures), erase_thread(erasures) FROM PUBLIC;

-- Who else may erase is decided by GRANT.
REVOKE EXECUTE ON FUNCTION erase_turn(text, text, uuid), erase_memory(text, text, uuid), request_user_erasure(text, text),
    advance_erasure(uuid, integer) FROM PUBLIC;

REVOKE EXECUTE ON FUNCTION forget_as_of_tombstone(text, text, uuid) FROM PUBLIC;
