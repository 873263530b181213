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

-- The cosine similarity of two vectors of one model; NULL for those of two models, which may differ in their dimensions,
-- and for one without a direction.
CREATE OR REPLACE FUNCTION model_similarity(p_one vector, p_one_model text, p_other vector, p_other_model text)
RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_one_model = p_other_model AND vector_dims(p_one) = vector_dims(p_other)
            THEN 1 - nullif(p_one <=> p_other, 'NaN') END;

-- Raises HP049 if a vector of a model has other dimensions than one that is stored.
CREATE OR REPLACE FUNCTION check_dimensions(p_model text, p_given integer, p_stored integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_given <> p_stored THEN
        RAISE EXCEPTION 'a vector of the model % has % dimensions, those stored of this model have %: give models of'
            ' different dimensions different names, or remove the stored vectors', quote_literal(p_model), p_given, p_stored
            USING ERRCODE = 'HP049';
    END IF;
END
$$;

-- Keeps the copies of vectors that searches read: see `memory_vectors`. Errors: HP049.
CREATE OR REPLACE FUNCTION index_vector() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_size integer := vector_dims(NEW.embedding);
BEGIN
    IF TG_TABLE_NAME = 'messages' THEN
        IF NEW.embedding IS NULL THEN
            DELETE FROM message_vectors WHERE id = NEW.id;
        ELSE
            PERFORM check_dimensions(v.model, v_size, vector_dims(v.embedding)) FROM message_vectors AS v
            WHERE v.app_name = NEW.app_name AND v.user_id = NEW.user_id AND v.model = NEW.embedding_model LIMIT 1;
            INSERT INTO message_vectors AS v (id, app_name, user_id, model, embedding)
            VALUES (NEW.id, NEW.app_name, NEW.user_id, NEW.embedding_model, l2_normalize(NEW.embedding)::halfvec)
            ON CONFLICT (id) DO UPDATE SET app_name = EXCLUDED.app_name, user_id = EXCLUDED.user_id,
                                           model = EXCLUDED.model, embedding = EXCLUDED.embedding;
        END IF;
    ELSIF TG_TABLE_NAME = 'memories' THEN
        IF NEW.embedding IS NULL THEN
            DELETE FROM memory_vectors WHERE id = NEW.id;
        ELSE
            PERFORM check_dimensions(v.model, v_size, vector_dims(v.embedding)) FROM memory_vectors AS v
            WHERE v.app_name = NEW.app_name AND v.user_id = NEW.user_id AND v.model = NEW.embedding_model LIMIT 1;
            INSERT INTO memory_vectors AS v (id, app_name, user_id, model, embedding)
            VALUES (NEW.id, NEW.app_name, NEW.user_id, NEW.embedding_model, l2_normalize(NEW.embedding)::halfvec)
            ON CONFLICT (id) DO UPDATE SET app_name = EXCLUDED.app_name, user_id = EXCLUDED.user_id,
                                           model = EXCLUDED.model, embedding = EXCLUDED.embedding;
        END IF;
    ELSIF NEW.embedding IS NULL THEN
        DELETE FROM fact_vectors WHERE id = NEW.id;
    ELSE
        PERFORM check_dimensions(v.model, v_size, vector_dims(v.embedding)) FROM fact_vectors AS v
        WHERE v.app_name = NEW.app_name AND v.user_id = NEW.user_id AND v.model = NEW.embedding_model LIMIT 1;
        INSERT INTO fact_vectors AS v (id, app_name, user_id, model, embedding)
        VALUES (NEW.id, NEW.app_name, NEW.user_id, NEW.embedding_model, l2_normalize(NEW.embedding)::halfvec)
        ON CONFLICT (id) DO UPDATE SET app_name = EXCLUDED.app_name, user_id = EXCLUDED.user_id,
                                       model = EXCLUDED.model, embedding = EXCLUDED.embedding;
    END IF;
    RETURN NULL;
END
$$;

-- Copies at most p_limit vectors that were stored before `index_vector` was there, and returns how many; 0 when all are
-- copied. Rows that are locked are left for the next pass over their table.
CREATE OR REPLACE FUNCTION fill_vectors(p_limit integer DEFAULT 500) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_fill   vector_fill;
    v_copies text;
    v_last   uuid;
    v_count  integer;
    v_rest   boolean;
BEGIN
    LOOP
        SELECT * INTO v_fill FROM vector_fill ORDER BY table_name LIMIT 1 FOR UPDATE;
        IF NOT FOUND THEN
            RETURN 0;
        END IF;
        v_copies := CASE v_fill.table_name WHEN 'memories' THEN 'memory_vectors' WHEN 'facts' THEN 'fact_vectors'
                                           ELSE 'message_vectors' END;
        EXECUTE format($f$
            WITH locked AS MATERIALIZED (
                SELECT m.id, m.app_name, m.user_id, m.embedding_model, m.embedding FROM %1$I AS m
                WHERE m.id > $1 AND m.embedding IS NOT NULL AND NOT EXISTS (SELECT FROM %2$I AS v WHERE v.id = m.id)
                ORDER BY m.id LIMIT $2 FOR SHARE OF m SKIP LOCKED
            ), copied AS (
                INSERT INTO %2$I (id, app_name, user_id, model, embedding)
                SELECT l.id, l.app_name, l.user_id, l.embedding_model, l2_normalize(l.embedding)::halfvec FROM locked AS l
                ON CONFLICT (id) DO NOTHING
            )
            SELECT (SELECT l.id FROM locked AS l ORDER BY l.id DESC LIMIT 1), (SELECT count(*) FROM locked)$f$,
            v_fill.table_name, v_copies) INTO v_last, v_count USING v_fill.after_id, p_limit;
        IF v_count > 0 THEN
            UPDATE vector_fill SET after_id = v_last WHERE table_name = v_fill.table_name;
            RETURN v_count;
        END IF;
        EXECUTE format('SELECT EXISTS (SELECT FROM %I AS m WHERE m.embedding IS NOT NULL
                                       AND NOT EXISTS (SELECT FROM %I AS v WHERE v.id = m.id))',
                       v_fill.table_name, v_copies) INTO v_rest;
        IF v_rest THEN
            UPDATE vector_fill SET after_id = '00000000-0000-0000-0000-000000000000'
            WHERE table_name = v_fill.table_name;
            RETURN 0;
        END IF;
        DELETE FROM vector_fill WHERE table_name = v_fill.table_name;
    END LOOP;
END
$$;

-- The statements that bring the HNSW indexes up to date, in their order: one index for each model of which a scope has
-- more than p_rows vectors, and none that is invalid or whose model is gone. They run one by one outside of a
-- transaction. A scan of 5,000 vectors takes some 10 ms; an index costs every vector that is stored.
CREATE OR REPLACE FUNCTION vector_index_changes(p_rows integer DEFAULT 5000) RETURNS TABLE (statement text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    v_table text;
    v_full  boolean;
BEGIN
    FOREACH v_table IN ARRAY ARRAY['memory_vectors', 'message_vectors', 'knowledge_vectors'] LOOP
        RETURN QUERY EXECUTE format($f$
            SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %%I.%%I', current_schema(), c.relname)
            FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
            WHERE i.indrelid = %1$L::regclass AND starts_with(c.relname, %1$L || '_hnsw_')
              AND (NOT i.indisvalid OR NOT EXISTS (
                      SELECT FROM %1$I AS v WHERE c.relname = vector_index_name(%1$L, v.model, vector_dims(v.embedding))))
            $f$, v_table);
        EXECUTE format('SELECT EXISTS (SELECT FROM %I OFFSET $1)', v_table) INTO v_full USING p_rows;
        CONTINUE WHEN NOT v_full;
        RETURN QUERY EXECUTE format($f$
            SELECT format('CREATE INDEX CONCURRENTLY IF NOT EXISTS %%1$I ON %%2$I.%1$I USING hnsw'
                          ' ((embedding::halfvec(%%3$s)) halfvec_ip_ops) WHERE model = %%4$L AND vector_dims(embedding) = %%3$s',
                          n.name, current_schema(), d.size, g.model)
            FROM (SELECT DISTINCT s.model FROM (
                      SELECT v.model FROM %1$I AS v GROUP BY %2$s, v.model HAVING count(*) > $1) AS s) AS g
            CROSS JOIN LATERAL (SELECT vector_dims(v.embedding) AS size FROM %1$I AS v
                                WHERE v.model = g.model LIMIT 1) AS d
            CROSS JOIN LATERAL (SELECT vector_index_name(%1$L, g.model, d.size) AS name) AS n
            WHERE d.size <= 4000 AND NOT EXISTS (
                SELECT FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
                WHERE i.indrelid = %1$L::regclass AND c.relname = n.name AND i.indisvalid)
            $f$, v_table, CASE v_table WHEN 'knowledge_vectors' THEN 'v.corpus_id' ELSE 'v.app_name, v.user_id' END)
        USING p_rows;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION vector_index_name(p_table text, p_model text, p_dimensions integer) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_table || '_hnsw_' || left(md5(p_model), 12) || '_' || p_dimensions;
