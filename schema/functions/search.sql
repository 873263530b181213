-- Search over memories, facts and messages.

-- hnsw's settings exist once the library is loaded; the functions below set them.
DO $$ BEGIN PERFORM vector_dims('[1]'::vector); END $$;

CREATE OR REPLACE FUNCTION default_search_weights() RETURNS search_weights
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$ SELECT ROW(0.1, 1.0, 0.7, 0.4, 0.5, 0.05, 0.1, 0.15)::search_weights $$;

-- The terms of a query, rarest unknown: `rare_terms` cuts them. Punctuation is no word, full-width letters are those of
-- half width. A short query matches single Chinese characters too; in one of more than 24 they would drown the pairs.
CREATE OR REPLACE FUNCTION query_terms(p_query text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(array_agg(t.term ORDER BY t.term), '{}')
    FROM (SELECT d.term, is_cjk(left(d.term, 1)) AS is_cjk, count(*) FILTER (WHERE is_cjk(d.term)) OVER () AS letters
          FROM (SELECT regexp_replace(normalize(left(p_query, 32768), NFKC),
                           '[\u2010-\u2027\u2030-\u205e\u3000-\u303f\ufe30-\ufe4f\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]+', ' ', 'g')) AS q (text),
               unnest(tsvector_to_array(search_document(q.text))) AS d (term)
          WHERE d.term ~ '[[:alnum:]\u0080-\U0010ffff]') AS t
    WHERE t.letters <= 24 OR NOT t.is_cjk OR length(t.term) > 1
$$;

-- The other forms of verbs and nouns that a stemmer does not bring together. Terms are English stems.
CREATE OR REPLACE FUNCTION irregular_forms() RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '{
    "go": "went gone", "went": "go gone", "gone": "go went", "buy": "bought", "bought": "buy", "bring": "brought",
    "brought": "bring", "build": "built", "built": "build", "catch": "caught", "caught": "catch",
    "choos": "chose chosen", "chose": "choos chosen", "chosen": "choos chose", "come": "came", "came": "come",
    "draw": "drew drawn", "drew": "draw drawn", "drawn": "draw drew", "drive": "drove driven",
    "drove": "drive driven", "driven": "drive drove", "drink": "drank drunk", "drank": "drink drunk",
    "drunk": "drink drank", "eat": "ate eaten", "ate": "eat eaten", "eaten": "eat ate", "fall": "fell fallen",
    "fell": "fall fallen", "fallen": "fall fell", "feel": "felt", "felt": "feel", "fight": "fought",
    "fought": "fight", "find": "found", "found": "find", "fli": "flew flown", "flew": "fli flown",
    "flown": "fli flew", "forget": "forgot forgotten", "forgot": "forget forgotten", "forgotten": "forget forgot",
    "give": "gave given", "gave": "give given", "given": "give gave", "get": "got gotten", "got": "get gotten",
    "gotten": "get got", "grow": "grew grown", "grew": "grow grown", "grown": "grow grew", "hear": "heard",
    "heard": "hear", "hold": "held", "held": "hold", "keep": "kept", "kept": "keep", "know": "knew known",
    "knew": "know known", "known": "know knew", "leav": "left", "left": "leav", "lose": "lost", "lost": "lose",
    "make": "made", "made": "make", "mean": "meant", "meant": "mean", "meet": "met", "met": "meet", "pay": "paid",
    "paid": "pay", "run": "ran", "ran": "run", "say": "said", "said": "say", "see": "saw seen", "saw": "see seen",
    "seen": "see saw", "sell": "sold", "sold": "sell", "send": "sent", "sent": "send", "sing": "sang sung",
    "sang": "sing sung", "sung": "sing sang", "sleep": "slept", "slept": "sleep", "speak": "spoke spoken",
    "spoke": "speak spoken", "spoken": "speak spoke", "spend": "spent", "spent": "spend", "stand": "stood",
    "stood": "stand", "swim": "swam swum", "swam": "swim swum", "swum": "swim swam", "take": "took taken",
    "took": "take taken", "taken": "take took", "teach": "taught", "taught": "teach", "tell": "told",
    "told": "tell", "think": "thought", "thought": "think", "throw": "threw thrown", "threw": "throw thrown",
    "thrown": "throw threw", "understand": "understood", "understood": "understand", "wake": "woke woken",
    "woke": "wake woken", "woken": "wake woke", "wear": "wore worn", "wore": "wear worn", "worn": "wear wore",
    "win": "won", "won": "win", "write": "wrote written", "wrote": "write written", "written": "write wrote",
    "ride": "rode ridden", "rode": "ride ridden", "ridden": "ride rode", "break": "broke broken",
    "broke": "break broken", "broken": "break broke", "begin": "began begun", "began": "begin begun",
    "begun": "begin began", "becom": "became", "became": "becom", "steal": "stole stolen", "stole": "steal stolen",
    "stolen": "steal stole", "shake": "shook shaken", "shook": "shake shaken", "shaken": "shake shook",
    "sit": "sat", "sat": "sit", "lend": "lent", "lent": "lend", "lead": "led", "led": "lead", "feed": "fed",
    "fed": "feed", "bite": "bit bitten", "bit": "bite bitten", "bitten": "bite bit", "hide": "hid hidden",
    "hid": "hide hidden", "hidden": "hide hid", "ring": "rang rung", "rang": "ring rung", "rung": "ring rang",
    "rise": "rose risen", "rose": "rise risen", "risen": "rise rose", "sink": "sank sunk", "sank": "sink sunk",
    "sunk": "sink sank", "tear": "tore torn", "tore": "tear torn", "torn": "tear tore", "child": "children kid",
    "children": "child kid", "kid": "child children", "person": "peopl", "peopl": "person", "woman": "women",
    "women": "woman", "man": "men", "men": "man", "foot": "feet", "feet": "foot", "tooth": "teeth",
    "teeth": "tooth", "mous": "mice", "mice": "mous", "mother": "mom mum", "mom": "mother mum",
    "mum": "mother mom", "father": "dad", "dad": "father", "photo": "pic pictur photograph",
    "pic": "photo pictur photograph", "pictur": "photo pic photograph", "photograph": "photo pic pictur",
    "movi": "film", "film": "movi", "bike": "bicycl", "bicycl": "bike", "tv": "televis", "televis": "tv",
    "fridg": "refriger", "refriger": "fridg", "phone": "telephon", "telephon": "phone", "doctor": "doc",
    "doc": "doctor", "grandma": "grandmoth", "grandmoth": "grandma", "grandpa": "grandfath",
    "grandfath": "grandpa"}'::jsonb;

-- The terms, each with its irregular and casual forms. A form that the query holds itself counts as its own term.
CREATE OR REPLACE FUNCTION term_forms(p_terms text[]) RETURNS TABLE (place integer, form text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT t.place::integer, t.term FROM unnest(p_terms) WITH ORDINALITY AS t (term, place)
    UNION ALL
    SELECT min(t.place)::integer, f.form
    FROM unnest(p_terms) WITH ORDINALITY AS t (term, place),
         unnest(string_to_array(irregular_forms() ->> t.term, ' ')) AS f (form)
    WHERE f.form <> ALL (p_terms)
    GROUP BY f.form
$$;

-- One query for each term, which any of its forms matches.
CREATE OR REPLACE FUNCTION form_queries(p_forms text[], p_places integer[]) RETURNS tsquery[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT array_agg(q.query ORDER BY q.place)
    FROM (SELECT f.place, any_term(array_agg(f.form)) AS query
          FROM unnest(p_forms, p_places) AS f (form, place) GROUP BY f.place) AS q
$$;

-- The 512 rarest terms of a longer query, counted over the newest 20,000 turns and memories of the scope. Terms that
-- none of them holds come last.
CREATE OR REPLACE FUNCTION rare_terms(p_app_name text, p_user_id text, p_terms text[]) RETURNS text[]
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT CASE WHEN cardinality(p_terms) <= 512 THEN p_terms ELSE (
        SELECT array_agg(r.term ORDER BY r.term) FROM (
            SELECT t.term FROM unnest(p_terms) AS t (term)
            LEFT JOIN (
                SELECT u.lexeme, count(*) AS rows FROM (
                    (SELECT m.search FROM threads AS t JOIN messages AS m ON m.thread_id = t.id
                     WHERE t.app_name = p_app_name AND t.user_id = p_user_id
                     ORDER BY m.occurred_at DESC LIMIT 20000)
                    UNION ALL
                    (SELECT m.search FROM memories AS m WHERE m.app_name = p_app_name AND m.user_id = p_user_id
                     ORDER BY m.created_at DESC LIMIT 20000)
                    UNION ALL
                    SELECT f.search FROM facts AS f WHERE f.app_name = p_app_name AND f.user_id = p_user_id) AS d,
                    unnest(d.search) AS u
                GROUP BY u.lexeme) AS c ON c.lexeme = t.term
            ORDER BY c.rows NULLS LAST, length(t.term) DESC, t.term LIMIT 512) AS r) END
$$;

-- How many terms two documents share, from 0 to 1. Concatenation merges what they share.
CREATE OR REPLACE FUNCTION shared_terms(p_one tsvector, p_other tsvector) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (length(p_one) + length(p_other) - length(p_one || p_other))
       / sqrt(greatest(length(p_one)::float8 * length(p_other), 1));

-- How much the turns around a turn say about it, from 0.2 to 1: whether neighbours share more terms than turns that are
-- far apart. In a dialogue they do, in a diary they do not. The ids are of pairs of neighbours, some 100 are
-- enough; few of them prove little, and count as dialogue.
CREATE OR REPLACE FUNCTION turn_cohesion(p_ids uuid[], p_following uuid[]) RETURNS double precision
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF p_ids IS NULL THEN
        RETURN 1;
    END IF;
    RETURN (WITH pairs AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY p.place) - 1 AS k, count(*) OVER () AS size,
               strip(a.search) AS one, strip(b.search) AS other
        FROM unnest(p_ids, p_following) WITH ORDINALITY AS p (id, following, place)
        JOIN messages AS a ON a.id = p.id JOIN messages AS b ON b.id = p.following
    ), near AS (
        SELECT count(*)::float8 AS size, avg(v) AS mean, var_pop(v) AS variance
        FROM (SELECT shared_terms(p.one, p.other) AS v FROM pairs AS p) AS x
    ), far AS (
        SELECT count(*)::float8 AS size, avg(v) AS mean, var_pop(v) AS variance
        FROM (SELECT shared_terms(p.one, o.other) AS v
              FROM pairs AS p CROSS JOIN generate_series(1, 2) AS s (step)
              JOIN pairs AS o ON o.k = (p.k + p.size * s.step / 3) % p.size) AS x
    )
    SELECT CASE WHEN near.size < 2 THEN 1 ELSE
        1 + near.size / (near.size + 10)
            * (least(greatest(0.4 + 0.25 * coalesce((near.mean - far.mean) / nullif(sqrt(
                   near.variance / near.size + far.variance / far.size), 0), 0), 0.2), 1) - 1) END
    FROM near, far);
END
$$;

-- Matches a row that contains any of the terms.
CREATE OR REPLACE FUNCTION any_term(p_terms text[]) RETURNS tsquery
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(string_agg('''' || replace(replace(term, '\', '\\'), '''', '''''') || '''', '|'), '')::tsquery
    FROM unnest(p_terms) AS term
$$;

-- How often the query's single term occurs in the document: 1 to 64, NULL for not at all. For one term ts_rank sums
-- 1, 1/4, 1/9, … over its positions, divided by a constant; that sum is looked up here. Unnesting the document would cost
-- 0.5 us per term.
CREATE OR REPLACE FUNCTION term_frequency(p_document tsvector, p_query tsquery) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN nullif(width_bucket(ts_rank('{1,1,1,1}', p_document, p_query) * 1.64493406685, ARRAY[
    0.5, 1.125, 1.30556, 1.39236, 1.44361, 1.4775, 1.50159, 1.51961, 1.5336, 1.54477, 1.5539, 1.5615, 1.56794,
    1.57344, 1.57822, 1.58239, 1.58608, 1.58935, 1.59228, 1.59491, 1.5973, 1.59946, 1.60144, 1.60326, 1.60492,
    1.60646, 1.60789, 1.60921, 1.61044, 1.6116, 1.61267, 1.61368, 1.61463, 1.61552, 1.61636, 1.61715, 1.6179, 1.61861,
    1.61929, 1.61993, 1.62054, 1.62112, 1.62168, 1.6222, 1.62271, 1.62319, 1.62366, 1.6241, 1.62452, 1.62493, 1.62532,
    1.6257, 1.62607, 1.62641, 1.62675, 1.62708, 1.62739, 1.62769, 1.62798, 1.62827, 1.62854, 1.6288, 1.62906,
    1.62931]::float8[]), 0);

-- A query's words between blanks, for whole-word comparison with the names of authors.
CREATE OR REPLACE FUNCTION plain_words(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$ SELECT ' ' || lower(regexp_replace(left(p_text, 4000), '[^[:alnum:]]+', ' ', 'g')) || ' ' $$;

-- The memories of a scope whose vectors are nearest: for scopes of many thousands. The model's index answers, or without
-- one (see `vector_index_changes`) the scope's vectors do. An HNSW index does not reach every row: groups of like vectors
-- become islands, and a scan ends after this many tuples. If it finds fewer rows than requested, all rows of the scope are
-- compared. A vector of zeros has no direction, and is not near to anything.
CREATE OR REPLACE FUNCTION nearest_memories(
    p_app_name text, p_user_id text, p_embedding vector, p_embedding_model text, p_limit integer,
    p_memory_types text[] DEFAULT NULL, p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL,
    p_metadata jsonb DEFAULT NULL)
RETURNS TABLE (id uuid, similarity double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET hnsw.iterative_scan = 'relaxed_order' SET hnsw.ef_search = 100 SET hnsw.max_scan_tuples = 40000
SET plan_cache_mode = force_custom_plan SET jit = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    v_query        halfvec := l2_normalize(p_embedding)::halfvec;
    v_size         integer := vector_dims(p_embedding);
    v_narrow       text := CASE WHEN num_nonnulls(p_memory_types, p_since, p_until, p_metadata) > 0 THEN $f$
        JOIN memories AS m ON m.id = v.id AND ($5 IS NULL OR m.memory_type = ANY ($5))
                          AND ($6 IS NULL OR m.occurred_at >= $6) AND ($7 IS NULL OR m.occurred_at < $7)
                          AND ($8 IS NULL OR m.metadata @> $8)$f$ ELSE '' END;
    v_ids          uuid[];
    v_similarities double precision[];
BEGIN
    IF NOT EXISTS (SELECT FROM vector_fill AS f WHERE f.table_name = 'memories') THEN
        PERFORM set_config('hnsw.ef_search', least(greatest(p_limit, 100), 1000)::text, true);
        EXECUTE format($f$
            SELECT array_agg(n.id), array_agg(least(-n.distance, 1))
            FROM (SELECT v.id, v.embedding::halfvec(%1$s) <#> $3 AS distance FROM memory_vectors AS v %3$s
                  WHERE v.model = %2$L AND vector_dims(v.embedding) = %1$s AND v.app_name = $1 AND v.user_id = $2
                  ORDER BY v.embedding::halfvec(%1$s) <#> $3 LIMIT $4) AS n$f$, v_size, p_embedding_model, v_narrow)
        INTO v_ids, v_similarities
        USING p_app_name, p_user_id, v_query, p_limit, p_memory_types, p_since, p_until, p_metadata;
        IF cardinality(v_ids) = p_limit THEN
            RETURN QUERY SELECT * FROM unnest(v_ids, v_similarities);
            RETURN;
        END IF;
    END IF;
    RETURN QUERY
        SELECT n.id, 1 - n.distance
        FROM (
            SELECT m.id, CASE WHEN v.id IS NOT NULL THEN greatest(1 + (v.embedding <#> v_query), 0)
                              ELSE m.embedding <=> p_embedding END AS distance
            FROM memories AS m
            LEFT JOIN memory_vectors AS v ON v.id = m.id AND v.app_name = p_app_name AND v.user_id = p_user_id
                AND v.model = p_embedding_model AND vector_dims(v.embedding) = v_size
            WHERE m.embedding_model = p_embedding_model AND m.app_name = p_app_name AND m.user_id = p_user_id
              AND (v.id IS NOT NULL OR vector_dims(m.embedding) = v_size)
              AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
              AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
              AND (p_metadata IS NULL OR m.metadata @> p_metadata)
            OFFSET 0
        ) AS n
        WHERE n.distance < 'NaN' ORDER BY n.distance LIMIT p_limit;
END
$$;

-- The p_limit nearest memories of a scope, and those that are as near as the last, if each of its memories that pass the
-- filters has a vector of the model; otherwise NULL. p_held: how many memories it has. p_query has length 1. matching: how
-- many have a similarity above 0 that is at least p_min_similarity. far: the least similarity.
CREATE OR REPLACE FUNCTION nearest_of_scope(
    p_app_name text, p_user_id text, p_held bigint, p_query halfvec, p_embedding_model text, p_limit integer,
    p_min_similarity double precision, p_memory_types text[], p_thread_id uuid, p_since timestamptz,
    p_until timestamptz, p_metadata jsonb,
    OUT ids uuid[], OUT matching bigint, OUT far double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET work_mem = '32MB' SET enable_nestloop = off
SET enable_mergejoin = off SET enable_seqscan = off SET enable_indexscan = off
AS $$
DECLARE
    v_within uuid[];
BEGIN
    IF num_nonnulls(p_memory_types, p_thread_id, p_since, p_until, p_metadata) > 0 THEN
        SELECT coalesce(array_agg(m.id), '{}') INTO v_within FROM memories AS m
        WHERE m.app_name = p_app_name AND m.user_id = p_user_id
          AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
          AND (p_thread_id IS NULL OR m.thread_id = p_thread_id)
          AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
          AND (p_metadata IS NULL OR m.metadata @> p_metadata);
    END IF;
    WITH compared AS MATERIALIZED (
        SELECT v.id, least(-(v.embedding <#> p_query), 1) AS similarity FROM memory_vectors AS v
        WHERE v.app_name = p_app_name AND v.user_id = p_user_id AND v.model = p_embedding_model
          AND vector_dims(v.embedding) = vector_dims(p_query)
          AND (v_within IS NULL OR v.id IN (SELECT unnest(v_within)))
    )
    SELECT (SELECT array_agg(n.id) FROM (
               SELECT c.id FROM compared AS c ORDER BY c.similarity DESC FETCH FIRST p_limit ROWS WITH TIES) AS n),
           count(*) FILTER (WHERE c.similarity > 0 AND c.similarity >= p_min_similarity), min(c.similarity)
    INTO ids, matching, far FROM compared AS c
    HAVING count(*) = coalesce(cardinality(v_within), p_held);
END
$$;

-- The memories of a giant scope that are worth scoring: the best by the query's terms that are in up to 2,000 rows, those
-- with the nearest vectors, the newest. `seen` is, for each of the single-term queries, in how many of the rows that pass
-- the filters the term occurs: counted up to 2,000, and up to 100 once 8,000 rows were read; beyond that estimated from a
-- sample of the newest 1,000. If all terms that occur are more frequent, 2,000 rows of the rarest are taken.
CREATE OR REPLACE FUNCTION memory_candidates(
    p_app_name text, p_user_id text, p_queries tsquery[], p_embedding vector, p_embedding_model text,
    p_memory_types text[], p_since timestamptz, p_until timestamptz, p_metadata jsonb, p_limit integer DEFAULT 10,
    OUT ids uuid[], OUT seen double precision[], OUT total double precision, OUT mean_length double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET enable_seqscan = on SET jit = off
AS $$
DECLARE
    c_rows     constant integer := greatest(2000, 4 * p_limit);
    c_read     constant integer := 4 * c_rows;
    c_worth    constant integer := greatest(300, 4 * p_limit);
    v_sampled  integer;
    v_in       double precision[];
    v_term     record;
    v_terms    integer := 0;
    v_most     integer;
    v_ids      uuid[];
    v_shares   double precision[];
    v_rows     integer;
    v_worth    uuid[] := '{}';
    v_parts    double precision[] := '{}';
    v_weights  double precision[] := '{}';
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

    seen := array_fill(NULL::double precision, ARRAY[coalesce(cardinality(p_queries), 0)]);
    FOR v_term IN SELECT q.place, q.query, q.estimate
                  FROM (SELECT u.place, u.query, v_in[u.place] * total / greatest(v_sampled, 1) AS estimate
                        FROM unnest(p_queries) WITH ORDINALITY AS u (query, place)) AS q ORDER BY q.estimate
    LOOP
        IF v_terms > 0 AND v_term.estimate > c_rows THEN
            seen[v_term.place] := v_term.estimate;
            CONTINUE;
        END IF;
        -- The newest do not tell which of the terms that they lack is the rare one.
        v_most := CASE WHEN cardinality(v_worth) > c_read THEN 100 ELSE c_rows END;
        -- The shares are those of BM25, as in `search_memory`.
        SELECT array_agg(r.id), array_agg(r.tf * 1.6 / (r.tf + 0.6 * (0.4 + 0.6 * r.length / greatest(mean_length, 1)))), count(*)
        INTO v_ids, v_shares, v_rows
        FROM (SELECT m.id, coalesce(term_frequency(m.search, v_term.query), 1) AS tf, length(m.search) AS length
              FROM memories AS m
              WHERE m.search @@ v_term.query AND m.app_name = p_app_name AND m.user_id = p_user_id
                AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
                AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
                AND (p_metadata IS NULL OR m.metadata @> p_metadata)
              LIMIT v_most + 1) AS r;
        seen[v_term.place] := CASE WHEN v_rows > v_most THEN greatest(v_term.estimate, c_rows) ELSE greatest(v_rows, 1) END;
        CONTINUE WHEN v_rows = 0 OR v_rows > v_most AND v_most < c_rows;
        v_terms := v_terms + 1;
        v_worth := v_worth || v_ids;
        v_parts := v_parts || v_shares;
        v_weights := v_weights || array_fill(ln(1 + total / seen[v_term.place]), ARRAY[v_rows]);
    END LOOP;

    SELECT array_agg(DISTINCT worth.id) INTO ids FROM (
        -- The newest of equal ones: ids begin with the time.
        (SELECT u.id FROM unnest(v_worth, v_parts, v_weights) AS u (id, part, weight)
         GROUP BY u.id ORDER BY sum(u.part * u.weight) DESC, u.id DESC
         LIMIT CASE WHEN v_terms > 1 THEN c_worth ELSE c_rows END)
        UNION ALL
        (SELECT n.id FROM nearest_memories(p_app_name, p_user_id, p_embedding, p_embedding_model, greatest(400, 2 * p_limit),
                                           p_memory_types, p_since, p_until, p_metadata) AS n
         WHERE p_embedding IS NOT NULL)
        UNION ALL
        (SELECT m.id FROM memories AS m
         WHERE m.app_name = p_app_name AND m.user_id = p_user_id
           AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
           AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
           AND (p_metadata IS NULL OR m.metadata @> p_metadata)
         ORDER BY m.created_at DESC LIMIT greatest(100, p_limit))) AS worth;
END
$$;

-- The turns of a scope whose vectors are nearest; see `nearest_memories`.
CREATE OR REPLACE FUNCTION nearest_messages(
    p_app_name text, p_user_id text, p_embedding vector, p_embedding_model text, p_limit integer,
    p_thread_id uuid DEFAULT NULL, p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL,
    p_metadata jsonb DEFAULT NULL)
RETURNS TABLE (id uuid, similarity double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET hnsw.iterative_scan = 'relaxed_order' SET hnsw.ef_search = 100 SET hnsw.max_scan_tuples = 40000
SET plan_cache_mode = force_custom_plan SET jit = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    v_query        halfvec := l2_normalize(p_embedding)::halfvec;
    v_size         integer := vector_dims(p_embedding);
    v_narrow       text := CASE WHEN num_nonnulls(p_thread_id, p_since, p_until, p_metadata) > 0 THEN $f$
        JOIN messages AS m ON m.id = v.id AND ($5 IS NULL OR m.thread_id = $5)
                          AND ($6 IS NULL OR m.occurred_at >= $6) AND ($7 IS NULL OR m.occurred_at < $7)
                          AND ($8 IS NULL OR m.metadata @> $8)$f$ ELSE '' END;
    v_ids          uuid[];
    v_similarities double precision[];
BEGIN
    IF NOT EXISTS (SELECT FROM vector_fill AS f WHERE f.table_name = 'messages') THEN
        PERFORM set_config('hnsw.ef_search', least(greatest(p_limit, 100), 1000)::text, true);
        EXECUTE format($f$
            SELECT array_agg(n.id), array_agg(least(-n.distance, 1))
            FROM (SELECT v.id, v.embedding::halfvec(%1$s) <#> $3 AS distance FROM message_vectors AS v %3$s
                  WHERE v.model = %2$L AND vector_dims(v.embedding) = %1$s AND v.app_name = $1 AND v.user_id = $2
                  ORDER BY v.embedding::halfvec(%1$s) <#> $3 LIMIT $4) AS n$f$, v_size, p_embedding_model, v_narrow)
        INTO v_ids, v_similarities
        USING p_app_name, p_user_id, v_query, p_limit, p_thread_id, p_since, p_until, p_metadata;
        IF cardinality(v_ids) = p_limit THEN
            RETURN QUERY SELECT * FROM unnest(v_ids, v_similarities);
            RETURN;
        END IF;
    END IF;
    RETURN QUERY
        SELECT n.id, 1 - n.distance
        FROM (
            SELECT m.id, CASE WHEN v.id IS NOT NULL THEN greatest(1 + (v.embedding <#> v_query), 0)
                              ELSE m.embedding <=> p_embedding END AS distance
            FROM messages AS m
            LEFT JOIN message_vectors AS v ON v.id = m.id AND v.app_name = p_app_name AND v.user_id = p_user_id
                AND v.model = p_embedding_model AND vector_dims(v.embedding) = v_size
            WHERE m.embedding_model = p_embedding_model AND m.app_name = p_app_name AND m.user_id = p_user_id
              AND (v.id IS NOT NULL OR vector_dims(m.embedding) = v_size)
              AND (p_thread_id IS NULL OR m.thread_id = p_thread_id)
              AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
              AND (p_metadata IS NULL OR m.metadata @> p_metadata)
            OFFSET 0
        ) AS n
        WHERE n.distance < 'NaN' ORDER BY n.distance LIMIT p_limit;
END
$$;

-- The last term of a query.
CREATE OR REPLACE FUNCTION last_term(p_query text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substring(p_query FROM '''([^'']+)''[^'']*$');

-- Matches a row that contains the last term of any of the queries.
CREATE OR REPLACE FUNCTION last_terms(p_queries text[]) RETURNS tsquery
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$ SELECT any_term(array_agg(DISTINCT last_term(q.query))) FROM unnest(p_queries) AS q (query) WHERE q.query <> '' $$;

-- The times of `search_memory` with the last term of their words, and all ranges of the same words as one.
CREATE OR REPLACE FUNCTION time_cues(
    p_since timestamptz[], p_until timestamptz[], p_words text[], p_weights double precision[])
RETURNS TABLE (weight double precision, query tsquery, term text, times tstzmultirange)
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 250 SET search_path FROM CURRENT
AS $$
    SELECT c.weight, CASE WHEN c.words <> '' THEN c.words::tsquery END, last_term(c.words),
           range_agg(tstzrange(c.since, c.until))
    FROM unnest(p_since, p_until, p_words, p_weights) AS c (since, until, words, weight)
    WHERE c.since < c.until
    GROUP BY c.weight, c.words
$$;

-- The turns of a giant scope that are worth scoring: those with the query's rare terms, those with the nearest vectors,
-- the newest, and four turns on either side of each. `places` are their numbers as `search_memory` numbers turns;
-- `seen` is, for each of the single-term queries, in how many turns of the scope the term occurs. Words are read in one
-- pass over the scope, not by an index, which would slow down every append.
CREATE OR REPLACE FUNCTION turn_candidates(
    p_app_name text, p_user_id text, p_queries tsquery[], p_embedding vector, p_embedding_model text,
    p_thread_id uuid, p_since timestamptz, p_until timestamptz, p_metadata jsonb, p_limit integer DEFAULT 10,
    p_said_since timestamptz[] DEFAULT NULL, p_said_until timestamptz[] DEFAULT NULL, p_said_words text[] DEFAULT NULL,
    p_said_weights double precision[] DEFAULT NULL,
    OUT ids uuid[], OUT places bigint[], OUT seen double precision[], OUT total double precision,
    OUT mean_length double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET enable_seqscan = on SET jit = off SET work_mem = '32MB'
AS $$
DECLARE
    c_rows   constant integer := greatest(300, 3 * p_limit);
    -- A date that is written out is said at any time: its turns are found by the query's own words.
    c_long   constant interval := '400 days';
    v_any    tsquery;
    v_said   tsquery;
    v_times  tstzmultirange;
    v_query  tsquery;
BEGIN
    FOREACH v_query IN ARRAY coalesce(p_queries, '{}') LOOP
        v_any := coalesce(v_any || v_query, v_query);
    END LOOP;
    SELECT range_agg(c.times), any_term(array_agg(DISTINCT c.term)) INTO v_times, v_said
    FROM time_cues(p_said_since, p_said_until, p_said_words, p_said_weights) AS c
    WHERE c.term IS NOT NULL AND upper(c.times) - lower(c.times) < c_long;
    WITH scope AS MATERIALIZED (
        SELECT m.id, length(m.search) AS length, m.occurred_at,
               CASE WHEN m.search @@ v_any OR m.occurred_at <@ v_times AND m.search @@ v_said THEN m.search END AS document,
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
        -- A term counts by its rarity, as in BM25; the turns with the greatest sums are worth scoring.
        SELECT h.place FROM held AS h JOIN counted AS c ON c.term = h.term
        GROUP BY h.place
        ORDER BY sum(ln(1 + (SELECT count(*) FROM scope) / c.rows)) DESC, h.place DESC LIMIT c_rows
    ), cues AS MATERIALIZED (
        SELECT * FROM time_cues(p_said_since, p_said_until, p_said_words, p_said_weights) AS c
        WHERE c.term IS NULL OR c.times <@ v_times
    ), said AS (
        SELECT t.place FROM (
            SELECT s.place, s.age, c.weight FROM cues AS c JOIN scope AS s ON s.occurred_at <@ c.times
            WHERE c.term IS NULL
            UNION ALL
            SELECT s.place, s.age, c.weight
            FROM (SELECT DISTINCT c.term, any_term(ARRAY[c.term]) AS query FROM cues AS c WHERE c.term IS NOT NULL) AS q
            CROSS JOIN LATERAL (
                SELECT * FROM scope WHERE scope.occurred_at <@ v_times AND scope.document @@ q.query OFFSET 0) AS s
            JOIN cues AS c ON c.term = q.term AND s.occurred_at <@ c.times AND s.document @@ c.query) AS t
        GROUP BY t.place, t.age
        ORDER BY max(t.weight) DESC, t.age LIMIT c_rows
    ), chosen AS (
        SELECT r.place FROM rare AS r
        UNION
        SELECT t.place FROM said AS t
        UNION
        SELECT s.place FROM scope AS s WHERE s.age <= greatest(100, p_limit)
        UNION
        SELECT s.place FROM scope AS s JOIN nearest_messages(
            p_app_name, p_user_id, p_embedding, p_embedding_model, greatest(200, 2 * p_limit), p_thread_id, p_since, p_until, p_metadata) AS n
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

-- The facts that a search covers: the current ones or, if p_clocked, those of a time. Bound when it was created, not
-- pinned, so that the planner inlines it.
CREATE OR REPLACE FUNCTION search_facts(
    p_app_name text, p_user_id text, p_wanted boolean, p_clocked boolean, p_as_of timestamptz, p_known_at timestamptz)
RETURNS TABLE (
    id uuid, thread_id uuid, fact_type varchar, key varchar, value jsonb, content text, search tsvector,
    embedding vector, embedding_model text, confidence double precision, from_seq bigint, upto_seq bigint,
    source_seqs bigint[], valid_from timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT f.id, f.thread_id, f.fact_type, f.key, f.value, f.content, f.search, f.embedding, f.embedding_model,
           f.confidence, f.from_seq, f.upto_seq, f.source_seqs, f.valid_from
    FROM facts AS f
    WHERE p_wanted AND NOT p_clocked AND f.app_name = p_app_name AND f.user_id = p_user_id
      AND (f.valid_until IS NULL OR f.valid_until > p_as_of)
    UNION ALL
    SELECT s.id, s.thread_id, s.fact_type, s.key, s.value, c.content, coalesce(f.search, search_document(c.content)),
           f.embedding, f.embedding_model, s.confidence, s.source_seqs[1],
           s.source_seqs[cardinality(s.source_seqs)], s.source_seqs, s.valid_from
    FROM facts_as_of(p_app_name, p_user_id, p_as_of, p_known_at) AS s
    LEFT JOIN facts AS f ON f.id = s.id AND f.app_name = p_app_name AND f.user_id = p_user_id
                         AND f.recorded_at = s.recorded_at AND f.value = s.value,
    LATERAL (SELECT coalesce(f.content, fact_text(s.key, s.value)) AS content) AS c
    WHERE p_wanted AND p_clocked;
END;

-- The turns that a search covers, and how each matches by itself. The plan for all turns of a user is
-- made once, any other for its arguments, as in `search_learned`.
CREATE OR REPLACE FUNCTION search_turns(
    p_app_name text, p_user_id text, p_wanted boolean, p_messages text, p_latest integer, p_thread_id uuid,
    p_ids uuid[], p_since timestamptz, p_until timestamptz, p_metadata jsonb, p_any tsquery, p_words text,
    p_embedding vector, p_embedding_model text)
RETURNS TABLE (
    id uuid, thread_id uuid, place bigint, length integer, document tsvector, similarity double precision,
    author_match boolean, asks boolean, occurred_at timestamptz)
LANGUAGE plpgsql STABLE ROWS 1000 SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET jit = off SET work_mem = '32MB' SET enable_nestloop = off
SET enable_mergejoin = off SET enable_seqscan = off SET enable_indexscan = on
AS $$
#variable_conflict use_column
DECLARE
    v_query halfvec := l2_normalize(p_embedding)::halfvec;
    v_size  integer := vector_dims(p_embedding);
BEGIN
    IF NOT p_wanted THEN
        RETURN;
    END IF;
    IF p_ids IS NULL AND p_messages = 'all'
       AND num_nonnulls(p_thread_id, p_since, p_until, p_metadata, p_latest) = 0
    THEN
        PERFORM set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_indexscan', 'off', true);
        RETURN QUERY
        SELECT g.id, g.thread_id, g.sequence_num AS place, length(g.search) AS length,
               CASE WHEN g.search @@ p_any THEN g.search END AS document,
               CASE WHEN w.id IS NOT NULL THEN w.similarity WHEN v_size IS NOT NULL
                    THEN model_similarity(g.embedding, g.embedding_model, p_embedding, p_embedding_model) END AS similarity,
               g.author NOT IN ('user', 'model', 'assistant', 'tool', 'agent')
                   AND strpos(p_words, ' ' || lower(g.author) || ' ') > 0 AS author_match,
               right(g.content, 1) IN ('?', '？') AS asks, g.occurred_at
        FROM (
            SELECT m.* FROM threads AS t CROSS JOIN LATERAL (
                SELECT * FROM messages AS m
                WHERE m.thread_id = t.id AND m.app_name = p_app_name AND m.user_id = p_user_id OFFSET 0) AS m
            WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND NOT has_expired(t) OFFSET 0) AS g
        -- The vectors of the whole scope. OFFSET has them compared before they are joined: a join would copy them.
        LEFT JOIN (
            SELECT v.id, least(-(v.embedding <#> v_query), 1) AS similarity FROM message_vectors AS v
            WHERE v.app_name = p_app_name AND v.user_id = p_user_id AND v.model = p_embedding_model
              AND vector_dims(v.embedding) = v_size OFFSET 0) AS w ON w.id = g.id;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT g.id, g.thread_id, g.sequence_num AS place, length(g.search) AS length,
           CASE WHEN g.search @@ p_any THEN g.search END AS document,
           coalesce(v.similarity,
                    model_similarity(g.embedding, g.embedding_model, p_embedding, p_embedding_model)) AS similarity,
           g.author NOT IN ('user', 'model', 'assistant', 'tool', 'agent')
               AND strpos(p_words, ' ' || lower(g.author) || ' ') > 0 AS author_match,
           right(g.content, 1) IN ('?', '？') AS asks, g.occurred_at
    FROM (SELECT t.id, CASE p_messages WHEN 'all' THEN 0 ELSE t.fast_upto_seq END AS after_seq
          FROM threads AS t
          WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND NOT has_expired(t)
            AND (p_messages = 'all' OR t.fast_upto_seq < t.last_seq) AND (p_thread_id IS NULL OR t.id = p_thread_id)
          ORDER BY t.last_event_at DESC NULLS LAST) AS t
    CROSS JOIN LATERAL (
        SELECT m.id, m.thread_id, m.sequence_num, m.author, m.content, m.search, m.embedding, m.embedding_model,
               m.occurred_at
        FROM messages AS m
        WHERE m.thread_id = t.id AND m.app_name = p_app_name AND m.user_id = p_user_id
          AND m.sequence_num > t.after_seq
          AND (p_ids IS NULL OR m.id = ANY (p_ids))
          AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
          AND (p_metadata IS NULL OR m.metadata @> p_metadata)
        ORDER BY m.sequence_num DESC LIMIT p_latest) AS g
    LEFT JOIN LATERAL (
        SELECT least(-(v.embedding <#> v_query), 1) AS similarity FROM message_vectors AS v
        WHERE v.id = g.id AND v.model = p_embedding_model AND vector_dims(v.embedding) = v_size
        OFFSET 0) AS v ON true
    LIMIT p_latest;
END
$$;

-- The memories that a search covers, and how each matches by itself; p_ids NULL: all of the scope. The plan for a whole
-- scope is made once, and reads both tables by their scope; any other is planned for its arguments. p_few: up to eight
-- queries of a single term, how often each occurs is tf1 to tf8 of a whole scope, in place of its documents. Without them,
-- and in any other plan, those documents are returned that p_any matches.
CREATE OR REPLACE FUNCTION search_learned(
    p_app_name text, p_user_id text, p_ids uuid[], p_without_copies boolean, p_memory_types text[], p_thread_id uuid,
    p_since timestamptz, p_until timestamptz, p_metadata jsonb, p_any tsquery, p_embedding vector,
    p_embedding_model text, p_curve text, p_decay_rate double precision, p_now timestamptz, p_few tsquery[])
RETURNS TABLE (
    id uuid, length integer, document tsvector, similarity double precision, occurred_at timestamptz,
    retention double precision,
    tf1 double precision, tf2 double precision, tf3 double precision, tf4 double precision,
    tf5 double precision, tf6 double precision, tf7 double precision, tf8 double precision)
LANGUAGE plpgsql STABLE ROWS 1000 SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET jit = off SET work_mem = '32MB' SET enable_nestloop = off
SET enable_mergejoin = off SET enable_seqscan = off SET enable_indexscan = on
AS $$
#variable_conflict use_column
DECLARE
    v_query halfvec := l2_normalize(p_embedding)::halfvec;
    v_size  integer := vector_dims(p_embedding);
    v_few1  tsquery := p_few[1];
    v_few2  tsquery := p_few[2];
    v_few3  tsquery := p_few[3];
    v_few4  tsquery := p_few[4];
    v_few5  tsquery := p_few[5];
    v_few6  tsquery := p_few[6];
    v_few7  tsquery := p_few[7];
    v_few8  tsquery := p_few[8];
BEGIN
    IF p_ids IS NULL AND num_nonnulls(p_memory_types, p_thread_id, p_since, p_until, p_metadata) = 0 THEN
        PERFORM set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_indexscan', 'off', true);
        RETURN QUERY
        SELECT m.id, length(m.search), CASE WHEN p_few IS NULL AND m.search @@ p_any THEN m.search END,
               CASE WHEN w.id IS NOT NULL THEN w.similarity WHEN v_size IS NOT NULL
                    THEN model_similarity(m.embedding, m.embedding_model, p_embedding, p_embedding_model) END,
               m.occurred_at,
               retention_score(p_curve, m.initial_score, m.access_count,
                               CASE WHEN NOT m.pinned THEN m.last_accessed_at END, p_decay_rate, p_now),
               term_frequency(m.search, v_few1), term_frequency(m.search, v_few2),
               term_frequency(m.search, v_few3), term_frequency(m.search, v_few4),
               term_frequency(m.search, v_few5), term_frequency(m.search, v_few6),
               term_frequency(m.search, v_few7), term_frequency(m.search, v_few8)
        FROM memories AS m
        -- OFFSET has the vectors compared before they are joined: a join would copy them.
        LEFT JOIN (
            SELECT v.id, least(-(v.embedding <#> v_query), 1) AS similarity FROM memory_vectors AS v
            WHERE v.app_name = p_app_name AND v.user_id = p_user_id AND v.model = p_embedding_model
              AND vector_dims(v.embedding) = v_size OFFSET 0) AS w ON w.id = m.id
        WHERE m.app_name = p_app_name AND m.user_id = p_user_id
          -- A slice repeats its turns word for word: where they are searched themselves, it is left out.
          AND NOT (p_without_copies AND m.memory_type = 'episodic' AND m.from_seq IS NOT NULL AND EXISTS (
                  SELECT FROM messages AS g JOIN threads AS t ON t.id = g.thread_id AND NOT has_expired(t)
                  WHERE g.thread_id = m.thread_id AND g.sequence_num BETWEEN m.from_seq AND m.upto_seq));
        RETURN;
    END IF;
    RETURN QUERY
    SELECT m.id, length(m.search), CASE WHEN m.search @@ p_any THEN m.search END,
           coalesce(v.similarity,
                    model_similarity(m.embedding, m.embedding_model, p_embedding, p_embedding_model)),
           m.occurred_at,
           retention_score(p_curve, m.initial_score, m.access_count,
                           CASE WHEN NOT m.pinned THEN m.last_accessed_at END, p_decay_rate, p_now),
           NULL::float8, NULL::float8, NULL::float8, NULL::float8, NULL::float8, NULL::float8, NULL::float8, NULL::float8
    FROM memories AS m
    LEFT JOIN LATERAL (
        SELECT least(-(v.embedding <#> v_query), 1) AS similarity FROM memory_vectors AS v
        WHERE v.id = m.id AND v.model = p_embedding_model AND vector_dims(v.embedding) = v_size
        OFFSET 0) AS v ON true
    WHERE m.app_name = p_app_name AND m.user_id = p_user_id
      AND (p_ids IS NULL OR m.id = ANY (p_ids))
      AND NOT (p_without_copies AND m.memory_type = 'episodic' AND m.from_seq IS NOT NULL AND EXISTS (
              SELECT FROM messages AS g JOIN threads AS t ON t.id = g.thread_id AND NOT has_expired(t)
              WHERE g.thread_id = m.thread_id AND g.sequence_num BETWEEN m.from_seq AND m.upto_seq))
      AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
      AND (p_thread_id IS NULL OR m.thread_id = p_thread_id)
      AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
      AND (p_metadata IS NULL OR m.metadata @> p_metadata);
END
$$;

-- By which words questions ask for what, in English and Chinese, and the words of the keys of facts that answer them, in
-- the normal form of keys (hippocampus/facts/keys.py). is_person: the fact is one about this relative.
CREATE OR REPLACE FUNCTION asked_words() RETURNS TABLE (asked text[], words text[], is_person boolean)
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT string_to_array(a.asked, '|'), string_to_array(a.words, ' '), a.is_person FROM (VALUES
        ('live|lives|reside|resides|residence|based|home|city|town|居住|定居|住|家在|城市|安家',
         'home city town residence location place', false),
        ('work|works|working|workplace|employer|employed|employment|company|job|上班|工作|公司|单位|任职|就职',
         'employer company workplace job work occupation employment', false),
        ('occupation|profession|career|for a living|做什么的|职业|岗位', 'job work occupation profession employment', false),
        ('from|come from|comes from|hometown|哪里人|哪儿人|老家|家乡|籍贯', 'origin hometown birthplace', false),
        ('how old|age|多大|几岁|多少岁|年龄|岁数|年纪', 'age', false),
        ('birthday|birthdate|生日', 'birthday birth date', false),
        ('name|named|called|叫什么|名字|姓名', 'name', false),
        ('allergy|allergies|allergic|过敏', 'allergy', false),
        ('diet|饮食|忌口', 'diet', false),
        ('study|studies|studying|major|专业|学什么', 'study major', false),
        ('school|university|college|学校|大学', 'school university college', false),
        ('married|single|engaged|relationship|marital|结婚|单身|婚姻', 'relationship status marital marriage', false),
        ('pet|pets|宠物', 'pet', false),
        ('favorite|favourite|最喜欢|最爱', 'favorite', false),
        ('phone|telephone|mobile|电话|手机', 'phone number', false),
        ('email|e mail|邮箱', 'email address', false),
        ('brother|brothers|哥哥|弟弟|兄弟', 'brother older younger', true),
        ('sister|sisters|姐姐|妹妹|姐妹', 'sister older younger', true),
        ('mother|mom|mum|妈妈|母亲', 'mother', true), ('father|dad|爸爸|父亲', 'father', true),
        ('parents|父母|爸妈', 'parent', true),
        ('husband|spouse|partner|丈夫|老公|先生', 'husband partner', true),
        ('wife|spouse|partner|妻子|老婆|太太', 'wife partner', true),
        ('boyfriend|男朋友|男友', 'boyfriend partner', true), ('girlfriend|女朋友|女友', 'girlfriend partner', true),
        ('daughter|daughters|女儿', 'daughter child', true), ('son|sons|儿子', 'son child', true),
        ('child|children|kid|kids|孩子|子女', 'child daughter son', true),
        ('grandmother|grandma|外婆|姥姥|奶奶', 'grandmother maternal paternal', true),
        ('grandfather|grandpa|外公|姥爷|爷爷', 'grandfather maternal paternal', true)
    ) AS a (asked, words, is_person)
$$;

-- The facts that answer a question about the present state, in whatever language they were stated: all words of the key
-- are asked for ('home' by 'Where does she live?'), and the question asks for nothing that they do not hold. Who, when,
-- why, how, with and from ask for something else about a relation, unless it is itself a person, a day or an origin.
CREATE OR REPLACE FUNCTION asked_facts(p_app_name text, p_user_id text, p_query text, p_terms text[], p_now timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
    -- What says nothing of its own in a question.
    c_idle constant text[] := string_to_array('now|currently|nowadays|presently|these days|moment|right|still|any more|'
        'anymore|tell|know|remember|user|address|number|status|现在|目前|如今|仍|请问|告诉|知道|记得|用户|哪里|哪儿|什么时候|'
        '何时|哪一天|哪天|几月几号|几号|什么|多少|谁|吗|呢|吧|了|在|的|是|有|还|她|他|你|您|我|们|哪|家|个|对|叫|里', '|');
    v_words    text := plain_words(normalize(left(p_query, 1000), NFKC));
    v_word     text;
    v_left     text;
    v_asked    text[];
    v_by       text[];
    v_relative integer;
    v_states   text[];
    v_people   text[];
    v_named    text[];
    v_names    text[];
    v_rest     text[];
BEGIN
    -- 'What can't she eat?' and 'Which foods should he avoid?' ask for allergies and diets.
    v_words := regexp_replace(v_words, ' (can t|cannot|can not|must not|mustn t|should not|shouldn t|does not|doesn t'
        '|do not|don t)( \S+){0,2} eat | foods?( \S+){0,2} avoid | avoid eating ', ' allergy diet ', 'g');
    v_words := regexp_replace(v_words, '(不能|不可以|不)吃|吃不了', '过敏忌口', 'g');
    -- A word of Latin letters stands between blanks.
    SELECT array_agg(w.word) FILTER (WHERE NOT a.is_person), array_agg(w.word) FILTER (WHERE a.is_person),
           array_agg(DISTINCT q.word), array_agg(DISTINCT q.word) FILTER (WHERE NOT a.is_person),
           count(DISTINCT q.word) FILTER (WHERE a.is_person)
    INTO v_states, v_people, v_asked, v_by, v_relative
    FROM asked_words() AS a, unnest(a.asked) AS q (word), unnest(a.words) AS w (word)
    WHERE strpos(v_words, CASE WHEN octet_length(q.word) = length(q.word) THEN ' ' || q.word || ' ' ELSE q.word END) > 0;
    IF v_asked IS NULL OR replace(v_words, ' how old ', ' ') ~ ' (why|how|with) |怎么|怎样|如何|为什么|为何' THEN
        RETURN NULL;
    END IF;
    IF v_words ~ ' whom? |谁' THEN
        IF v_words ~ ' who (is|are|s) | who .* (is|are) +$|是谁(?!的)|谁是' THEN
            -- 'Who is her husband?' asks for his name.
            v_states := CASE WHEN v_by IS NULL AND v_relative = 1 THEN v_people || 'name'::text
                             WHEN v_by <@ '{favorite,favourite,employer,最喜欢,最爱}'::text[] THEN v_states END;
        ELSIF v_words !~ ' (work|works|working) for +((now|currently|nowadays|these days) +)?$| for whom ' THEN
            v_states := NULL;
        END IF;
    END IF;
    IF v_words ~ ' when |什么时候|何时|哪一?天|几号|几点' AND NOT v_by <@ '{birthday,birthdate,生日}'::text[] THEN
        v_states := NULL;
    END IF;
    IF strpos(v_words, ' from ') > 0 THEN
        -- 'Where is she from?', 'Does she come from Oslo?', but not 'Is this email from her?', 'Does she work from home?'.
        v_states := CASE WHEN v_words ~ ' comes? from | (where|(what|which) (city|town|country|place|region)) .* from +$'
                              AND v_by <@ '{from,come from,comes from,city,town,hometown}'::text[]
                         THEN '{origin,hometown,birthplace}'::text[] END;
    END IF;
    IF v_states IS NULL THEN
        RETURN NULL;
    END IF;
    v_left := v_words;
    FOREACH v_word IN ARRAY v_asked || c_idle LOOP
        v_left := CASE WHEN octet_length(v_word) = length(v_word) THEN replace(v_left, ' ' || v_word || ' ', ' ')
                       ELSE replace(v_left, v_word, ' ') END;
    END LOOP;
    v_rest := query_terms(v_left);
    SELECT array_agg(s.name) FILTER (WHERE strpos(v_words, CASE WHEN octet_length(s.name) = length(s.name)
                                                                THEN ' ' || s.name || ' ' ELSE s.name END) > 0)
    INTO v_named
    FROM (SELECT DISTINCT lower(f.value ->> 'subject') AS name FROM facts AS f
          WHERE f.app_name = p_app_name AND f.user_id = p_user_id AND f.value ? 'subject') AS s;
    -- What the user is called stands for the user.
    SELECT array_agg(t.term) INTO v_names
    FROM facts AS f, unnest(tsvector_to_array(f.search)) AS t (term)
    WHERE f.app_name = p_app_name AND f.user_id = p_user_id AND f.normal_key = 'name'
      AND (f.valid_until IS NULL OR f.valid_until > p_now);
    -- 'Does this come from Mei?' names no place.
    IF v_words ~ ' comes? from ' AND v_words !~ ' (where|what|which) '
       AND v_rest <@ (coalesce(v_names, '{}') || query_terms(coalesce(array_to_string(v_named, ' '), ''))) THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT array_agg(f.id)
        FROM facts AS f,
             -- The normal form of a key and a question's terms are cut differently ('movie' and 'movi', 'jame' and
             -- 'James'): both are compared as terms.
             LATERAL (SELECT tsvector_to_array(search_document(coalesce(f.value ->> 'subject', ''))) AS terms OFFSET 0) AS n,
             -- The element of a collection is what is asked for: 'allergy:buckwheat'.
             LATERAL (SELECT array_agg(k.word) AS words,
                             bool_and(k.word = ANY (v_states || v_people || '{user,current,present,now,family}'::text[])
                                      OR coalesce(k.terms <@ p_terms, false)) AS are_asked
                      FROM (SELECT w.word, nullif(tsvector_to_array(search_document(w.word)), '{}') AS terms
                            FROM unnest(string_to_array(f.normal_key, ' ')) AS w (word) OFFSET 0) AS k
                      WHERE (k.terms <@ n.terms) IS NOT TRUE
                        AND k.word <> ALL (string_to_array(lower(coalesce(f.value ->> 'subject', '')), ' '))
                        AND (f.key !~ ':(allergy|diet|pet|studies|favorite):|^(allergy|diet|pet|studies):'
                             OR k.word IN ('allergy', 'diet', 'pet', 'study', 'favorite', 'family') OR k.terms <@ p_terms
                             OR k.word = ANY (v_people))) AS e
        WHERE f.app_name = p_app_name AND f.user_id = p_user_id AND (f.valid_until IS NULL OR f.valid_until > p_now)
          -- What tells most facts is compared first: whom they are about, then the words of the table, those of keys.
          AND CASE WHEN v_named IS NULL OR coalesce(lower(f.value ->> 'subject') = ANY (v_named), true)
                   THEN string_to_array(f.normal_key, ' ') && v_states END
          AND e.words && v_states AND e.are_asked
          -- 'What is the name of her company?' does not ask for hers.
          AND (e.words <> '{name}' OR v_by <@ '{name,named,called,叫什么,名字,姓名}'::text[])
          AND (v_people IS NULL OR e.words && v_people)
          AND (v_people IS NOT NULL OR NOT 'family' = ANY (e.words))
          -- 'Does she still live in Lisbon?' names a former value.
          AND v_rest <@ (tsvector_to_array(f.search) || n.terms || coalesce(v_names, '{}')
                         || CASE WHEN v_words ~ ' (still|anymore|any more) |还|仍' THEN ARRAY(
                                SELECT unnest(tsvector_to_array(search_document(v.content))) FROM fact_versions AS v
                                WHERE v.fact_id = f.id AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL)
                            ELSE '{}' END));
END
$$;

-- Turns that state what holds no longer, with the id of the present fact or, if it ended, of the turn that says so: a version of a fact was extracted from
-- them, and another value holds now, or none. Only where the query shares a word with what the two have in common, such
-- as 'lives in', or is near to the fact, and names nothing that the former value alone has: it asks for the present. The
-- name of whom the fact is about is no such word. p_asked: facts that the query asks for, see `asked_facts`.
CREATE OR REPLACE FUNCTION former_statements(
    p_app_name text, p_user_id text, p_terms text[], p_embedding vector, p_embedding_model text, p_now timestamptz,
    p_asked uuid[] DEFAULT NULL)
RETURNS TABLE (message_id uuid, fact_id uuid)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT g.id, CASE WHEN f.valid_until <= p_now THEN (
                          SELECT m.id FROM fact_versions AS e
                          JOIN messages AS m ON m.thread_id = e.thread_id AND m.sequence_num = e.source_seqs[cardinality(e.source_seqs)]
                          WHERE e.fact_id = f.id AND e.value IS NULL AND e.valid_from = f.valid_until
                            AND e.accepted_at IS NOT NULL AND e.retracted_at IS NULL
                            AND m.app_name = p_app_name AND m.user_id = p_user_id
                          ORDER BY e.recorded_at DESC, e.id DESC LIMIT 1) ELSE f.id END
    FROM facts AS f
    JOIN fact_versions AS v ON v.fact_id = f.id AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL
        AND v.value IS NOT NULL AND v.valid_from <= f.valid_from
        AND (v.value <> f.value OR f.valid_until <= p_now)
    CROSS JOIN LATERAL (
        SELECT coalesce(bool_or(t.term = ANY (n.terms)), false) AS shares,
               coalesce(bool_or(t.term <> ALL (n.terms)), false) AS names_former
        FROM (SELECT tsvector_to_array(f.search) AS terms,
                     tsvector_to_array(search_document(coalesce(f.value ->> 'subject', ''))) AS subject OFFSET 0) AS n,
             unnest(tsvector_to_array(search_document(v.content))) AS t (term)
        WHERE t.term = ANY (p_terms) AND t.term <> ALL (n.subject)) AS asked
    JOIN messages AS g ON g.thread_id = v.thread_id AND g.sequence_num = ANY (v.source_seqs)
    WHERE f.app_name = p_app_name AND f.user_id = p_user_id
      AND (f.id = ANY (p_asked)
           OR NOT asked.names_former
              AND (asked.shares
                   OR model_similarity(f.embedding, f.embedding_model, p_embedding, p_embedding_model) > 0.4))
      AND NOT (f.thread_id = g.thread_id AND g.sequence_num = ANY (f.source_seqs)
               -- A correction cites the turn that it corrects, too.
               AND v.valid_from = f.valid_from
               AND (f.valid_until IS NULL OR f.valid_until > p_now));
END
$$;

-- Searches what one user of one app said and what was learned from it, the best match first.
--
-- BM25 (k1 0.6, b 0.6) is exact: document frequencies, number and mean length of the rows are counted over the rows
-- that may match. The parts are normalised among them (text by the best row, similarity from the worst to the best),
-- weighted and summed. A row without a vector of this model is judged by its text alone. Over more than 5,000 memories
-- only `memory_candidates` are scored, over more than 5,000 turns only `turn_candidates`. Where nothing but the vectors of
-- memories has a weight, a memory is judged by its words only if it has no vector of the model, and the nearest are
-- selected before they are scored: see `nearest_of_scope`.
--
-- Turns, the slice that holds them and its summary are the same evidence, and are not returned together: a slice is not
-- searched where all turns are, and a summary or slice steps back if one of its turns is among the results, or a better
-- one of the same turns. So does an insight that was extracted from one turn, if the turn is among them.
--
-- p_sources: any of 'memory', 'fact', 'message'. p_messages: 'all' is every turn, 'recent' are those that fast_replay has
-- not reached yet, at most the latest 5,000 of them. p_session_id, p_since, p_until (exclusive), p_metadata and
-- p_memory_types narrow the rows; a fact has the metadata of the turns that it was extracted from, and only memories have a memory type.
-- p_said_since, p_said_until (exclusive), p_said_words (a tsquery, '' for none) and p_said_weights: the times that the
-- query names, one element each. A row of such a time that matches the words is preferred by the weight; one that matches
-- has the last of their terms. A weight over 1 says that the query asks for nothing but a time: then such rows match
-- without any of its words. The program makes them of the query: hippocampus/text/time_cues.py.
-- p_as_of, p_known_at: facts as they were true at the first time, and known at the second; see `facts_as_of`. A version
-- that is not the current one is judged by its words.
-- relevance does not depend on the other rows: the greatest of the cosine similarity, the share of the query's words
-- (by their weight) that the row contains, and, if the query asks only for a time, the share of the greatest weight of
-- a time. total counts all rows that match.
-- p_bare: return no more of a row than source, id, score, its parts, relevance and occurred_at.
-- p_explain: return parts, what each part adds to the score, in the order of SCORE_PARTS in hippocampus/search.py.
-- Errors: HP007 bad input, HP001 unknown session, HP049 the vector is not one of this model.
CREATE OR REPLACE FUNCTION search_memory(
    p_app_name text, p_user_id text, p_query text,
    p_embedding vector DEFAULT NULL, p_embedding_model text DEFAULT NULL, p_limit integer DEFAULT 10,
    p_sources text[] DEFAULT '{memory,fact,message}', p_messages text DEFAULT 'all',
    p_memory_types text[] DEFAULT NULL, p_session_id text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL, p_metadata jsonb DEFAULT NULL,
    p_min_relevance double precision DEFAULT 0, p_weights search_weights DEFAULT NULL,
    p_as_of timestamptz DEFAULT NULL, p_known_at timestamptz DEFAULT NULL,
    p_said_since timestamptz[] DEFAULT NULL, p_said_until timestamptz[] DEFAULT NULL, p_said_words text[] DEFAULT NULL,
    p_said_weights double precision[] DEFAULT NULL, p_explain boolean DEFAULT false, p_bare boolean DEFAULT false)
RETURNS TABLE (
    source text, id uuid, kind text, content text, metadata jsonb, score double precision, relevance double precision,
    bm25 double precision, context_bm25 double precision, similarity double precision,
    context_similarity double precision, author_match boolean, recency double precision, retention double precision,
    text_rank bigint, vector_rank bigint, matched_terms text[], thread_id uuid, session_id text,
    from_seq bigint, upto_seq bigint, source_seqs bigint[], occurred_at timestamptz, total bigint,
    parts double precision[])
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
-- Where one user has most rows, a plan that is made once would read them all, for any user. Candidates
-- of giant scopes are planned for their arguments.
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off SET work_mem = '32MB'
-- Otherwise all rows would be sorted for `sorted`, not those alone that its filters pass.
SET enable_presorted_aggregate = off
-- A query or a time without telling words is the empty tsquery, whose cast is a NOTICE to the client.
SET client_min_messages = warning
AS $$
#variable_conflict use_column
DECLARE
    c_exact constant integer := 5000;
    -- The weight of the words of a question for the turn that follows it; see `answered`.
    c_answer   constant double precision := 0.3;
    -- Facts have numbers below this, memories above it; turns have positive ones.
    c_facts    constant bigint := -1000000000;
    -- Subtracted from a turn whose fact has changed, and added to what holds now; see `moved`.
    c_changed  constant double precision := 0.25;
    -- Added to a fact that answers a question about the present state; see `asked_facts`.
    c_asked    constant double precision := 2.5;
    v_asked    uuid[];
    -- Whether nothing but vectors of memories counts. Then only memories without one are judged by their words.
    v_alone    boolean;
    v_held     bigint;
    v_terms    text[];
    v_forms    text[];
    v_places   integer[];
    v_singles  tsquery[];
    v_few      tsquery[];
    v_any      tsquery;
    v_kept     tsquery;
    v_timed    boolean := coalesce(cardinality(p_said_since), 0) > 0;
    -- The greatest weight of a time, if the query asks for nothing else.
    v_time     double precision := (SELECT max(c) FROM unnest(p_said_weights) AS c HAVING max(c) > 1);
    v_many     boolean;
    -- Whether the query may ask for the present state: no word of it is about the past, and it names no time.
    v_present  boolean := p_as_of IS NULL AND p_known_at IS NULL AND coalesce(cardinality(p_said_since), 0) = 0
        AND p_query !~* '\m(used to|before|former|formerly|previous|previously|earlier|originally|once|did|was|were|had)\M|以前|之前|原来|曾经|过去|当时';
    v_words    text := plain_words(p_query);
    v_now      timestamptz := engine_now();
    v_policy   app_policies := app_policy(p_app_name);
    w          search_weights := coalesce(p_weights, default_search_weights());
    -- The greatest score that there can be.
    v_scale    double precision := nullif(w.bm25 + w.context_bm25 + w.similarity + w.context_similarity
                                          + w.author + w.recency + w.retention + c_answer
                                          + CASE WHEN v_timed THEN (SELECT max(c) FROM unnest(p_said_weights) AS c)
                                                 ELSE 0 END, 0);
    v_memories boolean := 'memory' = ANY (p_sources);
    v_facts    boolean := 'fact' = ANY (p_sources) AND p_memory_types IS NULL;
    v_messages boolean := 'message' = ANY (p_sources) AND p_memory_types IS NULL AND p_messages <> 'none';
    v_clocked  boolean := p_as_of IS NOT NULL OR p_known_at IS NOT NULL;
    v_latest   integer := CASE WHEN p_messages = 'recent' THEN c_exact END;
    v_copies   boolean := v_messages AND p_messages = 'all' AND p_metadata IS NULL;
    v_query    halfvec := l2_normalize(p_embedding)::halfvec;
    v_size     integer := vector_dims(p_embedding);
    v_thread   uuid;
    v_giant    boolean;
    v_said     bigint;
    -- Whether all rows are counted here, and the numbers of those memories and turns that are: of a giant scope they
    -- were counted before.
    v_counted      boolean;
    v_counted_from bigint;
    v_counted_to   bigint;
    near       record;
    turns      record;
BEGIN
    IF btrim(p_query) = '' OR p_query IS NULL THEN
        RAISE EXCEPTION 'the query is blank: give the words to search for' USING ERRCODE = 'HP007';
    ELSIF p_limit NOT BETWEEN 1 AND (CASE WHEN p_bare THEN 4000 ELSE 1000 END) THEN
        RAISE EXCEPTION 'limit must be from 1 to %, not %', CASE WHEN p_bare THEN 4000 ELSE 1000 END, p_limit
            USING ERRCODE = 'HP007';
    ELSIF NOT p_sources <@ '{memory,fact,message}' OR p_messages NOT IN ('recent', 'all', 'none') THEN
        RAISE EXCEPTION 'sources must be memory, fact or message, and messages must be recent, all or none' USING ERRCODE = 'HP007';
    END IF;
    IF p_session_id IS NOT NULL THEN
        SELECT t.id INTO v_thread FROM threads AS t
        WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id AND NOT has_expired(t);
        IF NOT FOUND THEN
            PERFORM refuse_missing_session(p_app_name, p_user_id, p_session_id);
        END IF;
    END IF;
    IF p_embedding IS NOT NULL THEN
        PERFORM check_dimensions(p_embedding_model, v_size, (
            SELECT s.size FROM (
                (SELECT vector_dims(v.embedding) FROM message_vectors AS v
                 WHERE v.app_name = p_app_name AND v.user_id = p_user_id AND v.model = p_embedding_model LIMIT 1)
                UNION ALL
                (SELECT vector_dims(v.embedding) FROM memory_vectors AS v
                 WHERE v.app_name = p_app_name AND v.user_id = p_user_id AND v.model = p_embedding_model LIMIT 1)) AS s (size)
            LIMIT 1));
    END IF;
    -- The index alone tells how many there are at all; only of more, it is counted how many pass the filters.
    v_held := CASE WHEN v_memories THEN (
        SELECT count(*) FROM (SELECT FROM memories AS m WHERE m.app_name = p_app_name AND m.user_id = p_user_id
                              LIMIT c_exact + 1) AS m) ELSE 0 END;
    v_giant := v_thread IS NULL AND v_held > c_exact;
    IF v_giant AND num_nonnulls(p_memory_types, p_since, p_until, p_metadata) > 0 THEN
        SELECT count(*) > c_exact INTO v_giant FROM (
            SELECT FROM memories AS m
            WHERE m.app_name = p_app_name AND m.user_id = p_user_id
              AND (p_memory_types IS NULL OR m.memory_type = ANY (p_memory_types))
              AND (p_since IS NULL OR m.occurred_at >= p_since) AND (p_until IS NULL OR m.occurred_at < p_until)
              AND (p_metadata IS NULL OR m.metadata @> p_metadata)
            LIMIT c_exact + 1) AS counted;
    END IF;
    SELECT NULL::uuid[] AS ids, NULL::double precision[] AS seen, NULL::double precision AS total,
           NULL::double precision AS mean_length, NULL::bigint AS matching, NULL::double precision AS far INTO near;
    v_alone := p_embedding IS NOT NULL AND v_memories AND NOT v_facts AND NOT v_messages AND NOT v_timed
        AND w.similarity + w.context_similarity > 0 AND w.bm25 = 0 AND w.context_bm25 = 0 AND w.recency = 0
        AND w.retention = 0;
    -- Of fewer memories, or for more results, scoring all of them costs less.
    IF v_alone AND v_held BETWEEN 4 * p_limit AND c_exact
       AND NOT EXISTS (SELECT FROM vector_fill AS f WHERE f.table_name = 'memories')
    THEN
        SELECT n.ids, n.matching, n.far INTO near.ids, near.matching, near.far
        FROM nearest_of_scope(p_app_name, p_user_id, v_held, v_query, p_embedding_model, 2 * p_limit, p_min_relevance,
                              p_memory_types, v_thread, p_since, p_until, p_metadata) AS n;
    END IF;
    v_terms := CASE WHEN near.ids IS NULL THEN query_terms(p_query) ELSE '{}' END;
    IF cardinality(v_terms) > 512 THEN
        v_terms := rare_terms(p_app_name, p_user_id, v_terms);
    END IF;
    SELECT array_agg(f.form ORDER BY f.place, f.form), array_agg(f.place ORDER BY f.place, f.form),
           array_agg(any_term(ARRAY[f.form]) ORDER BY f.place, f.form), any_term(array_agg(f.form))
    INTO v_forms, v_places, v_singles, v_any FROM term_forms(v_terms) AS f;
    v_any := coalesce(v_any, ''::tsquery);
    -- Many terms are looked up in the unnested documents, few by one query each.
    v_many := cardinality(v_forms) > 40;
    -- The frequencies of few terms are read with the memories, and no document is kept: it would be copied three times.
    v_few := CASE WHEN cardinality(v_forms) <= 8 AND NOT v_timed AND NOT v_alone THEN v_singles END;
    v_kept := CASE WHEN v_timed THEN v_any || last_terms(p_said_words) ELSE v_any END;
    IF v_giant THEN
        SELECT c.ids, c.seen, c.total, c.mean_length INTO near.ids, near.seen, near.total, near.mean_length
        FROM memory_candidates(
            p_app_name, p_user_id, form_queries(v_forms, v_places), p_embedding, p_embedding_model, p_memory_types, p_since, p_until, p_metadata,
            p_limit) AS c;
    END IF;
    SELECT NULL::uuid[] AS ids, NULL::bigint[] AS places, NULL::double precision[] AS seen,
           NULL::double precision AS total, NULL::double precision AS mean_length INTO turns;
    -- A session has at most as many turns as the number of its last one.
    v_said := (SELECT sum(t.last_seq) FROM threads AS t WHERE t.app_name = p_app_name AND t.user_id = p_user_id);
    v_messages := v_messages AND v_said > 0;
    IF v_messages AND p_messages = 'all' AND v_said > c_exact THEN
        SELECT count(*) > c_exact INTO v_giant FROM (
            SELECT FROM threads AS t JOIN messages AS g ON g.thread_id = t.id
            WHERE t.app_name = p_app_name AND t.user_id = p_user_id
              AND g.app_name = p_app_name AND g.user_id = p_user_id AND (v_thread IS NULL OR t.id = v_thread)
              AND (p_since IS NULL OR g.occurred_at >= p_since) AND (p_until IS NULL OR g.occurred_at < p_until)
              AND (p_metadata IS NULL OR g.metadata @> p_metadata)
            LIMIT c_exact + 1) AS counted;
        IF v_giant THEN
            SELECT * INTO turns FROM turn_candidates(
                p_app_name, p_user_id, form_queries(v_forms, v_places), p_embedding, p_embedding_model, v_thread, p_since, p_until, p_metadata,
                p_limit, p_said_since, p_said_until, p_said_words, p_said_weights);
        END IF;
    END IF;

    v_present := v_present AND EXISTS (SELECT FROM facts AS f WHERE f.app_name = p_app_name AND f.user_id = p_user_id);
    IF v_present THEN
        v_asked := CASE WHEN v_facts THEN asked_facts(p_app_name, p_user_id, p_query, v_terms, v_now) END;
        v_scale := v_scale + CASE WHEN v_asked IS NULL THEN 0 ELSE c_asked END;
    END IF;
    v_counted := near.ids IS NULL AND turns.ids IS NULL;
    v_counted_from := CASE WHEN near.ids IS NULL THEN c_facts ELSE 0 END;
    v_counted_to := CASE WHEN turns.ids IS NULL THEN 9e18 ELSE 0 END;

    RETURN QUERY
    WITH held AS (
        SELECT * FROM search_facts(p_app_name, p_user_id, v_facts, v_clocked, coalesce(p_as_of, v_now),
                                   coalesce(p_known_at, v_now))
    ), learned AS (
        -- Memories have negative numbers, facts those below -1,000,000,000: neither has neighbours.
        SELECT -m.n AS n, m.id, m.length, CASE WHEN NOT v_alone OR m.similarity IS NULL THEN m.document END AS document,
               m.similarity, m.occurred_at, m.retention, m.tf1, m.tf2, m.tf3, m.tf4, m.tf5, m.tf6, m.tf7, m.tf8
        FROM search_learned(p_app_name, p_user_id, near.ids, v_copies, p_memory_types, v_thread, p_since, p_until,
                            p_metadata, v_kept, p_embedding, p_embedding_model, v_policy.retention_curve,
                            v_policy.decay_rate, v_now, v_few)
             WITH ORDINALITY AS m (id, length, document, similarity, occurred_at, retention, tf1, tf2, tf3, tf4, tf5, tf6, tf7, tf8, n)
        WHERE v_memories
        UNION ALL
        SELECT -1000000000 - row_number() OVER (), f.id, length(f.search),
               CASE WHEN f.search @@ v_kept THEN f.search END,
               coalesce(CASE WHEN v.id IS NOT NULL THEN least(-(v.embedding <#> v_query), 1) END,
                        model_similarity(f.embedding, f.embedding_model, p_embedding, p_embedding_model)),
               f.valid_from, f.confidence, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        FROM held AS f
        LEFT JOIN fact_vectors AS v ON f.embedding_model = p_embedding_model AND v.id = f.id
            AND v.model = p_embedding_model AND vector_dims(v.embedding) = v_size
        WHERE (v_thread IS NULL OR f.thread_id = v_thread)
          AND (p_since IS NULL OR f.valid_from >= p_since) AND (p_until IS NULL OR f.valid_from < p_until)
          AND (p_metadata IS NULL OR EXISTS (
                  SELECT FROM messages AS g
                  WHERE g.thread_id = f.thread_id AND g.sequence_num = ANY (f.source_seqs) AND g.metadata @> p_metadata))
    ), matching_turns AS (
        SELECT * FROM search_turns(p_app_name, p_user_id, v_messages, p_messages, v_latest, v_thread, turns.ids, p_since,
                                   p_until, p_metadata, v_kept, v_words, p_embedding, p_embedding_model)
    ), numbered AS (
        -- n numbers the turns of a thread without gaps, whatever is between them, and leaves four numbers free
        -- between threads: a turn at most four away is of the same thread.
        SELECT t.*, coalesce(k.place, row_number() OVER (ORDER BY t.thread_id, t.place)
                                      + 4 * dense_rank() OVER (ORDER BY t.thread_id)) AS n
        FROM matching_turns AS t LEFT JOIN unnest(turns.ids, turns.places) AS k (id, place) ON k.id = t.id
    ), in_runs AS (
        SELECT t.*, t.n - row_number() OVER (ORDER BY t.n) AS run FROM numbered AS t
    ), docs AS MATERIALIZED (
        -- Among the turns around it, those before count 0.75 per step, those after 0.6, as in `spread`; of the vectors,
        -- two on either side count, 0.5 and 0.6 per step. Elements of one array cost less than as many window functions.
        SELECT d.n, d.length, d.document,
               0.75::float8 * coalesce(d.lengths[d.k - 1], 0) + 0.5625::float8 * coalesce(d.lengths[d.k - 2], 0)
               + 0.4219::float8 * coalesce(d.lengths[d.k - 3], 0) + 0.3164::float8 * coalesce(d.lengths[d.k - 4], 0)
               + 0.6::float8 * coalesce(d.lengths[d.k + 1], 0) + 0.36::float8 * coalesce(d.lengths[d.k + 2], 0)
               + 0.216::float8 * coalesce(d.lengths[d.k + 3], 0)
               + 0.1296::float8 * coalesce(d.lengths[d.k + 4], 0) AS length_around,
               d.similarity,
               (0.5::float8 * coalesce(d.similarities[d.k - 1], 0) + 0.25::float8 * coalesce(d.similarities[d.k - 2], 0)
                + 0.6::float8 * coalesce(d.similarities[d.k + 1], 0)
                + 0.36::float8 * coalesce(d.similarities[d.k + 2], 0)) / 1.71::float8 AS context_similarity,
               d.occurred_at, 1::float8 AS retention, d.author_match, d.asks,
               -- The turn whose question it follows.
               CASE WHEN NOT d.asks AND d.is_after_question THEN d.n - 1 END AS asked,
               d.id, d.following, d.thread_id, d.place,
               NULL::float8 AS tf1, NULL::float8 AS tf2, NULL::float8 AS tf3, NULL::float8 AS tf4,
               NULL::float8 AS tf5, NULL::float8 AS tf6, NULL::float8 AS tf7, NULL::float8 AS tf8
        FROM (
            SELECT r.*, (row_number() OVER beside)::integer AS k, array_agg(r.length) OVER beside AS lengths,
                   array_agg(coalesce(r.similarity, 0)) OVER beside AS similarities,
                   lag(r.asks, 1, false) OVER beside AS is_after_question, lead(r.id) OVER beside AS following
            FROM in_runs AS r
            WINDOW beside AS (PARTITION BY r.run ORDER BY r.n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        ) AS d
        UNION ALL
        SELECT l.n, l.length, l.document, NULL, l.similarity, l.similarity, l.occurred_at, l.retention, false, false, NULL,
               l.id, NULL, NULL, NULL,
               l.tf1, l.tf2, l.tf3, l.tf4, l.tf5, l.tf6, l.tf7, l.tf8
        FROM learned AS l
    ), together AS MATERIALIZED (
        -- How much the neighbours of a turn say about it, measured on 100 pairs.
        SELECT turn_cohesion(array_agg(p.id ORDER BY p.n), array_agg(p.following ORDER BY p.n)) AS cohesion
        FROM (SELECT d.n, d.id, d.following, row_number() OVER (ORDER BY d.n) AS place, count(*) OVER () AS size
              FROM docs AS d WHERE v_messages AND d.following IS NOT NULL) AS p
        WHERE p.place % (p.size / 100 + 1) = 0
    ), corpus AS MATERIALIZED (
        -- Where only candidates are read, the rest was counted when they were selected.
        SELECT (count(*) FILTER (WHERE v_counted OR d.n > v_counted_from AND d.n < v_counted_to OR d.n < c_facts)
                + coalesce(near.total, 0) + coalesce(turns.total, 0))::float8 AS size,
               greatest(coalesce(near.mean_length, turns.mean_length, avg(d.length)), 1)::float8 AS mean_length,
               greatest(avg(d.length + d.length_around * (SELECT cohesion FROM together)), 1)::float8 AS mean_context_length,
               coalesce(near.far, min(d.similarity)) AS far,
               nullif(max(d.similarity) - coalesce(near.far, min(d.similarity)), 0) AS span,
               coalesce(near.far, min(d.context_similarity)) AS context_far,
               nullif(max(d.context_similarity) - coalesce(near.far, min(d.context_similarity)), 0) AS context_span,
               ARRAY[count(d.tf1), count(d.tf2), count(d.tf3), count(d.tf4),
                     count(d.tf5), count(d.tf6), count(d.tf7), count(d.tf8)] AS held
        FROM docs AS d
    ), texts AS MATERIALIZED (
        SELECT d.n, d.length, d.document FROM docs AS d WHERE d.document IS NOT NULL
    ), hits AS MATERIALIZED (
        SELECT d.n, d.length, q.place, term_frequency(d.document, q.query) AS tf
        FROM unnest(v_singles, v_places) AS q (query, place)
        CROSS JOIN LATERAL (SELECT * FROM texts WHERE texts.document @@ q.query OFFSET 0) AS d
        WHERE NOT v_many
        UNION ALL
        SELECT d.n, d.length, q.place, least(cardinality(u.positions), 64)
        FROM texts AS d CROSS JOIN unnest(d.document) AS u
        JOIN unnest(v_forms, v_places) AS q (form, place) ON q.form = u.lexeme
        WHERE v_many
    ), terms AS MATERIALIZED (
        SELECT t.place, ln(1 + (greatest(c.size - f.seen, 0) + 0.5) / (f.seen + 0.5)) AS idf
        FROM corpus AS c, unnest(v_terms, near.seen, turns.seen) WITH ORDINALITY AS t (term, memories, turns, place)
        LEFT JOIN (SELECT o.place, sum(o.rows) AS others
                   FROM (SELECT h.place, count(*) AS rows FROM hits AS h
                         WHERE v_counted OR h.n > v_counted_from AND h.n < v_counted_to OR h.n < c_facts
                         GROUP BY h.place
                         UNION ALL
                         SELECT u.place, u.rows FROM corpus AS c, unnest(v_places, c.held) AS u (place, rows)) AS o
                   GROUP BY o.place) AS h ON h.place = t.place,
        LATERAL (SELECT (coalesce(t.memories, 0) + coalesce(t.turns, 0) + coalesce(h.others, 0))::float8 AS seen) AS f
    ), weights AS MATERIALIZED (
        SELECT array_agg(t.idf ORDER BY t.place) AS idf, nullif(sum(t.idf), 0) AS whole FROM terms AS t
    ), few AS MATERIALIZED (
        -- The weights of tf1 to tf8.
        SELECT w.idf[v_places[1]] AS w1, w.idf[v_places[2]] AS w2, w.idf[v_places[3]] AS w3, w.idf[v_places[4]] AS w4,
               w.idf[v_places[5]] AS w5, w.idf[v_places[6]] AS w6, w.idf[v_places[7]] AS w7, w.idf[v_places[8]] AS w8
        FROM weights AS w
    ), own AS MATERIALIZED (
        SELECT h.n, sum((SELECT idf FROM weights)[h.place] * h.tf * 1.6::float8
                        / (h.tf + 0.6::float8 * (0.4::float8
                                   + 0.6::float8 * h.length / (SELECT mean_length FROM corpus)))) AS bm25
        FROM hits AS h
        GROUP BY h.n
    ), spread AS (
        SELECT o.n, h.place,
               sum(h.tf * o.share * CASE WHEN o.shift = 0 THEN 1 ELSE (SELECT cohesion FROM together) END) AS tf
        FROM hits AS h CROSS JOIN LATERAL (
            SELECT h.n + s.shift AS n, s.shift, s.share
            FROM unnest('{-4,-3,-2,-1,0,1,2,3,4}'::integer[],
                        '{0.1296,0.216,0.36,0.6,1,0.75,0.5625,0.4219,0.3164}'::float8[]) AS s (shift, share) OFFSET 0) AS o
        WHERE v_messages AND h.n > 0
        GROUP BY o.n, h.place
    ), context AS MATERIALIZED (
        SELECT s.n, sum((SELECT idf FROM weights)[s.place] * s.tf * 1.6::float8
                        / (s.tf + 0.6::float8 * (0.4::float8
                                   + 0.6::float8 * (d.length + d.length_around * (SELECT cohesion FROM together))
                                     / (SELECT mean_context_length FROM corpus)))) AS bm25
        FROM spread AS s JOIN docs AS d ON d.n = s.n
        GROUP BY s.n
    ), cues AS MATERIALIZED (
        SELECT * FROM time_cues(p_said_since, p_said_until, p_said_words, p_said_weights) WHERE v_timed
    ), moved AS (
        -- Up: the rows of the times that the query names, said then, or said later in words such as 'yesterday'; and what
        -- holds now. Down: turns that state what holds no longer.
        SELECT m.n, max(m.said) + min(m.change) AS shift FROM (
            SELECT d.n, c.weight AS said, 0::float8 AS change
            FROM cues AS c JOIN docs AS d ON d.occurred_at <@ c.times
            WHERE c.term IS NULL
            UNION ALL
            SELECT d.n, c.weight, 0
            FROM (SELECT DISTINCT c.term, any_term(ARRAY[c.term]) AS query FROM cues AS c WHERE c.term IS NOT NULL) AS q
            CROSS JOIN LATERAL (SELECT * FROM docs WHERE docs.document @@ q.query OFFSET 0) AS d
            JOIN cues AS c ON c.term = q.term AND d.occurred_at <@ c.times AND d.document @@ c.query
            UNION ALL
            SELECT d.n, 0, c.change
            FROM former_statements(p_app_name, p_user_id, v_forms, p_embedding, p_embedding_model, v_now, v_asked) AS f,
                 LATERAL (VALUES (f.message_id, -c_changed), (f.fact_id, c_changed)) AS c (id, change)
            JOIN docs AS d ON d.id = c.id
            WHERE v_present
            UNION ALL
            SELECT d.n, c_asked, 0 FROM docs AS d WHERE v_asked IS NOT NULL AND d.id = ANY (v_asked)) AS m
        GROUP BY m.n
    ), scored AS MATERIALIZED (
        SELECT p.*, CASE WHEN p.id = ANY (v_asked) THEN 1
                         ELSE greatest(p.similarity, least(coalesce(p.bm25 / (SELECT whole FROM weights), 0), 1), p.shift / v_time, 0)
                         END AS relevance
        FROM (
            SELECT d.n, d.id, d.occurred_at, d.similarity, d.context_similarity, d.retention, d.author_match, d.asks,
                   d.bm25, CASE WHEN d.n > 0 THEN coalesce(x.bm25, 0) ELSE d.bm25 END AS context_bm25,
                   coalesce(a.bm25, 0) AS answered, coalesce(v.shift, 0) AS shift,
                   CASE WHEN d.n > 0 THEN (SELECT cohesion FROM together) ELSE 1 END AS cohesion
            FROM (
                SELECT d.*, CASE WHEN d.n > 0 OR d.document IS NOT NULL THEN coalesce(o.bm25, 0)
                    ELSE coalesce(w.w1 * d.tf1 * 1.6::float8 / (d.tf1 + d.k), 0)
                         + coalesce(w.w2 * d.tf2 * 1.6::float8 / (d.tf2 + d.k), 0)
                         + coalesce(w.w3 * d.tf3 * 1.6::float8 / (d.tf3 + d.k), 0)
                         + coalesce(w.w4 * d.tf4 * 1.6::float8 / (d.tf4 + d.k), 0)
                         + coalesce(w.w5 * d.tf5 * 1.6::float8 / (d.tf5 + d.k), 0)
                         + coalesce(w.w6 * d.tf6 * 1.6::float8 / (d.tf6 + d.k), 0)
                         + coalesce(w.w7 * d.tf7 * 1.6::float8 / (d.tf7 + d.k), 0)
                         + coalesce(w.w8 * d.tf8 * 1.6::float8 / (d.tf8 + d.k), 0) END AS bm25
                FROM (SELECT d.*, 0.6::float8 * (0.4::float8 + 0.6::float8 * d.length / (SELECT mean_length FROM corpus)) AS k
                      FROM docs AS d OFFSET 0) AS d
                CROSS JOIN few AS w LEFT JOIN own AS o ON o.n = d.n OFFSET 0) AS d
            LEFT JOIN context AS x ON x.n = d.n LEFT JOIN (SELECT * FROM own WHERE v_messages) AS a ON a.n = d.asked
            LEFT JOIN moved AS v ON v.n = d.n
            OFFSET 0) AS p
        WHERE p.bm25 > 0 OR p.context_bm25 > 0 OR p.similarity > 0 OR p.id = ANY (v_asked)
           OR p.shift / v_time > 0
    ), extremes AS MATERIALIZED (
        SELECT nullif(max(s.bm25), 0) AS text, nullif(max(s.context_bm25), 0) AS context FROM scored AS s
    ), normal AS (
        SELECT s.n, s.id, s.occurred_at, s.similarity, s.context_similarity, s.bm25, s.context_bm25, s.fresh, s.retention,
               s.relevance, s.author_match,
               -- What the neighbours do not say counts for the turn itself.
               greatest((w.bm25 * n_text + w.context_bm25 * (s.cohesion * n_context + (1 - s.cohesion) * n_text)
                + w.similarity * coalesce(n_vector, n_text)
                + w.context_similarity * (s.cohesion * coalesce(n_around, n_vector, n_context)
                                          + CASE WHEN n_vector IS NULL THEN (1 - s.cohesion) * n_text ELSE 0 END)
                + c_answer * s.cohesion * n_answered + s.shift
                + CASE WHEN s.author_match THEN w.author * greatest(n_text, n_context, n_vector) ELSE 0 END
                - CASE WHEN s.asks THEN w.question ELSE 0 END
                + w.recency * fresh + w.retention * s.retention)
               / v_scale, 0) AS score,
               -- The terms of that sum.
               CASE WHEN p_explain THEN ARRAY[
                   w.bm25 * n_text / v_scale,
                   w.context_bm25 * (s.cohesion * n_context + (1 - s.cohesion) * n_text) / v_scale,
                   w.similarity * coalesce(n_vector, n_text) / v_scale,
                   w.context_similarity * (s.cohesion * coalesce(n_around, n_vector, n_context)
                                           + CASE WHEN n_vector IS NULL THEN (1 - s.cohesion) * n_text ELSE 0 END) / v_scale,
                   c_answer * s.cohesion * n_answered / v_scale,
                   s.shift / v_scale,
                   CASE WHEN s.author_match THEN w.author * greatest(n_text, n_context, n_vector) ELSE 0 END / v_scale,
                   CASE WHEN s.asks THEN -w.question ELSE 0 END / v_scale,
                   w.recency * fresh / v_scale,
                   w.retention * s.retention / v_scale] END AS parts
        FROM (
            SELECT p.*, coalesce(p.bm25 / (SELECT text FROM extremes), 0) AS n_text,
                   coalesce(p.context_bm25 / (SELECT context FROM extremes), 0) AS n_context,
                   -- The words of the question that the turn follows.
                   coalesce(p.answered / (SELECT text FROM extremes), 0) AS n_answered,
                   coalesce((p.similarity - (SELECT far FROM corpus)) / (SELECT span FROM corpus),
                            CASE WHEN v_alone THEN sign(p.similarity) END) AS n_vector,
                   (p.context_similarity - (SELECT context_far FROM corpus)) / (SELECT context_span FROM corpus) AS n_around,
                   power(0.5::float8, least(greatest(tstzrange_subdiff(v_now, p.occurred_at), 0) / 2592000, 1000))
                       AS fresh
            FROM scored AS p WHERE p.relevance >= p_min_relevance
            OFFSET 0) AS s
    ), ranked AS MATERIALIZED (
        SELECT r.*, row_number() OVER (ORDER BY r.score DESC, r.occurred_at DESC, r.id) AS rank,
               CASE WHEN r.n > 0 THEN 'message' WHEN r.n > c_facts THEN 'memory' ELSE 'fact' END AS source
        FROM (SELECT n.* FROM normal AS n ORDER BY n.score DESC, n.occurred_at DESC, n.id LIMIT 2 * p_limit) AS r
    ), stated AS MATERIALIZED (
        -- The turns that each tells of: an insight those of its first, unless it has several sources and repeats none.
        SELECT r.n, r.id, r.rank, coalesce(d.thread_id, m.thread_id) AS thread_id, m.memory_type,
               coalesce(d.place, CASE WHEN m.memory_type = 'semantic' THEN m.source_seqs[1] ELSE m.from_seq END) AS from_seq,
               coalesce(d.place, CASE WHEN m.memory_type = 'semantic' THEN m.source_seqs[1] ELSE m.upto_seq END) AS upto_seq,
               ARRAY[d.tf1, d.tf2, d.tf3, d.tf4, d.tf5, d.tf6, d.tf7, d.tf8] AS tfs
        FROM ranked AS r JOIN docs AS d ON d.n = r.n
        LEFT JOIN memories AS m ON r.source = 'memory' AND m.id = r.id
                               AND (m.memory_type IN ('episodic', 'summary') OR cardinality(m.source_seqs) = 1)
    ), repeats AS MATERIALIZED (
        -- What repeats the evidence of another row, and the rank of that: slices, summaries and the insights of one turn
        -- repeat their turns; slices and summaries also a better row for the same turns.
        SELECT s.id, min(o.rank) AS other_rank
        FROM stated AS s JOIN stated AS o ON o.thread_id = s.thread_id
                                     AND o.from_seq <= s.upto_seq AND o.upto_seq >= s.from_seq
        WHERE s.memory_type IS NOT NULL AND (o.memory_type IS NULL OR o.rank < s.rank
                                             AND s.memory_type <> 'semantic' AND o.memory_type <> 'semantic')
        GROUP BY s.id
    ), best AS MATERIALIZED (
        -- A row whose other is returned too would be the same evidence twice: it steps back. Whichever do, the rows that
        -- are returned end at the rank where p_limit rows that repeat nothing are counted.
        SELECT b.* FROM (
            SELECT c.*, max(c.rank) FILTER (WHERE c.others <= p_limit) OVER () AS last_rank FROM (
                SELECT r.*, p.other_rank, count(*) FILTER (WHERE p.id IS NULL) OVER (ORDER BY r.rank) AS others
                FROM ranked AS r LEFT JOIN repeats AS p ON p.id = r.id) AS c) AS b
        WHERE b.other_rank IS NULL OR b.other_rank > b.last_rank
        ORDER BY b.rank LIMIT p_limit
    ), sorted AS MATERIALIZED (
        -- From what the ranks of the returned rows are counted: no lesser value changes one.
        SELECT array_agg(s.bm25 ORDER BY s.bm25)
                   FILTER (WHERE s.bm25 >= (SELECT min(b.bm25) FROM best AS b WHERE b.bm25 > 0)) AS texts,
               array_agg(s.similarity ORDER BY s.similarity)
                   FILTER (WHERE s.similarity >= (SELECT min(b.similarity) FROM best AS b)) AS vectors,
               CASE WHEN p_bare THEN 0 ELSE coalesce(near.matching, count(*)) END AS total
        FROM scored AS s WHERE NOT p_bare AND s.relevance >= p_min_relevance
    ), matched AS (
        SELECT h.n, array_agg(v_terms[h.place] ORDER BY (SELECT idf FROM weights)[h.place] DESC, v_terms[h.place]) AS terms
        FROM (SELECT h.n, h.place FROM hits AS h WHERE NOT p_bare AND h.n IN (SELECT b.n FROM best AS b)
              UNION
              SELECT o.n, u.place FROM stated AS o, unnest(v_places, o.tfs) AS u (place, tf)
              WHERE NOT p_bare AND u.tf IS NOT NULL) AS h
        GROUP BY h.n
    )
    SELECT b.source, b.id, coalesce(m.memory_type, f.fact_type, g.role)::text, coalesce(m.content, f.content, g.content),
           CASE WHEN NOT p_bare THEN
               coalesce(m.metadata, g.metadata, jsonb_build_object('key', f.key, 'value', f.value, 'confidence', f.confidence))
           END,
           b.score, b.relevance, b.bm25, b.context_bm25, b.similarity, b.context_similarity,
           b.author_match, b.fresh, b.retention,
           -- One more than how many are greater.
           CASE WHEN b.bm25 > 0 THEN cardinality(s.texts)::bigint - width_bucket(b.bm25, s.texts) + 1 END,
           CASE WHEN b.similarity IS NOT NULL THEN cardinality(s.vectors)::bigint - width_bucket(b.similarity, s.vectors) + 1 END,
           coalesce(x.terms, '{}'),
           t.id, t.session_id, coalesce(m.from_seq, f.from_seq, g.sequence_num),
           coalesce(m.upto_seq, f.upto_seq, g.sequence_num),
           coalesce(m.source_seqs, f.source_seqs, ARRAY[g.sequence_num]), b.occurred_at, s.total,
           CASE WHEN p_explain THEN b.parts END
    FROM best AS b
    CROSS JOIN sorted AS s
    LEFT JOIN matched AS x ON x.n = b.n
    LEFT JOIN memories AS m ON b.source = 'memory' AND NOT p_bare AND m.id = b.id
    LEFT JOIN held AS f ON b.source = 'fact' AND NOT p_bare AND f.id = b.id
    LEFT JOIN messages AS g ON b.source = 'message' AND NOT p_bare AND g.id = b.id
    LEFT JOIN threads AS t ON t.id = coalesce(m.thread_id, f.thread_id, g.thread_id)
    ORDER BY b.rank;
END
$$;
