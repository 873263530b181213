-- Search: one statement over memories, facts and messages, and what it means for a row to match. Context windows.

-- hnsw's settings exist once the library is loaded; the functions below set them.
DO $$ BEGIN PERFORM vector_dims('[1]'::vector); END $$;

-- How much each part of a match counts. The defaults were tuned on conversations; see docs/search.md.
CREATE TYPE search_weights AS (
    bm25               double precision,   -- the row's own words
    context_bm25       double precision,   -- its words and, fading, those of the turns around it
    similarity         double precision,   -- cosine similarity of the vectors
    context_similarity double precision,   -- the same over the turns around it
    author             double precision,   -- the query names the one who said it
    recency            double precision,   -- 1 now, a half for each 30 days
    retention          double precision    -- memories: strength; facts: confidence; messages: 1
);

CREATE FUNCTION default_search_weights() RETURNS search_weights
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$ SELECT ROW(0.3, 1.0, 0.6, 0.2, 0.3, 0.05, 0.1)::search_weights $$;

-- The terms of a query: at most 128, so that one query is never a workload.
CREATE FUNCTION query_terms(p_query text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$ SELECT (tsvector_to_array(search_document(left(p_query, 4000))))[1:128] $$;

-- Matches a row that holds any of the terms.
CREATE FUNCTION any_term(p_terms text[]) RETURNS tsquery
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(string_agg('''' || replace(replace(term, '\', '\\'), '''', '''''') || '''', '|'), '')::tsquery
    FROM unnest(p_terms) AS term
$$;

-- How often the query's one term stands in the document: 1 to 64. ts_rank of one term sums 1, 1/4, 1/9, … over its
-- places, over a constant; that sum is looked up here. Unnesting the document would cost 0.5 us for each of its terms.
CREATE FUNCTION term_frequency(p_document tsvector, p_query tsquery) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 1 + width_bucket(ts_rank('{1,1,1,1}', p_document, p_query) * 1.64493406685, ARRAY[
    1.125, 1.30556, 1.39236, 1.44361, 1.4775, 1.50159, 1.51961, 1.5336, 1.54477, 1.5539, 1.5615, 1.56794, 1.57344,
    1.57822, 1.58239, 1.58608, 1.58935, 1.59228, 1.59491, 1.5973, 1.59946, 1.60144, 1.60326, 1.60492, 1.60646,
    1.60789, 1.60921, 1.61044, 1.6116, 1.61267, 1.61368, 1.61463, 1.61552, 1.61636, 1.61715, 1.6179, 1.61861,
    1.61929, 1.61993, 1.62054, 1.62112, 1.62168, 1.6222, 1.62271, 1.62319, 1.62366, 1.6241, 1.62452, 1.62493,
    1.62532, 1.6257, 1.62607, 1.62641, 1.62675, 1.62708, 1.62739, 1.62769, 1.62798, 1.62827, 1.62854, 1.6288,
    1.62906, 1.62931]::float8[]);

-- A query's words between blanks, for whole-word comparison with the names of authors.
CREATE FUNCTION plain_words(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$ SELECT ' ' || lower(regexp_replace(left(p_text, 4000), '[^[:alnum:]]+', ' ', 'g')) || ' ' $$;

-- Counts an access of each of these memories once, however often it is named. Ordered, so that two calls cannot
-- wait for each other. Returns how many rows there were.
CREATE FUNCTION record_memory_access(p_ids uuid[]) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    WITH locked AS MATERIALIZED (
        SELECT id FROM memories WHERE id = ANY (p_ids) ORDER BY id FOR NO KEY UPDATE
    ), touched AS (
        UPDATE memories AS m SET access_count = least(m.access_count, 2147483646) + 1, last_accessed_at = engine_now()
        FROM locked WHERE m.id = locked.id
        RETURNING 1
    )
    SELECT count(*)::integer FROM touched
$$;

-- The memories of a scope whose vectors are nearest, by the index: the way for scopes of many thousands.
CREATE FUNCTION nearest_memories(
    p_app_name text, p_user_id text, p_embedding vector(1536), p_embedding_model text, p_limit integer,
    p_memory_types text[] DEFAULT NULL, p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL,
    p_metadata jsonb DEFAULT NULL)
RETURNS TABLE (id uuid, similarity double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET hnsw.iterative_scan = 'relaxed_order' SET hnsw.ef_search = 200 SET hnsw.max_scan_tuples = 40000
SET plan_cache_mode = force_custom_plan SET jit = off SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT m.id, 1 - (m.embedding <=> p_embedding) FROM memories AS m
        WHERE m.embedding_model = p_embedding_model AND m.app_name = p_app_name AND m.user_id = p_user_id
          AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
          AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
          AND (p_metadata IS NULL OR m.metadata @> p_metadata)
        ORDER BY m.embedding <=> p_embedding LIMIT p_limit;
END
$$;

-- The memories of a giant scope that are worth scoring: those that hold the query's rare terms, those whose vectors
-- are nearest, the newest. `seen` holds, for each of the queries of one term, in how many rows of the scope it
-- stands: counted up to 4,000, beyond that from a sample of the newest 1,000.
CREATE FUNCTION memory_candidates(
    p_app_name text, p_user_id text, p_queries tsquery[], p_embedding vector(1536), p_embedding_model text,
    p_memory_types text[], p_since timestamptz, p_until timestamptz, p_metadata jsonb,
    OUT ids uuid[], OUT seen double precision[], OUT total double precision, OUT mean_length double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    c_rows     constant integer := 2000;
    v_rare     tsquery;
    v_rows     double precision := 0;
    v_sampled  integer;
    v_in       double precision[];
    v_term     record;
BEGIN
    SELECT count(*) INTO total FROM memories AS m
    WHERE m.app_name = p_app_name AND m.user_id = p_user_id
      AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
      AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
      AND (p_metadata IS NULL OR m.metadata @> p_metadata);
    WITH sample AS MATERIALIZED (
        SELECT m.search FROM memories AS m
        WHERE m.app_name = p_app_name AND m.user_id = p_user_id
          AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
          AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
          AND (p_metadata IS NULL OR m.metadata @> p_metadata)
        ORDER BY m.created_at DESC LIMIT 1000
    )
    SELECT (SELECT count(*) FROM sample), (SELECT avg(length(s.search)) FROM sample AS s),
           (SELECT array_agg((SELECT count(*) FROM sample AS s WHERE s.search @@ q.query) ORDER BY q.place)
            FROM unnest(p_queries) WITH ORDINALITY AS q (query, place))
    INTO v_sampled, mean_length, v_in;

    seen := '{}';
    FOR i IN 1 .. coalesce(cardinality(p_queries), 0) LOOP
        seen[i] := v_in[i] * total / greatest(v_sampled, 1);
        IF seen[i] < 2 * c_rows THEN
            seen[i] := (SELECT greatest(count(*), 1) FROM (
                SELECT FROM memories AS m
                WHERE m.search @@ p_queries[i] AND m.app_name = p_app_name AND m.user_id = p_user_id
                LIMIT 2 * c_rows) AS counted);
        END IF;
    END LOOP;
    FOR v_term IN SELECT u.query, u.rows FROM unnest(p_queries, seen) AS u (query, rows) ORDER BY u.rows LOOP
        EXIT WHEN v_rows > 0 AND v_rows + v_term.rows > c_rows;
        v_rare := coalesce(v_rare || v_term.query, v_term.query);
        v_rows := v_rows + v_term.rows;
    END LOOP;

    SELECT array_agg(DISTINCT worth.id) INTO ids FROM (
        (SELECT m.id FROM memories AS m
         WHERE m.search @@ v_rare AND m.app_name = p_app_name AND m.user_id = p_user_id
           AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
           AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
           AND (p_metadata IS NULL OR m.metadata @> p_metadata)
         LIMIT c_rows)
        UNION ALL
        (SELECT n.id FROM nearest_memories(p_app_name, p_user_id, p_embedding, p_embedding_model, 200,
                                           p_memory_types, p_since, p_until, p_metadata) AS n
         WHERE p_embedding IS NOT NULL)
        UNION ALL
        (SELECT m.id FROM memories AS m
         WHERE m.app_name = p_app_name AND m.user_id = p_user_id
           AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
           AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
           AND (p_metadata IS NULL OR m.metadata @> p_metadata)
         ORDER BY m.created_at DESC LIMIT 100)) AS worth;
END
$$;

-- What one user of one app said and what was learned from it, the best match first.
--
-- BM25 is exact: document frequencies, number and mean length of the rows are counted over the very rows that may
-- match. The parts are normalised among them (text by the best row, similarity from the worst to the best), weighted
-- and summed. A row without a vector of this model is judged by its text alone. Over more than 5,000 memories only
-- `memory_candidates` are scored.
--
-- p_sources: any of 'memory', 'fact', 'message'. p_messages: 'recent' are those that fast_replay has not yet reached,
-- 'all' every turn. p_session_id, p_since, p_until (exclusive), p_metadata, p_memory_types narrow the rows; facts have
-- no metadata, and only memories have a memory type.
-- relevance does not depend on the other rows: the cosine similarity, or the part of the query's words (by their
-- weight) that the row holds, whichever is greater. total counts all rows that match.
-- Errors: HP007 bad input, HP001 unknown session.
CREATE FUNCTION search_memory(
    p_app_name text, p_user_id text, p_query text,
    p_embedding vector(1536) DEFAULT NULL, p_embedding_model text DEFAULT NULL, p_limit integer DEFAULT 10,
    p_sources text[] DEFAULT '{memory,fact,message}', p_messages text DEFAULT 'recent',
    p_memory_types text[] DEFAULT NULL, p_session_id text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL, p_metadata jsonb DEFAULT NULL,
    p_min_relevance double precision DEFAULT 0, p_weights search_weights DEFAULT NULL)
RETURNS TABLE (
    source text, id uuid, kind text, content text, metadata jsonb, score double precision, relevance double precision,
    bm25 double precision, context_bm25 double precision, similarity double precision,
    context_similarity double precision, author_match boolean, recency double precision, retention double precision,
    text_rank bigint, vector_rank bigint, matched_terms text[], thread_id uuid, session_id text,
    from_seq bigint, upto_seq bigint, source_seqs bigint[], occurred_at timestamptz, total bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET jit = off SET work_mem = '32MB'
AS $$
#variable_conflict use_column
DECLARE
    c_exact constant integer := 5000;
    v_terms    text[] := query_terms(p_query);
    v_any      tsquery := any_term(v_terms);
    v_queries  tsquery[] := (SELECT array_agg(any_term(ARRAY[term]) ORDER BY place)
                             FROM unnest(v_terms) WITH ORDINALITY AS t (term, place));
    v_words    text := plain_words(p_query);
    v_now      timestamptz := engine_now();
    v_policy   app_policies := app_policy(p_app_name);
    w          search_weights := coalesce(p_weights, default_search_weights());
    v_memories boolean := 'memory' = ANY (p_sources);
    v_facts    boolean := 'fact' = ANY (p_sources) AND p_memory_types IS NULL AND p_metadata IS NULL;
    v_messages boolean := 'message' = ANY (p_sources) AND p_memory_types IS NULL AND p_messages <> 'none';
    v_thread   uuid;
    v_giant    boolean := false;
    near       record;
BEGIN
    IF btrim(p_query) = '' OR p_query IS NULL THEN
        RAISE EXCEPTION 'the query is blank: say what to search for' USING ERRCODE = 'HP007';
    ELSIF p_limit NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'limit is 1 to 1000, not %', p_limit USING ERRCODE = 'HP007';
    ELSIF NOT p_sources <@ '{memory,fact,message}' OR p_messages NOT IN ('recent', 'all', 'none') THEN
        RAISE EXCEPTION 'sources are memory, fact and message; messages is recent, all or none' USING ERRCODE = 'HP007';
    END IF;
    IF p_session_id IS NOT NULL THEN
        SELECT t.id INTO v_thread FROM threads AS t
        WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no session % for app % and user %',
                quote_nullable(p_session_id), quote_nullable(p_app_name), quote_nullable(p_user_id)
                USING ERRCODE = 'HP001';
        END IF;
    END IF;
    IF v_memories AND v_thread IS NULL THEN
        SELECT count(*) > c_exact INTO v_giant FROM (
            SELECT FROM memories AS m
            WHERE m.app_name = p_app_name AND m.user_id = p_user_id
              AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
              AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
              AND (p_metadata IS NULL OR m.metadata @> p_metadata)
            LIMIT c_exact + 1) AS counted;
    END IF;
    SELECT NULL::uuid[] AS ids, NULL::double precision[] AS seen, NULL::double precision AS total,
           NULL::double precision AS mean_length INTO near;
    IF v_giant THEN
        SELECT * INTO near FROM memory_candidates(
            p_app_name, p_user_id, v_queries, p_embedding, p_embedding_model, p_memory_types, p_since, p_until, p_metadata);
    END IF;

    RETURN QUERY
    WITH learned AS (
        SELECT 'memory' AS source, m.id, length(m.search) AS length,
               CASE WHEN m.search @@ v_any THEN m.search END AS document,
               CASE WHEN m.embedding_model = p_embedding_model THEN 1 - (m.embedding <=> p_embedding) END AS similarity,
               false AS author_match, m.occurred_at,
               retention_score(v_policy.retention_curve, m.initial_score, m.access_count,
                               CASE WHEN NOT m.pinned THEN m.last_accessed_at END, v_policy.decay_rate, v_now) AS retention
        FROM memories AS m
        WHERE v_memories AND m.app_name = p_app_name AND m.user_id = p_user_id
          AND (near.ids IS NULL OR m.id = ANY (near.ids))
          AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
          AND (v_thread IS NULL OR m.thread_id = v_thread)
          AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
          AND (p_metadata IS NULL OR m.metadata @> p_metadata)
        UNION ALL
        SELECT 'fact', f.id, length(f.search),
               CASE WHEN f.search @@ v_any THEN f.search END,
               CASE WHEN f.embedding_model = p_embedding_model THEN 1 - (f.embedding <=> p_embedding) END,
               false, f.valid_from, f.confidence
        FROM facts AS f
        WHERE v_facts AND f.app_name = p_app_name AND f.user_id = p_user_id
          AND (f.valid_until IS NULL OR f.valid_until > v_now)
          AND (v_thread IS NULL OR f.thread_id = v_thread)
          AND (p_since IS NULL OR f.valid_from >= p_since) AND (p_until IS NULL OR f.valid_from < p_until)
    ), said AS (
        SELECT g.id, g.thread_id, g.sequence_num AS place, length(g.search) AS length,
               CASE WHEN g.search @@ v_any THEN g.search END AS document,
               CASE WHEN g.embedding_model = p_embedding_model THEN 1 - (g.embedding <=> p_embedding) END AS similarity,
               g.author NOT IN ('user', 'model', 'assistant', 'tool', 'agent')
                   AND strpos(v_words, ' ' || lower(g.author) || ' ') > 0 AS author_match,
               g.occurred_at
        FROM threads AS t JOIN messages AS g ON g.thread_id = t.id
        WHERE v_messages AND t.app_name = p_app_name AND t.user_id = p_user_id
          AND g.app_name = p_app_name AND g.user_id = p_user_id
          AND (p_messages = 'all' OR t.fast_upto_seq < t.last_seq AND g.sequence_num > t.fast_upto_seq)
          AND (v_thread IS NULL OR t.id = v_thread)
          AND (p_since IS NULL OR g.occurred_at >= p_since) AND (p_until IS NULL OR g.occurred_at < p_until)
          AND (p_metadata IS NULL OR g.metadata @> p_metadata)
    ), numbered AS (
        -- n numbers the turns of a thread without gaps, whatever stood between them, and leaves four numbers free
        -- between threads: what is at most four away is a turn of the same thread.
        SELECT t.*, row_number() OVER (ORDER BY t.thread_id, t.place)
                    + 4 * dense_rank() OVER (ORDER BY t.thread_id) AS n
        FROM said AS t
    ), docs AS MATERIALIZED (
        -- Around a turn, each step away counts 0.75 of the step before: 0.75, 0.5625, 0.4219, 0.3164 on either side,
        -- as differences of nested frames.
        SELECT d.n, 'message' AS source, d.id, d.length, d.document, d.similarity, d.author_match, d.occurred_at,
               1::float8 AS retention,
               d.length + 0.3164::float8 * sum(d.length) OVER four + 0.1055::float8 * sum(d.length) OVER three
                        + 0.1406::float8 * sum(d.length) OVER two + 0.1875::float8 * sum(d.length) OVER one
                   AS context_length,
               (0.3164::float8 * coalesce(sum(d.similarity) OVER four, 0)
                + 0.1055::float8 * coalesce(sum(d.similarity) OVER three, 0)
                + 0.1406::float8 * coalesce(sum(d.similarity) OVER two, 0)
                + 0.1875::float8 * coalesce(sum(d.similarity) OVER one, 0)) / 4.1016::float8 AS context_similarity
        FROM numbered AS d
        WINDOW one AS (ORDER BY d.n RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW),
               two AS (ORDER BY d.n RANGE BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW),
               three AS (ORDER BY d.n RANGE BETWEEN 3 PRECEDING AND 3 FOLLOWING EXCLUDE CURRENT ROW),
               four AS (ORDER BY d.n RANGE BETWEEN 4 PRECEDING AND 4 FOLLOWING EXCLUDE CURRENT ROW)
        UNION ALL
        SELECT -row_number() OVER (), l.source, l.id, l.length, l.document, l.similarity, l.author_match, l.occurred_at,
               l.retention, NULL, l.similarity
        FROM learned AS l
    ), corpus AS MATERIALIZED (
        SELECT (count(*) FILTER (WHERE near.ids IS NULL OR d.source <> 'memory') + coalesce(near.total, 0))::float8 AS size,
               greatest(coalesce(near.mean_length, avg(d.length)), 1)::float8 AS mean_length,
               greatest(avg(d.context_length), 1) AS mean_context_length
        FROM docs AS d
    ), hits AS MATERIALIZED (
        SELECT d.n, d.source, d.length, q.term, term_frequency(d.document, q.query) AS tf
        FROM docs AS d, unnest(v_terms, v_queries) AS q (term, query)
        WHERE d.document @@ q.query
    ), terms AS MATERIALIZED (
        SELECT t.term, ln(1 + (greatest(c.size - f.seen, 0) + 0.5) / (f.seen + 0.5)) AS idf
        FROM corpus AS c, unnest(v_terms, near.seen) AS t (term, candidates)
        LEFT JOIN (SELECT term, count(*) AS others FROM hits WHERE near.ids IS NULL OR source <> 'memory'
                   GROUP BY term) AS h ON h.term = t.term,
        LATERAL (SELECT (coalesce(t.candidates, 0) + coalesce(h.others, 0))::float8 AS seen) AS f
    ), own AS (
        SELECT h.n, sum(t.idf * h.tf * 2.2::float8
                        / (h.tf + 1.2::float8 * (0.7::float8 + 0.3::float8 * h.length / c.mean_length))) AS bm25
        FROM hits AS h JOIN terms AS t USING (term), corpus AS c
        GROUP BY h.n
    ), spread AS (
        SELECT h.n + o.shift AS n, h.term, sum(h.tf * o.share) AS tf
        FROM hits AS h, unnest('{-4,-3,-2,-1,0,1,2,3,4}'::integer[],
                               '{0.3164,0.4219,0.5625,0.75,1,0.75,0.5625,0.4219,0.3164}'::float8[])
                        AS o (shift, share)
        WHERE h.source = 'message'
        GROUP BY h.n + o.shift, h.term
    ), context AS (
        SELECT s.n, sum(t.idf * s.tf * 2.2::float8
                        / (s.tf + 1.2::float8 * (0.7::float8 + 0.3::float8 * d.context_length / c.mean_context_length)))
                    AS bm25
        FROM spread AS s JOIN terms AS t USING (term) JOIN docs AS d ON d.n = s.n,
             corpus AS c
        GROUP BY s.n
    ), parts AS MATERIALIZED (
        SELECT d.n, d.source, d.id, d.document, d.author_match, d.occurred_at, d.retention, d.similarity,
               d.context_similarity,
               coalesce(o.bm25, 0) AS bm25,
               CASE WHEN d.source = 'message' THEN coalesce(x.bm25, 0) ELSE coalesce(o.bm25, 0) END AS context_bm25
        FROM docs AS d LEFT JOIN own AS o ON o.n = d.n LEFT JOIN context AS x ON x.n = d.n
    ), extremes AS (
        SELECT nullif(max(bm25), 0) AS text, nullif(max(context_bm25), 0) AS context,
               min(similarity) AS far, nullif(max(similarity) - min(similarity), 0) AS span,
               min(context_similarity) AS context_far,
               nullif(max(context_similarity) - min(context_similarity), 0) AS context_span,
               (SELECT nullif(sum(idf), 0) FROM terms) AS whole
        FROM parts
    ), normal AS (
        SELECT p.*, coalesce(p.bm25 / x.text, 0) AS n_text, coalesce(p.context_bm25 / x.context, 0) AS n_context,
               (p.similarity - x.far) / x.span AS n_vector,
               (p.context_similarity - x.context_far) / x.context_span AS n_around,
               power(0.5::float8, greatest(extract(epoch FROM v_now - p.occurred_at)::float8, 0) / 2592000) AS fresh,
               greatest(p.similarity, least(p.bm25 / x.whole, 1), 0) AS relevance
        FROM parts AS p, extremes AS x
        WHERE p.bm25 > 0 OR p.context_bm25 > 0 OR p.similarity > 0
    ), scored AS (
        SELECT n.*,
               (w.bm25 * n_text + w.context_bm25 * n_context
                + w.similarity * coalesce(n_vector, n_text)
                + w.context_similarity * coalesce(n_around, n_vector, n_context)
                + CASE WHEN n.author_match THEN w.author * greatest(n_text, n_context, n_vector) ELSE 0 END
                + w.recency * fresh + w.retention * n.retention)
               / nullif(w.bm25 + w.context_bm25 + w.similarity + w.context_similarity
                        + w.author + w.recency + w.retention, 0) AS score,
               rank() OVER (ORDER BY n.bm25 DESC) AS text_rank,
               rank() OVER (ORDER BY n.similarity DESC NULLS LAST) AS vector_rank,
               count(*) OVER () AS total
        FROM normal AS n
        WHERE n.relevance >= p_min_relevance
    ), best AS (
        SELECT * FROM scored ORDER BY score DESC, occurred_at DESC, id LIMIT p_limit
    )
    SELECT b.source, b.id, coalesce(m.memory_type, f.fact_type, g.role)::text, coalesce(m.content, f.content, g.content),
           coalesce(m.metadata, g.metadata, jsonb_build_object('key', f.key, 'value', f.value, 'confidence', f.confidence)),
           b.score, b.relevance, b.bm25, b.context_bm25, b.similarity, b.context_similarity,
           b.author_match, b.fresh, b.retention,
           CASE WHEN b.bm25 > 0 THEN b.text_rank END, CASE WHEN b.similarity IS NOT NULL THEN b.vector_rank END,
           coalesce((SELECT array_agg(term ORDER BY t.idf DESC, term)
                     FROM hits AS h JOIN terms AS t USING (term) WHERE h.n = b.n), '{}'),
           t.id, t.session_id, coalesce(m.from_seq, f.from_seq, g.sequence_num),
           coalesce(m.upto_seq, f.upto_seq, g.sequence_num),
           coalesce(m.source_seqs, f.source_seqs, ARRAY[g.sequence_num]), b.occurred_at, b.total
    FROM best AS b
    LEFT JOIN memories AS m ON b.source = 'memory' AND m.id = b.id
    LEFT JOIN facts AS f ON b.source = 'fact' AND f.id = b.id
    LEFT JOIN messages AS g ON b.source = 'message' AND g.id = b.id
    LEFT JOIN threads AS t ON t.id = coalesce(m.thread_id, f.thread_id, g.thread_id)
    ORDER BY b.score DESC, b.occurred_at DESC, b.id;
END
$$;

-- What may go into a context window, in one round trip: memories and unconsolidated turns that match the query and
-- the newest summaries ('memory'), facts that match and those that are surest ('fact'), the newest turns of the
-- session ('history'). place orders each kind: 1 is the first to be taken; history counts from the newest turn.
-- A blank query matches nothing. Errors: HP001 unknown session.
CREATE FUNCTION context_candidates(
    p_app_name text, p_user_id text, p_session_id text, p_query text,
    p_embedding vector(1536) DEFAULT NULL, p_embedding_model text DEFAULT NULL,
    p_memories integer DEFAULT 20, p_facts integer DEFAULT 20, p_turns integer DEFAULT 30)
RETURNS TABLE (
    context_type text, place bigint, source text, id uuid, kind text, author text, content text,
    relevance double precision, thread_id uuid, from_seq bigint, upto_seq bigint, occurred_at timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_thread uuid;
BEGIN
    IF p_session_id IS NOT NULL THEN
        SELECT t.id INTO v_thread FROM threads AS t
        WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no session % for app % and user %',
                quote_nullable(p_session_id), quote_nullable(p_app_name), quote_nullable(p_user_id)
                USING ERRCODE = 'HP001';
        END IF;
    END IF;
    IF btrim(p_query) <> '' THEN
        RETURN QUERY
            SELECT f.kind_of, row_number() OVER (PARTITION BY f.kind_of ORDER BY f.score DESC, f.id), f.source, f.id,
                   f.kind, NULL, f.content, f.relevance, f.thread_id, f.from_seq, f.upto_seq,
                   f.occurred_at
            FROM (SELECT s.*, CASE s.source WHEN 'fact' THEN 'fact' ELSE 'memory' END AS kind_of,
                         row_number() OVER (PARTITION BY s.source = 'fact' ORDER BY s.score DESC, s.id) AS nth
                  FROM search_memory(p_app_name, p_user_id, p_query, p_embedding, p_embedding_model,
                                     least(4 * (p_memories + p_facts), 1000)) AS s) AS f
            WHERE f.nth <= CASE f.kind_of WHEN 'fact' THEN p_facts ELSE p_memories END;
    END IF;
    RETURN QUERY
        (SELECT 'memory', 1000 + row_number() OVER (ORDER BY m.occurred_at DESC, m.id DESC), 'memory', m.id,
                m.memory_type::text, NULL::text, m.content, 0::double precision, m.thread_id, m.from_seq,
                m.upto_seq, m.occurred_at
         FROM (SELECT * FROM memories WHERE app_name = p_app_name AND user_id = p_user_id
               ORDER BY created_at DESC LIMIT 50) AS m
         WHERE m.memory_type = 'summary' ORDER BY m.occurred_at DESC, m.id DESC LIMIT 3)
        UNION ALL
        (SELECT 'fact', 1000 + row_number() OVER (ORDER BY f.confidence DESC, f.updated_at DESC, f.id), 'fact', f.id,
                f.fact_type, NULL, f.content, 0, f.thread_id, f.from_seq, f.upto_seq, f.valid_from
         FROM facts AS f
         WHERE f.app_name = p_app_name AND f.user_id = p_user_id
           AND (f.valid_until IS NULL OR f.valid_until > engine_now())
         ORDER BY f.confidence DESC, f.updated_at DESC, f.id LIMIT p_facts)
        UNION ALL
        (SELECT 'history', row_number() OVER (ORDER BY g.sequence_num DESC), 'message', g.id, g.role, g.author,
                g.content, 1, g.thread_id, g.sequence_num, g.sequence_num, g.occurred_at
         FROM messages AS g
         WHERE g.thread_id = v_thread AND g.app_name = p_app_name AND g.user_id = p_user_id
         ORDER BY g.sequence_num DESC LIMIT p_turns);
END
$$;

-- A context window for callers of plain SQL: the same candidates, packed by whole items. The sum of token_estimate is
-- at most p_max_tokens. What memories and history leave unspent of their shares goes to nobody; facts have the rest.
-- p_session_id NULL: the user's latest session. p_embedding_model NULL: the model of the newest memory.
CREATE FUNCTION get_context_window(
    p_user_id text, p_app_name text, p_query text, p_query_embedding vector(1536) DEFAULT NULL,
    p_max_tokens integer DEFAULT 4000, p_memory_ratio double precision DEFAULT 0.3,
    p_history_ratio double precision DEFAULT 0.5, p_session_id text DEFAULT NULL, p_embedding_model text DEFAULT NULL)
RETURNS TABLE (context_type text, content text, relevance_score double precision, token_estimate integer)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_session text := coalesce(p_session_id, (
        SELECT session_id FROM threads WHERE app_name = p_app_name AND user_id = p_user_id
        ORDER BY last_event_at DESC NULLS LAST, id DESC LIMIT 1));
    v_model text := coalesce(p_embedding_model, (
        SELECT embedding_model FROM memories WHERE app_name = p_app_name AND user_id = p_user_id
        ORDER BY created_at DESC LIMIT 1));
BEGIN
    IF p_max_tokens < 0 OR p_memory_ratio < 0 OR p_history_ratio < 0 OR p_memory_ratio + p_history_ratio > 1 THEN
        RAISE EXCEPTION 'max_tokens is not negative, and the two ratios are shares of 1' USING ERRCODE = 'HP007';
    END IF;
    RETURN QUERY
    WITH budgets (context_type, budget, place) AS (
        VALUES ('fact', floor(p_max_tokens * (1 - p_memory_ratio - p_history_ratio)), 1),
               ('memory', floor(p_max_tokens * p_memory_ratio), 2),
               ('history', floor(p_max_tokens * p_history_ratio), 3)
    ), found AS (
        SELECT DISTINCT ON (c.context_type, c.id)
               c.context_type, c.place, c.relevance,
               CASE c.context_type
                   WHEN 'history' THEN '[' || c.author || ']: ' || c.content
                   WHEN 'fact' THEN '[' || c.kind || '] ' || c.content
                   ELSE c.content END AS content
        FROM context_candidates(p_app_name, p_user_id, v_session, p_query, p_query_embedding, v_model, 10, 10, 20) AS c
        ORDER BY c.context_type, c.id, c.place
    ), counted AS (
        SELECT f.*, estimate_tokens(f.content) AS tokens FROM found AS f
    ), packed AS (
        SELECT c.*, b.place AS section,
               sum(c.tokens) OVER (PARTITION BY c.context_type ORDER BY c.place) <= b.budget AS fits
        FROM counted AS c JOIN budgets AS b USING (context_type)
        WHERE c.context_type = 'history' OR c.tokens <= b.budget
    )
    SELECT p.context_type, p.content, p.relevance, p.tokens
    FROM packed AS p WHERE p.fits
    ORDER BY p.section, CASE p.context_type WHEN 'history' THEN -p.place ELSE p.place END;
END
$$;
