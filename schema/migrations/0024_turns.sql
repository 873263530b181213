-- Turns by the hundred thousand: an index of their vectors, and a bounded first phase of their search.

CREATE INDEX messages_embedding_idx ON messages USING hnsw (embedding vector_cosine_ops)
    WITH (m = 16, ef_construction = 64);

-- The turns of a scope whose vectors are nearest, by the index; see `nearest_memories`.
CREATE FUNCTION nearest_messages(
    p_app_name text, p_user_id text, p_embedding vector(1536), p_embedding_model text, p_limit integer,
    p_thread_id uuid DEFAULT NULL, p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL,
    p_metadata jsonb DEFAULT NULL)
RETURNS TABLE (id uuid, similarity double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET hnsw.iterative_scan = 'relaxed_order' SET hnsw.ef_search = 200 SET hnsw.max_scan_tuples = 40000
SET plan_cache_mode = force_custom_plan SET jit = off SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT m.id, 1 - (m.embedding <=> p_embedding) FROM messages AS m
        WHERE m.embedding_model = p_embedding_model AND m.app_name = p_app_name AND m.user_id = p_user_id
          AND (p_thread_id IS NULL OR m.thread_id = p_thread_id)
          AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
          AND (p_metadata IS NULL OR m.metadata @> p_metadata)
        ORDER BY m.embedding <=> p_embedding LIMIT p_limit;
END
$$;

-- The turns of a giant scope that are worth scoring: those that hold the query's rare terms, those whose vectors are
-- nearest, the newest, and four turns on either side of each. `places` are their numbers as `search_memory` numbers
-- turns; `seen` holds, for each of the queries of one term, in how many turns of the scope it stands. Words are read
-- in one pass over the scope, not by an index, which every append would pay for.
CREATE FUNCTION turn_candidates(
    p_app_name text, p_user_id text, p_queries tsquery[], p_embedding vector(1536), p_embedding_model text,
    p_thread_id uuid, p_since timestamptz, p_until timestamptz, p_metadata jsonb,
    OUT ids uuid[], OUT places bigint[], OUT seen double precision[], OUT total double precision,
    OUT mean_length double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET jit = off SET work_mem = '32MB'
AS $$
DECLARE
    c_rows   constant integer := 300;
    v_any    tsquery;
    v_query  tsquery;
BEGIN
    FOREACH v_query IN ARRAY coalesce(p_queries, '{}') LOOP
        v_any := coalesce(v_any || v_query, v_query);
    END LOOP;
    WITH scope AS MATERIALIZED (
        SELECT m.id, length(m.search) AS length, CASE WHEN m.search @@ v_any THEN m.search END AS document,
               row_number() OVER (ORDER BY m.thread_id, m.sequence_num)
                   + 4 * dense_rank() OVER (ORDER BY m.thread_id) AS place,
               row_number() OVER (ORDER BY m.occurred_at DESC, m.id DESC) AS age
        FROM threads AS t JOIN messages AS m ON m.thread_id = t.id
        WHERE t.app_name = p_app_name AND t.user_id = p_user_id
          AND m.app_name = p_app_name AND m.user_id = p_user_id
          AND (p_thread_id IS NULL OR t.id = p_thread_id)
          AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
          AND (p_metadata IS NULL OR m.metadata @> p_metadata)
    ), held AS MATERIALIZED (
        SELECT s.place, q.term FROM scope AS s, unnest(p_queries) WITH ORDINALITY AS q (query, term)
        WHERE s.document @@ q.query
    ), counted AS MATERIALIZED (
        SELECT q.term, count(h.term)::float8 AS rows
        FROM generate_subscripts(p_queries, 1) AS q (term) LEFT JOIN held AS h ON h.term = q.term
        GROUP BY q.term
    ), rare AS (
        -- A term counts by how rare it is, as in BM25; who holds most of it is worth scoring.
        SELECT h.place FROM held AS h JOIN counted AS c ON c.term = h.term
        GROUP BY h.place
        ORDER BY sum(ln(1 + (SELECT count(*) FROM scope) / c.rows)) DESC, h.place DESC LIMIT c_rows
    ), chosen AS (
        SELECT r.place FROM rare AS r
        UNION
        SELECT s.place FROM scope AS s WHERE s.age <= 100
        UNION
        SELECT s.place FROM scope AS s JOIN nearest_messages(
            p_app_name, p_user_id, p_embedding, p_embedding_model, 200, p_thread_id, p_since, p_until, p_metadata) AS n
            ON n.id = s.id
        WHERE p_embedding IS NOT NULL
    ), around AS (
        SELECT DISTINCT c.place + o.shift AS place FROM chosen AS c, generate_series(-4, 4) AS o (shift)
    )
    SELECT (SELECT array_agg(s.id ORDER BY s.place) FROM scope AS s JOIN around AS a ON a.place = s.place),
           (SELECT array_agg(s.place ORDER BY s.place) FROM scope AS s JOIN around AS a ON a.place = s.place),
           (SELECT array_agg(c.rows ORDER BY c.term) FROM counted AS c),
           (SELECT count(*) FROM scope), (SELECT avg(s.length) FROM scope AS s)
    INTO ids, places, seen, total, mean_length;
END
$$;
