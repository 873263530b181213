-- Embeddings that are made later: for texts without a vector, and for vectors of another model than the current one.

-- Requests vectors for texts that were stored without, unless a run of the backfill waits already.
CREATE OR REPLACE FUNCTION enqueue_embedding_backfill() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    -- One at a time, so that two jobs that end concurrently do not both enqueue a run.
    PERFORM pg_advisory_xact_lock(hashtextextended('embedding_backfill of ' || current_schema(), 0));
    IF NOT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = 'embedding_backfill' AND status = 'todo') THEN
        PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW(
            'embedding', 'embedding_backfill', 0, 'embedding_backfill', NULL, '{}', NULL)::procrastinate_job_to_defer_v1]);
    END IF;
END
$$;

-- Sets the model of new vectors. The last process to start decides.
CREATE OR REPLACE FUNCTION choose_embedding_model(p_model text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    INSERT INTO embedding_target AS t (model) VALUES (p_model)
    ON CONFLICT (is_only) DO UPDATE SET model = EXCLUDED.model, chosen_at = EXCLUDED.chosen_at
    WHERE t.model <> EXCLUDED.model
$$;

-- Whether this model refused this text of this row.
CREATE OR REPLACE FUNCTION is_refused(p_source text, p_id uuid, p_model text, p_content text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (SELECT FROM embedding_refusals AS r
                   WHERE r.source = p_source AND r.id = p_id AND r.model = p_model AND r.content_md5 = md5(p_content))
$$;

-- At most p_limit texts that wait for a vector of this model: first those without any, memories and facts before
-- messages; then, if the model is the chosen one, those with a vector of another model. Messages that fast_replay has
-- not reached are left to it; blank ones are skipped.
CREATE OR REPLACE FUNCTION list_vectorless(p_model text, p_limit integer)
RETURNS TABLE (source text, id uuid, content text, former_model text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    v_moves boolean := coalesce((SELECT t.model FROM embedding_target AS t), p_model) = p_model;
BEGIN
    RETURN QUERY
        (SELECT 'memories', m.id, m.content, m.embedding_model FROM memories AS m
         WHERE m.embedding IS NULL AND NOT is_refused('memories', m.id, p_model, m.content) ORDER BY m.id LIMIT p_limit)
        UNION ALL
        (SELECT 'facts', f.id, f.content, f.embedding_model FROM facts AS f
         WHERE f.embedding IS NULL AND NOT is_refused('facts', f.id, p_model, f.content) ORDER BY f.id LIMIT p_limit)
        UNION ALL
        (SELECT 'messages', m.id, m.content, m.embedding_model FROM messages AS m JOIN threads AS t ON t.id = m.thread_id
         WHERE m.embedding IS NULL AND m.sequence_num <= t.fast_upto_seq AND m.content ~ '\S'
           AND NOT is_refused('messages', m.id, p_model, m.content) ORDER BY m.id LIMIT p_limit)
        LIMIT p_limit;
    IF FOUND OR NOT v_moves THEN
        RETURN;
    END IF;
    RETURN QUERY
        (SELECT 'memories', m.id, m.content, m.embedding_model FROM memories AS m
         WHERE m.embedding_model < p_model AND NOT is_refused('memories', m.id, p_model, m.content) LIMIT p_limit)
        UNION ALL
        (SELECT 'memories', m.id, m.content, m.embedding_model FROM memories AS m
         WHERE m.embedding_model > p_model AND NOT is_refused('memories', m.id, p_model, m.content) LIMIT p_limit)
        UNION ALL
        (SELECT 'facts', f.id, f.content, f.embedding_model FROM facts AS f
         WHERE f.embedding_model < p_model AND NOT is_refused('facts', f.id, p_model, f.content) LIMIT p_limit)
        UNION ALL
        (SELECT 'facts', f.id, f.content, f.embedding_model FROM facts AS f
         WHERE f.embedding_model > p_model AND NOT is_refused('facts', f.id, p_model, f.content) LIMIT p_limit)
        UNION ALL
        (SELECT 'messages', m.id, m.content, m.embedding_model FROM messages AS m
         WHERE m.embedding_model < p_model AND NOT is_refused('messages', m.id, p_model, m.content) LIMIT p_limit)
        UNION ALL
        (SELECT 'messages', m.id, m.content, m.embedding_model FROM messages AS m
         WHERE m.embedding_model > p_model AND NOT is_refused('messages', m.id, p_model, m.content) LIMIT p_limit)
        LIMIT p_limit;
END
$$;

-- Records texts that a model refused. p_rows: as they were read; their vectors are ignored.
CREATE OR REPLACE FUNCTION refuse_texts(p_source text, p_rows vector_input[], p_model text, p_error_codes text[]) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    INSERT INTO embedding_refusals AS r (source, id, model, content_md5, error_code)
    SELECT p_source, g.id, p_model, md5(g.content), g.error_code
    FROM unnest(p_rows, p_error_codes) AS g (id, content, former_model, embedding, error_code)
    ORDER BY g.id
    ON CONFLICT (source, id, model) DO UPDATE SET
        content_md5 = EXCLUDED.content_md5, error_code = EXCLUDED.error_code, refused_at = EXCLUDED.refused_at
$$;

-- Deletes at most p_limit refusals of rows that are gone, or whose text has changed.
CREATE OR REPLACE FUNCTION prune_refusals(p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    WITH gone AS (
        SELECT r.source, r.id, r.model FROM embedding_refusals AS r
        WHERE NOT EXISTS (
            SELECT FROM memories AS m WHERE r.source = 'memories' AND m.id = r.id AND md5(m.content) = r.content_md5
            UNION ALL
            SELECT FROM facts AS f WHERE r.source = 'facts' AND f.id = r.id AND md5(f.content) = r.content_md5
            UNION ALL
            SELECT FROM messages AS m WHERE r.source = 'messages' AND m.id = r.id AND md5(m.content) = r.content_md5)
        ORDER BY r.source, r.id, r.model LIMIT p_limit
        FOR UPDATE OF r SKIP LOCKED
    ), pruned AS (
        DELETE FROM embedding_refusals AS r USING gone AS g
        WHERE r.source = g.source AND r.id = g.id AND r.model = g.model RETURNING 1
    )
    SELECT count(*)::integer FROM pruned
$$;
