-- Knowledge: corpora, documents with their versions, chunks, and the search over them.
--
-- A document's row is locked before anything of it changes, and before its job is enqueued. What is being ingested is
-- compared with `last_version`: a job whose document was replaced or removed gets HP103, and stores nothing.

-- Whether a caller reads a corpus. The app itself (no user) reads the app's own corpora, and no user's.
CREATE OR REPLACE FUNCTION may_use_corpus(c corpus, p_user_id text, p_roles text[], p_writes boolean) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT CASE WHEN p_user_id IS NULL THEN c.user_id IS NULL
                ELSE c.user_id IS NOT DISTINCT FROM p_user_id OR EXISTS (
                    SELECT FROM corpus_access AS a
                    WHERE a.corpus_id = c.id AND (a.may_write OR NOT p_writes)
                      AND (a.grantee IN ('*', 'user:' || p_user_id)
                           OR a.grantee = ANY (SELECT 'role:' || r FROM unnest(p_roles) AS r))) END
$$;

-- The corpora that a caller reads, of these names if any are given: of each name one, as `find_corpus` finds it.
CREATE OR REPLACE FUNCTION readable_corpora(p_app_name text, p_user_id text, p_roles text[], p_names text[]) RETURNS uuid[]
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(array_agg(r.id), '{}') FROM (
        SELECT c.id, p_names IS NULL OR row_number() OVER (
                   PARTITION BY c.name
                   ORDER BY c.user_id IS NOT DISTINCT FROM p_user_id DESC, c.user_id IS NULL DESC, c.id) = 1 AS is_meant
        FROM corpus AS c
        WHERE c.app_name = p_app_name AND (p_names IS NULL OR c.name = ANY (p_names))
          AND may_use_corpus(c, p_user_id, p_roles, false)) AS r
    WHERE r.is_meant
$$;

-- The corpus of a name: the caller's own, else the app's, else a shared one.
-- Errors: HP100 there is none that the caller reads, HP102 the caller may only read it.
CREATE OR REPLACE FUNCTION find_corpus(p_app_name text, p_user_id text, p_roles text[], p_name text, p_writes boolean)
RETURNS corpus
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    c corpus;
BEGIN
    SELECT k.* INTO c FROM corpus AS k
    WHERE k.app_name = p_app_name AND k.name = p_name AND may_use_corpus(k, p_user_id, p_roles, false)
    ORDER BY k.user_id IS NOT DISTINCT FROM p_user_id DESC, k.user_id IS NULL DESC, k.id LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no corpus % for this caller in app %', quote_nullable(p_name), quote_nullable(p_app_name)
            USING ERRCODE = 'HP100';
    ELSIF p_writes AND NOT may_use_corpus(c, p_user_id, p_roles, true) THEN
        RAISE EXCEPTION 'the caller may read corpus %, and not change it', quote_nullable(p_name) USING ERRCODE = 'HP102';
    END IF;
    RETURN c;
END
$$;

-- Creates a corpus, or changes the one of this owner and name; NULL leaves what it has. The owner is a user, or NULL for
-- the app, whose new corpora everyone reads unless p_readers says otherwise. Returns it.
-- p_only_new: one that exists is not changed. Errors: HP104 it exists.
CREATE OR REPLACE FUNCTION put_corpus(
    p_app_name text, p_user_id text, p_name text, p_description text, p_config jsonb, p_readers text[], p_writers text[],
    p_only_new boolean DEFAULT false)
RETURNS corpus
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    c        corpus;
    v_is_new boolean;
BEGIN
    INSERT INTO corpus AS k (app_name, user_id, name, description, config)
    VALUES (p_app_name, p_user_id, p_name, coalesce(p_description, ''), coalesce(p_config, '{}'))
    ON CONFLICT (app_name, user_id, name) DO UPDATE SET
        description = coalesce(p_description, k.description), config = coalesce(p_config, k.config),
        updated_at = engine_now()
    RETURNING k.* INTO c;
    SELECT k.xmax = 0 INTO v_is_new FROM corpus AS k WHERE k.id = c.id;
    IF p_only_new AND NOT v_is_new THEN
        RAISE EXCEPTION 'there is a corpus % of this owner in app % already: nothing was changed',
            quote_nullable(p_name), quote_nullable(p_app_name) USING ERRCODE = 'HP104';
    END IF;
    IF v_is_new AND p_user_id IS NULL THEN
        p_readers := coalesce(p_readers, '{*}');
    END IF;
    IF p_readers IS NOT NULL THEN
        DELETE FROM corpus_access AS a WHERE a.corpus_id = c.id AND NOT a.may_write;
    END IF;
    IF p_writers IS NOT NULL THEN
        DELETE FROM corpus_access AS a WHERE a.corpus_id = c.id AND a.may_write;
    END IF;
    INSERT INTO corpus_access (corpus_id, app_name, grantee, may_write)
    SELECT c.id, p_app_name, r, false FROM unnest(p_readers) AS r
    UNION SELECT c.id, p_app_name, w, true FROM unnest(p_writers) AS w
    ORDER BY 3, 4 ON CONFLICT DO NOTHING;
    RETURN c;
END
$$;

-- The job that ingests a document.
CREATE OR REPLACE FUNCTION defer_ingest(p_document_id uuid) RETURNS bigint
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    SELECT (procrastinate_defer_jobs_v1(ARRAY[ROW('knowledge', 'ingest_document', 0, 'knowledge:' || p_document_id, NULL,
        jsonb_strip_nulls(jsonb_build_object(
            'document_id', p_document_id, 'traceparent', nullif(current_setting('hippocampus.traceparent', true), ''))),
        NULL)::procrastinate_job_to_defer_v1]))[1]
$$;

-- Stores what a document says as its next version, to be ingested; the former one is searched until then. The same text,
-- title and way of chunking as before change nothing but the metadata: `is_new` is false, and there is no job. A job that
-- waits for the former version is cancelled.
-- p_parts: the text, in its pages if p_paged. Errors: HP100, HP102.
CREATE OR REPLACE FUNCTION put_document(
    p_app_name text, p_user_id text, p_roles text[], p_corpus text, p_source_uri text, p_title text, p_parts text[],
    p_paged boolean, p_markdown boolean, p_mime_type text, p_metadata jsonb, p_bytes bigint, p_enqueue boolean,
    OUT document_id uuid, OUT is_new boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    c      corpus := find_corpus(p_app_name, p_user_id, p_roles, p_corpus, true);
    d      knowledge_documents;
    v_body text := array_to_string(p_parts, '');
    v_hash bytea := sha256(convert_to(concat_ws(E'\n', c.config, p_markdown, p_paged, p_title, v_body), 'UTF8'));
BEGIN
    -- Not a corpus that is being removed: what is added to it would be lost.
    PERFORM FROM corpus AS k WHERE k.id = c.id FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no corpus % for this caller in app %', quote_nullable(p_corpus), quote_nullable(p_app_name)
            USING ERRCODE = 'HP100';
    END IF;
    INSERT INTO knowledge_documents AS k (
        corpus_id, app_name, source_uri, title, mime_type, metadata, last_version, status)
    VALUES (c.id, p_app_name, p_source_uri, p_title, p_mime_type, p_metadata, 0, 'waiting')
    ON CONFLICT (corpus_id, source_uri) DO UPDATE SET updated_at = k.updated_at
    RETURNING k.* INTO d;
    document_id := d.id;
    SELECT NOT EXISTS (SELECT FROM knowledge_versions AS v
                       WHERE v.document_id = d.id AND v.version = d.last_version AND v.content_hash = v_hash)
    INTO is_new;
    IF is_new THEN
        d.last_version := d.last_version + 1;
        -- Versions that were never ingested, with what was staged of them.
        DELETE FROM knowledge_base AS b WHERE b.document_id = d.id AND b.from_version > d.version;
        DELETE FROM knowledge_versions AS v WHERE v.document_id = d.id AND v.version > d.version;
        INSERT INTO knowledge_versions (document_id, version, corpus_id, app_name, content_hash, body, is_markdown, pages,
                                        config, title, bytes)
        SELECT d.id, d.last_version, c.id, p_app_name, v_hash, v_body, p_markdown,
               CASE WHEN p_paged THEN (
                   SELECT array_agg((p.upto - char_length(p.part))::integer ORDER BY p.nth)
                   FROM (SELECT t.part, t.nth, sum(char_length(t.part)) OVER (ORDER BY t.nth) AS upto
                         FROM unnest(p_parts) WITH ORDINALITY AS t (part, nth)) AS p) ELSE '{}' END,
               c.config, p_title, p_bytes;
    END IF;
    UPDATE knowledge_documents AS k SET
        title = p_title, mime_type = p_mime_type, metadata = p_metadata, last_version = d.last_version,
        updated_at = engine_now()
    WHERE k.id = d.id
      AND (is_new OR k.title <> p_title OR k.mime_type <> p_mime_type OR k.metadata <> p_metadata);
    IF is_new OR d.status = 'failed' THEN
        UPDATE procrastinate_jobs AS j SET status = 'cancelled'
        WHERE j.id = d.procrastinate_job_id AND j.status = 'todo' AND j.task_name = 'ingest_document'
          AND j.args ->> 'document_id' = d.id::text;
        UPDATE knowledge_documents AS k SET
            status = 'waiting', error_code = NULL, error = NULL, chunks_done = 0, chunks_total = NULL,
            procrastinate_job_id = CASE WHEN p_enqueue THEN defer_ingest(d.id) END
        WHERE k.id = d.id;
    END IF;
END
$$;

-- What an attempt at a document reads: its version on the way. No row: there is none, or the document is gone.
CREATE OR REPLACE FUNCTION begin_ingest(p_document_id uuid)
RETURNS TABLE (version integer, body text, is_markdown boolean, pages integer[], config jsonb, title text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE knowledge_documents AS d SET status = 'running', error_code = NULL, error = NULL
    WHERE d.id = p_document_id AND d.version < d.last_version;
    RETURN QUERY
        SELECT v.version, v.body, v.is_markdown, v.pages, v.config, v.title::text
        FROM knowledge_documents AS d JOIN knowledge_versions AS v ON v.document_id = d.id AND v.version = d.last_version
        WHERE d.id = p_document_id AND d.version < d.last_version;
END
$$;

-- Locks a document for a change of the version that is being ingested. Errors: HP103.
CREATE OR REPLACE FUNCTION hold_ingest(p_document_id uuid, p_version integer) RETURNS knowledge_documents
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    d knowledge_documents;
BEGIN
    SELECT * INTO d FROM knowledge_documents AS k WHERE k.id = p_document_id FOR NO KEY UPDATE;
    IF d.id IS NULL OR d.last_version <> p_version OR d.version >= p_version THEN
        RAISE EXCEPTION 'version % of document % is not the one to ingest: it was replaced or removed', p_version,
            p_document_id USING ERRCODE = 'HP103';
    END IF;
    RETURN d;
END
$$;

-- Stages chunks of a version, with their vectors of one model; those that are staged already stay. p_refused: the model
-- does not embed texts that come without a vector. Errors: HP103, HP049.
CREATE OR REPLACE FUNCTION stage_chunks(
    p_document_id uuid, p_version integer, p_chunks chunk_input[], p_model text, p_refused boolean, p_done integer,
    p_total integer)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    d knowledge_documents := hold_ingest(p_document_id, p_version);
BEGIN
    PERFORM check_dimensions(p_model, vector_dims(g.embedding), vector_dims(v.embedding))
    FROM (SELECT embedding FROM unnest(p_chunks) WHERE embedding IS NOT NULL LIMIT 1) AS g,
         LATERAL (SELECT k.embedding FROM knowledge_vectors AS k
                  WHERE k.corpus_id = d.corpus_id AND k.model = p_model LIMIT 1) AS v;
    WITH given AS MATERIALIZED (
        SELECT new_id() AS id, g.*, s.search
        FROM unnest(p_chunks) AS g, LATERAL (SELECT search_document(g.label || E'\n' || g.content)) AS s (search)
    ), stored AS (
        INSERT INTO knowledge_base (
            id, document_id, corpus_id, app_name, chunk_index, label, heading_path, content, char_from, char_upto, page,
            chunk_hash, nth, tokens, words, language, from_version, embedding_model, refused_by, search)
        SELECT g.id, d.id, d.corpus_id, d.app_name, g.chunk_index, g.label, g.heading_path, g.content, g.char_from,
               g.char_upto, g.page, g.chunk_hash, g.nth, g.tokens, length(g.search), g.language, p_version,
               CASE WHEN g.embedding IS NOT NULL THEN p_model END,
               CASE WHEN g.embedding IS NULL AND p_refused THEN p_model END, g.search
        FROM given AS g
        ON CONFLICT (document_id, chunk_hash, nth, from_version) DO NOTHING
        RETURNING id
    )
    INSERT INTO knowledge_vectors (id, corpus_id, app_name, model, embedding)
    SELECT g.id, d.corpus_id, d.app_name, p_model, l2_normalize(g.embedding)::halfvec
    FROM given AS g JOIN stored AS s ON s.id = g.id WHERE g.embedding IS NOT NULL;
    UPDATE knowledge_documents SET chunks_done = p_done, chunks_total = p_total WHERE id = d.id;
END
$$;

-- Makes a version the one that is searched: all its chunks are stored, and these are their positions. What the
-- former version has and this one does not is kept for `as_of`. Errors: HP103.
CREATE OR REPLACE FUNCTION finish_ingest(p_document_id uuid, p_version integer, p_places chunk_place[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    d       knowledge_documents := hold_ingest(p_document_id, p_version);
    v_words bigint;
    v_count integer := cardinality(p_places);
BEGIN
    IF (SELECT count(*) FROM knowledge_base AS b
        WHERE b.document_id = d.id AND b.id IN (SELECT p.id FROM unnest(p_places) AS p)) <> v_count THEN
        RAISE EXCEPTION 'chunks of document % were removed meanwhile', d.id USING ERRCODE = 'HP103';
    END IF;
    UPDATE knowledge_base AS b SET upto_version = d.version
    WHERE b.document_id = d.id AND b.upto_version IS NULL AND b.from_version <= d.version
      AND b.id NOT IN (SELECT p.id FROM unnest(p_places) AS p);
    DELETE FROM knowledge_base AS b
    WHERE b.document_id = d.id AND b.from_version > d.version AND b.id NOT IN (SELECT p.id FROM unnest(p_places) AS p);
    UPDATE knowledge_base AS b SET
        chunk_index = p.chunk_index, char_from = p.char_from, char_upto = p.char_upto, page = p.page
    FROM unnest(p_places) AS p
    WHERE b.id = p.id
      AND (b.chunk_index, b.char_from, b.char_upto, b.page) IS DISTINCT FROM (p.chunk_index, p.char_from, p.char_upto, p.page);
    SELECT coalesce(sum(b.words), 0) INTO v_words FROM knowledge_base AS b
    WHERE b.document_id = d.id AND b.upto_version IS NULL;
    UPDATE knowledge_versions AS v SET superseded_at = engine_now()
    WHERE v.document_id = d.id AND v.version = d.version;
    UPDATE knowledge_versions AS v SET ingested_at = engine_now(), chunks = v_count, words = v_words
    WHERE v.document_id = d.id AND v.version = p_version;
    UPDATE knowledge_documents AS k SET
        version = p_version, status = 'ready', error_code = NULL, error = NULL, chunks = v_count, words = v_words,
        chunks_done = v_count, chunks_total = v_count, ingested_at = engine_now(), updated_at = engine_now()
    WHERE k.id = d.id;
END
$$;

-- Records why a version could not be ingested; the former one is still searched. A version that was replaced meanwhile
-- changes nothing.
CREATE OR REPLACE FUNCTION fail_ingest(p_document_id uuid, p_version integer, p_error_code text, p_error text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    UPDATE knowledge_documents AS d SET status = 'failed', error_code = p_error_code, error = left(p_error, 2000)
    WHERE d.id = p_document_id AND d.last_version = p_version AND d.version < p_version
$$;

-- The queued job of a document that is gone is not run.
CREATE OR REPLACE FUNCTION cancel_ingest() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE procrastinate_jobs SET status = 'cancelled'
    WHERE id = OLD.procrastinate_job_id AND status = 'todo' AND task_name = 'ingest_document'
      AND args ->> 'document_id' = OLD.id::text;
    RETURN NULL;
END
$$;

-- Gives documents a job whose job was lost, such as by a move to this database. Returns how many. A document that its
-- caller ingests by itself has none, and is left alone for an hour. One whose job failed is failed, too: what it costs
-- to embed is not paid again and again.
CREATE OR REPLACE FUNCTION reconcile_knowledge(p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    WITH lost AS MATERIALIZED (
        SELECT d.id, EXISTS (SELECT FROM procrastinate_jobs AS j
                             WHERE j.id = d.procrastinate_job_id AND j.status = 'failed'
                               AND j.task_name = 'ingest_document' AND j.args ->> 'document_id' = d.id::text) AS has_failed
        FROM knowledge_documents AS d
        WHERE d.status IN ('waiting', 'running')
          AND (d.procrastinate_job_id IS NOT NULL OR d.updated_at < engine_now() - interval '1 hour')
          AND NOT EXISTS (SELECT FROM procrastinate_jobs AS j
                          WHERE j.id = d.procrastinate_job_id AND j.status IN ('todo', 'doing')
                            AND j.task_name = 'ingest_document' AND j.args ->> 'document_id' = d.id::text)
        ORDER BY d.id LIMIT p_limit FOR NO KEY UPDATE OF d SKIP LOCKED
    ), failed AS (
        UPDATE knowledge_documents AS d SET
            status = 'failed', error_code = 'job_failed', error = 'the job ended without a reason: add the document again'
        FROM lost AS l WHERE d.id = l.id AND l.has_failed
    ), given AS (
        UPDATE knowledge_documents AS d SET status = 'waiting', procrastinate_job_id = defer_ingest(d.id)
        FROM lost AS l WHERE d.id = l.id AND NOT l.has_failed RETURNING 1
    )
    SELECT count(*)::integer FROM given
$$;

-- Deletes at most p_limit versions that were superseded at least p_keep ago, with the chunks that no later version has.
CREATE OR REPLACE FUNCTION prune_knowledge(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    WITH old AS (
        SELECT v.document_id, v.version FROM knowledge_versions AS v
        WHERE v.superseded_at < engine_now() - p_keep
        ORDER BY v.superseded_at, v.document_id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), chunks AS (
        DELETE FROM knowledge_base AS b USING old AS o WHERE b.document_id = o.document_id AND b.upto_version = o.version
    ), pruned AS (
        DELETE FROM knowledge_versions AS v USING old AS o
        WHERE v.document_id = o.document_id AND v.version = o.version RETURNING 1
    )
    SELECT count(*)::integer FROM pruned
$$;

-- At most p_limit chunks that wait for a vector of this model: those without any first; then, if the model is the chosen
-- one, those with another model's. Staged and superseded chunks are left out.
CREATE OR REPLACE FUNCTION list_vectorless_chunks(p_model text, p_limit integer)
RETURNS TABLE (id uuid, app_name text, label text, content text)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT w.id, w.app_name, w.label, w.content FROM (
        (SELECT b.id, b.app_name::text, b.label, b.content, 1 AS turn FROM knowledge_base AS b
         JOIN knowledge_documents AS d ON d.id = b.document_id AND b.from_version <= d.version
         WHERE b.embedding_model IS NULL AND b.upto_version IS NULL AND b.refused_by IS DISTINCT FROM p_model
         LIMIT p_limit)
        UNION ALL
        (SELECT b.id, b.app_name::text, b.label, b.content, 2 FROM knowledge_base AS b
         JOIN knowledge_documents AS d ON d.id = b.document_id AND b.from_version <= d.version
         WHERE (b.embedding_model < p_model OR b.embedding_model > p_model) AND b.upto_version IS NULL
           AND b.refused_by IS DISTINCT FROM p_model
           AND p_model = coalesce((SELECT t.model FROM embedding_target AS t), p_model)
         LIMIT p_limit)) AS w
    ORDER BY w.turn, w.id LIMIT p_limit
$$;

-- Stores vectors of chunks; one without a vector was refused by the model. A chunk's text never changes. Errors: HP049.
CREATE OR REPLACE FUNCTION give_chunk_vectors(p_rows vector_input[], p_model text) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    PERFORM FROM knowledge_base AS b WHERE b.id IN (SELECT r.id FROM unnest(p_rows) AS r) ORDER BY b.id FOR NO KEY UPDATE;
    PERFORM check_dimensions(p_model, g.size, vector_dims(v.embedding))
    FROM (SELECT DISTINCT b.corpus_id, vector_dims(r.embedding) AS size
          FROM unnest(p_rows) AS r JOIN knowledge_base AS b ON b.id = r.id WHERE r.embedding IS NOT NULL) AS g,
         LATERAL (SELECT k.embedding FROM knowledge_vectors AS k
                  WHERE k.corpus_id = g.corpus_id AND k.model = p_model LIMIT 1) AS v;
    INSERT INTO knowledge_vectors AS k (id, corpus_id, app_name, model, embedding)
    SELECT b.id, b.corpus_id, b.app_name, p_model, l2_normalize(r.embedding)::halfvec
    FROM unnest(p_rows) AS r JOIN knowledge_base AS b ON b.id = r.id WHERE r.embedding IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET model = EXCLUDED.model, embedding = EXCLUDED.embedding;
    UPDATE knowledge_base AS b SET
        embedding_model = CASE WHEN r.embedding IS NULL THEN b.embedding_model ELSE p_model END,
        refused_by = CASE WHEN r.embedding IS NULL THEN p_model END
    FROM unnest(p_rows) AS r WHERE b.id = r.id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

-- The chunks of corpora whose vectors are nearest, with where their rows are, which holds for the statement's snapshot; see
-- `nearest_memories`. p_documents: only theirs; p_current: none that is superseded.
CREATE OR REPLACE FUNCTION nearest_chunks(
    p_corpora uuid[], p_documents uuid[], p_embedding vector, p_embedding_model text, p_limit integer,
    p_current boolean)
RETURNS TABLE (id uuid, place tid, similarity double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET hnsw.iterative_scan = 'relaxed_order' SET hnsw.ef_search = 100 SET hnsw.max_scan_tuples = 40000
SET plan_cache_mode = force_custom_plan SET jit = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    v_query        halfvec := l2_normalize(p_embedding)::halfvec;
    v_size         integer := vector_dims(p_embedding);
    v_narrow       text := concat(CASE WHEN p_documents IS NOT NULL THEN ' AND b.document_id = ANY ($4)' END,
                                  CASE WHEN p_current THEN ' AND b.upto_version IS NULL' END);
    v_ids          uuid[];
    v_places       tid[];
    v_similarities double precision[];
BEGIN
    PERFORM set_config('hnsw.ef_search', least(greatest(p_limit, 100), 1000)::text, true);
    EXECUTE format($f$
        SELECT array_agg(n.id), array_agg(n.place), array_agg(nullif(-n.distance, 'NaN')) FROM (
            SELECT v.id, b.ctid AS place, v.embedding::halfvec(%1$s) <#> $2 AS distance
            FROM knowledge_vectors AS v JOIN knowledge_base AS b ON b.id = v.id %3$s
            WHERE v.model = %2$L AND vector_dims(v.embedding) = %1$s AND v.corpus_id = ANY ($1)
            ORDER BY v.embedding::halfvec(%1$s) <#> $2 LIMIT $3) AS n$f$, v_size, p_embedding_model, v_narrow)
    INTO v_ids, v_places, v_similarities USING p_corpora, v_query, p_limit, p_documents;
    IF cardinality(v_ids) = p_limit THEN
        RETURN QUERY SELECT * FROM unnest(v_ids, v_places, v_similarities);
        RETURN;
    END IF;
    RETURN QUERY
        SELECT n.id, n.place, -n.distance FROM (
            SELECT v.id, b.ctid AS place, v.embedding <#> v_query AS distance
            FROM knowledge_vectors AS v JOIN knowledge_base AS b ON b.id = v.id
            WHERE v.model = p_embedding_model AND vector_dims(v.embedding) = v_size AND v.corpus_id = ANY (p_corpora)
              AND (p_documents IS NULL OR b.document_id = ANY (p_documents)) AND (NOT p_current OR b.upto_version IS NULL)
            OFFSET 0) AS n
        WHERE n.distance < 'NaN' ORDER BY n.distance LIMIT p_limit;
END
$$;

-- The rarest of the queries, as one: as many as p_rows rows have together, and at least one. p_seen: how many rows match
-- each.
CREATE OR REPLACE FUNCTION rarest_queries(p_queries tsquery[], p_seen double precision[], p_rows double precision)
RETURNS tsquery
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT
AS $$
DECLARE
    v_rare tsquery;
    v_rows double precision := 0;
    v_term record;
BEGIN
    FOR v_term IN SELECT u.query, u.rows FROM unnest(p_queries, p_seen) AS u (query, rows) ORDER BY u.rows LOOP
        EXIT WHEN v_rows > 0 AND v_rows + v_term.rows > p_rows;
        v_rare := coalesce(v_rare || v_term.query, v_term.query);
        v_rows := v_rows + v_term.rows;
    END LOOP;
    RETURN v_rare;
END
$$;

-- What of large corpora is worth scoring.
--
--   words         matches the chunks that are scored for their words, all of them: those with any of the rarest terms
--   places        chunks that are scored besides, by where their rows are, which holds for the statement's snapshot: the
--                 nearest; and, where even the rarest term is in more than 2,000, in place of `words` those in which it is
--                 most frequent, of up to 16,000; beyond that, of those with several terms; where these are too many as
--                 well, the chunks of the sample
--   near          the nearest chunks by their vectors
--   similarities  of these
--   seen          for each term, in how many chunks it occurs: counted where it is rare, else estimated
--   lowest        the least similarity, estimated from 300 chunks of the sample: of more, it is further from the mean
--
-- The sample is of up to 400 documents, chosen by the hashes of their addresses, and of each as many chunks as is its
-- share of 1,000, chosen by the hashes of their texts: it does not depend on where rows are stored. p_current: superseded
-- chunks are left out, which would take the places of those that are searched.
CREATE OR REPLACE FUNCTION chunk_candidates(
    p_corpora uuid[], p_documents uuid[], p_total double precision, p_queries tsquery[], p_embedding vector,
    p_embedding_model text, p_limit integer, p_current boolean, OUT words tsquery, OUT places tid[], OUT near uuid[],
    OUT similarities double precision[], OUT seen double precision[], OUT lowest double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET jit = off SET work_mem = '32MB'
AS $$
DECLARE
    c_sample  constant integer := 1000;
    c_rows    constant integer := greatest(2000, 4 * p_limit);
    c_visited constant integer := 8 * c_rows;
    v_sample  uuid[];
    v_places  tid[];
    v_sampled integer;
    v_held    integer[];
    v_held_by tsquery;
    v_rank_by tsquery;
    v_term    record;
BEGIN
    WITH documents AS MATERIALIZED (
        SELECT d.id, d.version, ceil(c_sample * d.chunks / sum(d.chunks) OVER ())::integer AS wanted FROM (
            SELECT k.* FROM (
                SELECT k.id, k.version, k.chunks::float8 AS chunks, hashtext(k.source_uri) AS hash
                FROM unnest(p_corpora) AS c (id)
                CROSS JOIN LATERAL (
                    SELECT d.* FROM knowledge_documents AS d WHERE d.corpus_id = c.id AND d.chunks > 0
                    ORDER BY hashtext(d.source_uri), d.id LIMIT 400) AS k
                WHERE p_documents IS NULL
                UNION ALL
                SELECT d.id, d.version, d.chunks::float8, hashtext(d.source_uri) FROM knowledge_documents AS d
                WHERE d.id = ANY (p_documents) AND d.chunks > 0) AS k
            ORDER BY k.hash, k.id LIMIT 400) AS d
    ), sample AS MATERIALIZED (
        SELECT b.* FROM documents AS d CROSS JOIN LATERAL (
            SELECT k.id, k.ctid AS place, k.search FROM knowledge_base AS k
            WHERE k.document_id = d.id AND (NOT p_current OR k.upto_version IS NULL) AND k.from_version <= d.version
            ORDER BY k.chunk_hash, k.nth, k.from_version LIMIT d.wanted) AS b
    )
    SELECT (SELECT array_agg(s.id) FROM sample AS s), (SELECT array_agg(s.place) FROM sample AS s),
           (SELECT array_agg((SELECT count(*) FROM sample AS s WHERE s.search @@ q.query) ORDER BY q.place)
            FROM unnest(p_queries) WITH ORDINALITY AS q (query, place))
    INTO v_sample, v_places, v_held;
    v_sampled := greatest(cardinality(v_sample), 1);
    seen := '{}';
    FOR i IN 1 .. coalesce(cardinality(p_queries), 0) LOOP
        seen[i] := v_held[i] * p_total / v_sampled;
        IF seen[i] < c_rows THEN
            seen[i] := (SELECT greatest(count(*), 1) FROM (
                SELECT FROM knowledge_base AS b
                WHERE b.search @@ p_queries[i] AND b.corpus_id = ANY (p_corpora)
                  AND (p_documents IS NULL OR b.document_id = ANY (p_documents))
                  AND (NOT p_current OR b.upto_version IS NULL)
                LIMIT 2 * c_rows) AS counted);
        END IF;
    END LOOP;
    IF c_rows >= ANY (seen) THEN
        words := rarest_queries(p_queries, seen, c_rows);
    ELSIF cardinality(seen) > 0 THEN
        FOR v_term IN SELECT u.query FROM unnest(p_queries, seen) AS u (query, rows) ORDER BY u.rows, u.query LIMIT 8 LOOP
            v_held_by := coalesce(v_held_by && v_term.query, v_term.query);
            v_rank_by := coalesce(v_rank_by || v_term.query, v_term.query);
            IF (SELECT count(*) FROM knowledge_base AS b WHERE b.ctid = ANY (v_places) AND b.search @@ v_held_by)
               * p_total / v_sampled <= c_visited THEN
                places := ARRAY(
                    SELECT b.ctid FROM knowledge_base AS b
                    WHERE b.search @@ v_held_by AND b.corpus_id = ANY (p_corpora)
                      AND (p_documents IS NULL OR b.document_id = ANY (p_documents))
                      AND (NOT p_current OR b.upto_version IS NULL)
                    ORDER BY ts_rank('{1,1,1,1}', b.search, v_rank_by, 1) DESC, b.id LIMIT c_rows);
                EXIT;
            END IF;
        END LOOP;
        -- Few rows hold several of the terms: the sample stands for those that hold one.
        IF coalesce(cardinality(places), 0) < c_rows / 10 THEN
            places := coalesce(places, '{}') || v_places;
        END IF;
    END IF;
    IF p_embedding IS NOT NULL THEN
        SELECT coalesce(array_agg(n.id), '{}'), coalesce(array_agg(n.similarity), '{}'),
               coalesce(places, '{}') || coalesce(array_agg(n.place), '{}')
        INTO near, similarities, places
        FROM nearest_chunks(p_corpora, p_documents, p_embedding, p_embedding_model, greatest(200, 2 * p_limit),
                            p_current) AS n;
        SELECT avg(x.similarity) - (avg(x.similarity) - min(x.similarity))
               * greatest(sqrt(ln(greatest(p_total, 2)) / ln(greatest(count(x.similarity), 2))), 1) INTO lowest
        FROM (
            SELECT nullif(-(v.embedding <#> l2_normalize(p_embedding)::halfvec), 'NaN') AS similarity
            FROM (SELECT u.id FROM unnest(v_sample) WITH ORDINALITY AS u (id, place)
                  WHERE u.place % greatest(cardinality(v_sample) / 300, 1) = 0 LIMIT 300) AS s
            JOIN knowledge_vectors AS v ON v.id = s.id AND v.model = p_embedding_model
                AND vector_dims(v.embedding) = vector_dims(p_embedding)) AS x;
    END IF;
    places := coalesce(places, '{}');
END
$$;

-- Searches the chunks of the corpora that a caller reads: exact BM25 and vectors, fused.
--
--   p_corpora        names, or NULL for all that the caller reads
--   p_metadata       only documents whose metadata contain this
--   p_source_uris    only these documents
--   p_as_of          what was searched then, as far as it is kept
--   p_fusion         'minmax': each part is normalised over what matches, and the vectors weigh p_vector_weight;
--                    'rrf': by ranks alone, 1 / (60 + rank) each
--   p_k1, p_b        of BM25. Documents need others than conversations: see docs/decisions.md
--   p_per_document   only this many chunks of each document, the best; NULL: any number
--
-- Up to 5,000 chunks, every one is scored. Above that, only those that `chunk_candidates` returns: all of them by words,
-- and by vector the best 200 by words and the 200 nearest. `total`: how many match, of those that were scored.
-- Errors: HP007; HP049; HP100 there is no corpus of one of the names.
CREATE OR REPLACE FUNCTION search_knowledge(
    p_app_name text, p_user_id text, p_roles text[], p_query text, p_embedding vector DEFAULT NULL,
    p_embedding_model text DEFAULT NULL, p_limit integer DEFAULT 10, p_corpora text[] DEFAULT NULL,
    p_metadata jsonb DEFAULT NULL, p_source_uris text[] DEFAULT NULL, p_as_of timestamptz DEFAULT NULL,
    p_per_document integer DEFAULT NULL, p_fusion text DEFAULT 'minmax', p_vector_weight double precision DEFAULT 0.3,
    p_k1 double precision DEFAULT 1.5, p_b double precision DEFAULT 0.75)
RETURNS TABLE (
    id uuid, document_id uuid, corpus text, source_uri text, title text, metadata jsonb, version integer,
    chunk_index integer, heading_path text[], page integer, char_from integer, char_upto integer, content text,
    language text, score double precision, relevance double precision, bm25 double precision,
    similarity double precision, matched_terms text[], total bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET jit = off SET work_mem = '32MB'
SET client_min_messages = warning -- as search_memory
AS $$
#variable_conflict use_column
DECLARE
    c_exact   constant integer := 5000;
    c_best    constant integer := greatest(200, 4 * p_limit);
    v_corpora uuid[] := readable_corpora(p_app_name, p_user_id, p_roles, p_corpora);
    v_terms   text[] := query_terms(p_query);
    v_forms   text[];
    v_places  integer[];
    v_singles tsquery[];
    v_any     tsquery;
    v_many    boolean;
    v_several boolean;
    v_query   halfvec := l2_normalize(p_embedding)::halfvec;
    v_size    integer := vector_dims(p_embedding);
    v_narrow  boolean := num_nonnulls(p_metadata, p_source_uris, p_as_of) > 0;
    v_docs    uuid[];
    v_total   double precision;
    v_words   double precision;
    v_missing text;
    near      record;
BEGIN
    IF btrim(p_query) = '' OR p_query IS NULL THEN
        RAISE EXCEPTION 'the query is blank: give the words to search for' USING ERRCODE = 'HP007';
    ELSIF p_limit NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'limit must be from 1 to 1000, not %', p_limit USING ERRCODE = 'HP007';
    ELSIF p_fusion NOT IN ('minmax', 'rrf') THEN
        RAISE EXCEPTION 'fusion is minmax or rrf, not %', quote_nullable(p_fusion) USING ERRCODE = 'HP007';
    END IF;
    SELECT n INTO v_missing FROM unnest(p_corpora) AS n
    WHERE NOT EXISTS (SELECT FROM corpus AS c WHERE c.id = ANY (v_corpora) AND c.name = n) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'there is no corpus % for this caller in app %', quote_nullable(v_missing),
            quote_nullable(p_app_name) USING ERRCODE = 'HP100';
    END IF;
    IF p_embedding IS NOT NULL THEN
        PERFORM check_dimensions(p_embedding_model, v_size, (
            SELECT vector_dims(v.embedding) FROM knowledge_vectors AS v
            WHERE v.corpus_id = ANY (v_corpora) AND v.model = p_embedding_model LIMIT 1));
    END IF;
    -- The longest terms are the rarest, as a rule.
    v_terms := ARRAY(SELECT t FROM unnest(v_terms) AS t ORDER BY length(t) DESC, t LIMIT 512);
    SELECT array_agg(f.form ORDER BY f.place, f.form), array_agg(f.place ORDER BY f.place, f.form),
           array_agg(any_term(ARRAY[f.form]) ORDER BY f.place, f.form), any_term(array_agg(f.form))
    INTO v_forms, v_places, v_singles, v_any FROM term_forms(v_terms) AS f;
    v_any := coalesce(v_any, ''::tsquery);
    v_many := cardinality(v_forms) > 40;
    v_several := cardinality(v_forms) > cardinality(v_terms);
    IF v_narrow THEN
        SELECT array_agg(d.id), sum(v.chunks), sum(v.words) INTO v_docs, v_total, v_words
        FROM knowledge_documents AS d
        JOIN knowledge_versions AS v ON v.document_id = d.id
            AND v.version = CASE WHEN p_as_of IS NULL THEN d.version
                                 ELSE (SELECT max(x.version) FROM knowledge_versions AS x
                                       WHERE x.document_id = d.id AND x.ingested_at <= p_as_of) END
        WHERE d.corpus_id = ANY (v_corpora) AND (p_metadata IS NULL OR d.metadata @> p_metadata)
          AND (p_source_uris IS NULL OR d.source_uri = ANY (p_source_uris));
    ELSE
        SELECT sum(d.chunks), sum(d.words) INTO v_total, v_words FROM knowledge_documents AS d
        WHERE d.corpus_id = ANY (v_corpora);
    END IF;
    IF coalesce(v_total, 0) = 0 THEN
        RETURN;
    END IF;
    SELECT NULL::tsquery AS words, NULL::tid[] AS places, NULL::uuid[] AS near, NULL::double precision[] AS similarities,
           NULL::double precision[] AS seen, NULL::double precision AS lowest INTO near;
    IF v_total > c_exact THEN
        SELECT * INTO near FROM chunk_candidates(v_corpora, v_docs, v_total, form_queries(v_forms, v_places), p_embedding,
                                                 p_embedding_model, p_limit, p_as_of IS NULL);
    END IF;

    RETURN QUERY
    WITH chunks AS MATERIALIZED (
        SELECT b.id, b.document_id, b.words, b.document, row_number() OVER () AS n
        FROM (
            -- The chunks of small corpora; of large ones those with the words that count, and those that are near besides.
            SELECT k.id, k.document_id, k.corpus_id, k.words, k.from_version, k.upto_version,
                   CASE WHEN k.search @@ v_any THEN k.search END AS document
            FROM knowledge_base AS k WHERE k.corpus_id = ANY (v_corpora) AND near.places IS NULL
            UNION ALL
            SELECT k.id, k.document_id, k.corpus_id, k.words, k.from_version, k.upto_version, k.search
            FROM knowledge_base AS k WHERE k.search @@ near.words
            UNION ALL
            SELECT k.id, k.document_id, k.corpus_id, k.words, k.from_version, k.upto_version, k.search
            FROM knowledge_base AS k WHERE k.ctid = ANY (near.places) AND (k.search @@ near.words) IS NOT TRUE) AS b
        JOIN knowledge_documents AS d ON d.id = b.document_id
        CROSS JOIN LATERAL (
            SELECT CASE WHEN p_as_of IS NULL THEN d.version
                        ELSE (SELECT max(x.version) FROM knowledge_versions AS x
                              WHERE x.document_id = d.id AND x.ingested_at <= p_as_of) END) AS s (version)
        WHERE b.corpus_id = ANY (v_corpora)
          AND (NOT v_narrow OR b.document_id = ANY (v_docs)) AND (p_as_of IS NOT NULL OR b.upto_version IS NULL)
          AND b.from_version <= s.version AND (b.upto_version IS NULL OR b.upto_version >= s.version)
    ), hits AS MATERIALIZED (
        SELECT k.n, q.place, k.words, term_frequency(k.document, q.query) AS tf
        FROM unnest(v_singles, v_places) AS q (query, place)
        CROSS JOIN LATERAL (SELECT * FROM chunks AS c WHERE c.document @@ q.query OFFSET 0) AS k
        WHERE NOT v_many
        UNION ALL
        SELECT k.n, q.place, k.words, least(cardinality(u.positions), 64)
        FROM chunks AS k CROSS JOIN unnest(k.document) AS u
        JOIN unnest(v_forms, v_places) AS q (form, place) ON q.form = u.lexeme
        WHERE v_many
    ), terms AS MATERIALIZED (
        SELECT array_agg(i.idf ORDER BY t.place) AS idf, nullif(sum(i.idf), 0) AS whole
        FROM unnest(v_terms, near.seen) WITH ORDINALITY AS t (term, seen, place)
        LEFT JOIN (SELECT h.place, CASE WHEN v_several THEN count(DISTINCT h.n) ELSE count(*) END AS rows
                   FROM hits AS h WHERE near.seen IS NULL GROUP BY h.place) AS c ON c.place = t.place,
        LATERAL (SELECT coalesce(t.seen, c.rows, 0)::float8 AS rows) AS f,
        LATERAL (SELECT ln(1 + (greatest(v_total - f.rows, 0) + 0.5) / (f.rows + 0.5)) AS idf) AS i
    ), own AS (
        SELECT h.n, sum((SELECT idf FROM terms)[h.place] * h.tf * (p_k1 + 1)
                        / (h.tf + p_k1 * (1 - p_b + p_b * h.words / greatest(v_words / v_total, 1)))) AS bm25
        FROM (SELECT h.n, h.place, h.words, h.tf FROM hits AS h WHERE NOT v_several
              UNION ALL
              SELECT h.n, h.place, h.words, sum(h.tf) FROM hits AS h WHERE v_several GROUP BY h.n, h.place, h.words) AS h
        GROUP BY h.n
    ), worded AS MATERIALIZED (
        SELECT k.n, k.id, k.document_id, coalesce(o.bm25, 0) AS bm25, v.similarity,
               near.near IS NULL OR v.id IS NOT NULL
                   OR o.bm25 > 0 AND row_number() OVER (ORDER BY o.bm25 DESC NULLS LAST, k.id) <= c_best AS is_kept
        FROM chunks AS k LEFT JOIN own AS o ON o.n = k.n
        LEFT JOIN unnest(near.near, near.similarities) AS v (id, similarity) ON v.id = k.id
    ), parts AS MATERIALIZED (
        SELECT w.n, w.id, w.document_id, w.bm25, s.similarity
        FROM worded AS w
        -- The index has compared the nearest already.
        LEFT JOIN knowledge_vectors AS v ON v.id = CASE WHEN w.similarity IS NULL THEN w.id END
            AND v.model = p_embedding_model AND vector_dims(v.embedding) = v_size AND p_embedding IS NOT NULL
        CROSS JOIN LATERAL (
            SELECT CASE WHEN v.id IS NULL THEN w.similarity ELSE nullif(-(v.embedding <#> v_query), 'NaN') END
        ) AS s (similarity)
        WHERE w.is_kept AND (w.bm25 > 0 OR s.similarity > 0)
    ), ranged AS (
        SELECT p.*, coalesce(p.bm25 / nullif(max(p.bm25) OVER (), 0), 0) AS n_text,
               (p.similarity - least(min(p.similarity) OVER (), near.lowest))
               / nullif(max(p.similarity) OVER () - least(min(p.similarity) OVER (), near.lowest), 0) AS n_vector,
               CASE WHEN p.bm25 > 0 THEN rank() OVER (ORDER BY p.bm25 DESC) END AS text_rank,
               CASE WHEN p.similarity IS NOT NULL THEN rank() OVER (ORDER BY p.similarity DESC NULLS LAST) END
                   AS vector_rank,
               count(*) OVER () + (SELECT count(*) FROM worded AS w WHERE w.bm25 > 0 AND w.is_kept IS NOT TRUE) AS total
        FROM parts AS p
    ), scored AS (
        SELECT r.*, CASE WHEN p_fusion = 'rrf'
                         THEN 30.5::float8 * (coalesce(1.0::float8 / (60 + r.text_rank), 0)
                                              + coalesce(1.0::float8 / (60 + r.vector_rank), 0))
                         WHEN p_embedding IS NULL THEN r.n_text
                         -- A chunk without a vector is judged by its words alone.
                         ELSE (1 - p_vector_weight) * r.n_text + p_vector_weight
                              * CASE WHEN r.similarity IS NULL THEN r.n_text ELSE coalesce(r.n_vector, 1) END
                         END AS score
        FROM ranged AS r
    ), best AS MATERIALIZED (
        SELECT s.* FROM (
            SELECT c.*, row_number() OVER (PARTITION BY CASE WHEN p_per_document IS NULL THEN c.id ELSE c.document_id END
                                           ORDER BY c.score DESC, c.id) AS nth
            FROM scored AS c) AS s
        WHERE s.nth <= coalesce(p_per_document, 1)
        ORDER BY s.score DESC, s.id LIMIT p_limit
    ), matched AS (
        SELECT h.n, array_agg(v_terms[h.place] ORDER BY (SELECT idf FROM terms)[h.place] DESC, v_terms[h.place]) AS terms
        FROM (SELECT DISTINCT h.n, h.place FROM hits AS h WHERE h.n IN (SELECT x.n FROM best AS x)) AS h GROUP BY h.n
    )
    SELECT x.id, d.id, c.name::text, d.source_uri::text, d.title::text, d.metadata, coalesce(b.upto_version, d.version),
           b.chunk_index, b.heading_path, b.page, b.char_from, b.char_upto, b.content, b.language, x.score,
           greatest(least(coalesce(x.bm25 / (SELECT whole FROM terms), 0), 1), x.similarity, 0), x.bm25, x.similarity,
           coalesce(m.terms, '{}'), x.total
    FROM best AS x
    JOIN knowledge_base AS b ON b.id = x.id
    JOIN knowledge_documents AS d ON d.id = x.document_id
    JOIN corpus AS c ON c.id = d.corpus_id
    LEFT JOIN matched AS m ON m.n = x.n
    ORDER BY x.score DESC, x.id;
END
$$;

-- Ingests the version again whose ingest has failed; what it has stored stays. Errors: HP015 it has not failed, HP101, HP102.
CREATE OR REPLACE FUNCTION retry_document(p_app_name text, p_user_id text, p_roles text[], p_document_id uuid) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    c corpus;
    d knowledge_documents;
BEGIN
    SELECT k.* INTO d FROM knowledge_documents AS k WHERE k.id = p_document_id AND k.app_name = p_app_name FOR NO KEY UPDATE;
    SELECT k.* INTO c FROM corpus AS k WHERE k.id = d.corpus_id AND may_use_corpus(k, p_user_id, p_roles, false);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no document % for this caller in app %', p_document_id, quote_nullable(p_app_name)
            USING ERRCODE = 'HP101';
    ELSIF NOT may_use_corpus(c, p_user_id, p_roles, true) THEN
        RAISE EXCEPTION 'the caller may read corpus %, and not change it', quote_nullable(c.name) USING ERRCODE = 'HP102';
    ELSIF d.status <> 'failed' THEN
        RAISE EXCEPTION 'document % is %: only one whose ingest has failed is ingested again', p_document_id, d.status
            USING ERRCODE = 'HP015';
    END IF;
    UPDATE knowledge_documents AS k SET
        status = 'waiting', error_code = NULL, error = NULL, procrastinate_job_id = defer_ingest(d.id)
    WHERE k.id = d.id;
END
$$;

-- Removes a document with its versions, chunks, vectors and its queued job. Errors: HP100, HP101, HP102.
CREATE OR REPLACE FUNCTION remove_document(p_app_name text, p_user_id text, p_roles text[], p_corpus text, p_source_uri text)
RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    c    corpus := find_corpus(p_app_name, p_user_id, p_roles, p_corpus, true);
    v_id uuid;
BEGIN
    DELETE FROM knowledge_documents AS d WHERE d.corpus_id = c.id AND d.source_uri = p_source_uri RETURNING d.id INTO v_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'corpus % has no document %', quote_nullable(p_corpus), quote_nullable(p_source_uri)
            USING ERRCODE = 'HP101';
    END IF;
    RETURN v_id;
END
$$;
