-- Slices of which something was erased, drawn anew from what is left of them.

-- Asks for slices to be drawn anew, unless a run waits already.
CREATE FUNCTION enqueue_redraws() RETURNS void
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

-- Notes the slices that lose something by what is about to be erased, to be drawn anew from the turns that are left.
CREATE FUNCTION note_redraws(e erasures) RETURNS void
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

-- Stores what was drawn anew from a slice, up to p_upto_seq, unless something of its thread was erased since it was
-- read. What was forgotten by itself is left out, as are statements that the same turns made already. Returns whether
-- it was stored; false also where the slice was drawn, or its session deleted, meanwhile.
CREATE FUNCTION store_redraw(
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
    FOR f IN SELECT g.* FROM unnest(p_facts) AS g
             WHERE NOT EXISTS (
                 SELECT FROM drawn AS d
                 WHERE d.source IN ('fact', 'fact_version') AND d.thread_id = t.id AND d.source_seqs && g.source_seqs
                   AND d.app_name = t.app_name AND d.user_id = t.user_id AND d.kind = g.fact_type
                   AND d.content = g.content)
               AND NOT is_forgotten_fact(t, g)
             ORDER BY g.fact_type, g.key LOOP
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
