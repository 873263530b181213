-- Looking after memories: pins, the archive, policies side by side, where things come from, export and import.

-- Pins or unpins a memory: a pinned one never fades and is never cleaned up. One in the archive is restored first.
-- Returns whether that changed anything. Errors: HP046.
CREATE FUNCTION pin_memory(p_app_name text, p_user_id text, p_id uuid, p_pinned boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_pinned THEN
        PERFORM restore_memories(p_app_name, p_user_id, ARRAY[p_id]);
    END IF;
    UPDATE memories SET pinned = p_pinned
    WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id AND pinned <> p_pinned;
    IF FOUND THEN
        RETURN true;
    ELSIF NOT EXISTS (SELECT FROM memories WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id) THEN
        RAISE EXCEPTION 'there is no memory % of app % and user %',
            p_id, quote_nullable(p_app_name), quote_nullable(p_user_id) USING ERRCODE = 'HP046';
    END IF;
    RETURN false;
END
$$;

CREATE INDEX memories_archive_scope_idx ON memories_archive (app_name, user_id, id);
CREATE INDEX memories_archive_age_idx ON memories_archive (archived_at);

-- Brings archived memories of a user back, as if they had been accessed now: those of p_ids, or NULL for the first
-- p_limit. One whose slice has been drawn anew since stays. Returns the ids.
CREATE FUNCTION restore_memories(p_app_name text, p_user_id text, p_ids uuid[] DEFAULT NULL, p_limit integer DEFAULT 1000)
RETURNS SETOF uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 OR cardinality(p_ids) > 1000 THEN
        RAISE EXCEPTION 'at most 1000 memories are restored in one call' USING ERRCODE = 'HP007';
    END IF;
    RETURN QUERY
        WITH wanted AS (
            SELECT a.* FROM memories_archive AS a
            WHERE a.app_name = p_app_name AND a.user_id = p_user_id AND (p_ids IS NULL OR a.id = ANY (p_ids))
              AND NOT EXISTS (
                  SELECT FROM memories AS m
                  WHERE m.id = a.id OR (m.thread_id = a.thread_id AND m.memory_type = a.memory_type
                                        AND m.from_seq = a.from_seq AND a.memory_type IN ('episodic', 'summary')))
            ORDER BY a.id LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), back AS (
            INSERT INTO memories (
                id, thread_id, user_id, app_name, memory_type, content, embedding, embedding_model, metadata,
                initial_score, pinned, access_count, last_accessed_at, from_seq, upto_seq, source_seqs, job_id,
                prompt_hash, model, occurred_at, created_at)
            SELECT w.id, t.id, w.user_id, w.app_name, w.memory_type, w.content, w.embedding, w.embedding_model,
                   w.metadata, w.initial_score, w.pinned, w.access_count, engine_now(), w.from_seq, w.upto_seq,
                   w.source_seqs, w.job_id, w.prompt_hash, w.model, w.occurred_at, w.created_at
            FROM wanted AS w LEFT JOIN threads AS t ON t.id = w.thread_id
            ON CONFLICT DO NOTHING
            RETURNING memories.id
        ), gone AS (
            DELETE FROM memories_archive AS a USING back AS b WHERE a.id = b.id
        )
        SELECT b.id FROM back AS b;
END
$$;

-- Deletes at most p_limit archived memories for good, whose app's policy keeps them no longer. Returns how many; call
-- it again, each time in a transaction of its own, until it returns 0.
CREATE FUNCTION purge_archive(p_app_name text DEFAULT NULL, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_now   timestamptz := engine_now();
    v_count integer;
BEGIN
    PERFORM check_cleanup_arguments(NULL, NULL, NULL, p_limit);
    DELETE FROM memories_archive WHERE id = ANY (ARRAY(
        SELECT a.id FROM memories_archive AS a
        JOIN app_policies AS rest ON rest.app_name = '*'
        LEFT JOIN app_policies AS own ON own.app_name = a.app_name
        WHERE (p_app_name IS NULL OR a.app_name = p_app_name)
          AND a.archived_at <= v_now - make_interval(secs => 86400 * coalesce(own.archive_days, rest.archive_days))
        ORDER BY a.archived_at LIMIT p_limit FOR UPDATE OF a SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

-- Each memory with its score and its fate under two policies.
CREATE FUNCTION policy_verdicts(
    p_app_name text, p_user_id text, p_one app_policies, p_other app_policies, p_days double precision)
RETURNS TABLE (id uuid, user_id varchar, memory_type varchar, content text, pinned boolean, one boolean,
               one_score double precision, other boolean, other_score double precision)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT m.id, m.user_id, m.memory_type, m.content, m.pinned,
           m.pinned OR a.score >= p_one.cleanup_threshold
           OR m.created_at > n.at - make_interval(secs => 86400 * p_one.min_age_days), a.score,
           m.pinned OR b.score >= p_other.cleanup_threshold
           OR m.created_at > n.at - make_interval(secs => 86400 * p_other.min_age_days), b.score
    FROM (SELECT engine_now() + make_interval(secs => 86400 * p_days) AS at) AS n
    CROSS JOIN memories AS m
    CROSS JOIN LATERAL (SELECT retention_score(m, p_one, n.at)) AS a (score)
    CROSS JOIN LATERAL (SELECT retention_score(m, p_other, n.at)) AS b (score)
    WHERE m.app_name = p_app_name AND (p_user_id IS NULL OR m.user_id = p_user_id)
$$;

-- What a clean-up would do p_days from now under two policies, if nothing is used: how many of the app's memories each
-- would keep. Nothing is changed.
CREATE FUNCTION compare_policies(
    p_app_name text, p_user_id text, p_one app_policies, p_other app_policies, p_days double precision DEFAULT 0,
    OUT total bigint, OUT kept_by_both bigint, OUT only_by_one bigint, OUT only_by_other bigint, OUT kept_by_none bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT count(*), count(*) FILTER (WHERE k.one AND k.other), count(*) FILTER (WHERE k.one AND NOT k.other),
           count(*) FILTER (WHERE k.other AND NOT k.one), count(*) FILTER (WHERE NOT k.one AND NOT k.other)
    FROM policy_verdicts(p_app_name, p_user_id, p_one, p_other, p_days) AS k
$$;

-- Everything that was drawn from events, kept or archived, in force or not.
CREATE VIEW drawn AS
    SELECT 'memory' AS source, m.id, m.id AS row_id, m.memory_type AS kind, m.content, m.app_name, m.user_id, m.thread_id,
           m.from_seq, m.upto_seq, m.source_seqs, m.job_id, m.prompt_hash, m.model, m.created_at AS recorded_at
    FROM memories AS m
    UNION ALL
    SELECT 'archived_memory', a.id, a.id, a.memory_type, a.content, a.app_name, a.user_id, a.thread_id,
           a.from_seq, a.upto_seq, a.source_seqs, a.job_id, a.prompt_hash, a.model, a.created_at
    FROM memories_archive AS a
    UNION ALL
    SELECT 'fact', f.id, f.id, f.fact_type, f.content, f.app_name, f.user_id, f.thread_id,
           f.from_seq, f.upto_seq, f.source_seqs, f.job_id, f.prompt_hash, f.model, f.recorded_at
    FROM facts AS f
    UNION ALL
    SELECT 'fact_version', v.fact_id, v.id, v.fact_type, coalesce(fact_text(v.key, v.value), v.key), v.app_name, v.user_id, v.thread_id,
           v.from_seq, v.upto_seq, v.source_seqs, v.job_id, v.prompt_hash, v.model, v.recorded_at
    FROM fact_versions AS v
    UNION ALL
    SELECT 'proposal', p.id, p.id, p.instruction_key, p.content, p.app_name, p.user_id, p.thread_id,
           NULL, NULL, p.source_seqs, p.job_id, p.prompt_hash, p.model, p.proposed_at
    FROM instruction_proposals AS p;

-- Where rows come from whose session is not in this database: they were imported.
CREATE TABLE imported_origins (
    row_id     uuid PRIMARY KEY,
    app_name   varchar(255) NOT NULL,
    user_id    varchar(255) NOT NULL,
    thread_id  uuid NOT NULL,
    session_id text
);
CREATE INDEX imported_origins_user_idx ON imported_origins (app_name, user_id);
INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, target_rows, note) VALUES
(440, 'imported_origins', 'app_name = $1 AND user_id = $2', 'thread_id = $1', 'row_id = $1',
 'names of sessions that are elsewhere');

-- A page of the lines of an export: the rows of one kind of data_catalogue, in the order of their ids, after p_after.
-- Whose they are stands in the file's header, not in its lines; `session` says where a row was drawn.
CREATE FUNCTION export_lines(p_app_name text, p_user_id text, p_kind text, p_vectors boolean, p_after uuid, p_limit integer)
RETURNS TABLE (id uuid, line text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET timezone = 'UTC'
AS $$
DECLARE
    c data_catalogue;
BEGIN
    SELECT * INTO STRICT c FROM data_catalogue WHERE export_kind = p_kind;
    RETURN QUERY EXECUTE format($f$
        SELECT x.id, (jsonb_build_object('kind', %2$L)
                      || (to_jsonb(x) - '{app_name,user_id,thread_id,search}'::text[]
                          - CASE WHEN $3 THEN '{}' ELSE '{embedding,embedding_model}' END::text[])
                      || CASE WHEN s.thread_id IS NULL THEN '{}' ELSE jsonb_build_object('session', to_jsonb(s)) END)::text
        FROM (SELECT * FROM %1$I WHERE (%3$s) AND id > $4 ORDER BY id LIMIT $5) AS x
        LEFT JOIN imported_origins AS o ON o.row_id = x.id
        LEFT JOIN threads AS t ON t.id = (to_jsonb(x) ->> 'thread_id')::uuid
        CROSS JOIN LATERAL (SELECT coalesce((to_jsonb(x) ->> 'thread_id')::uuid, o.thread_id) AS thread_id,
                                   coalesce(t.session_id, o.session_id) AS session_id) AS s
        ORDER BY x.id$f$, c.table_name, p_kind, c.export_rows)
    USING p_app_name, p_user_id, p_vectors, p_after, p_limit;
END
$$;

-- Keeps imports and the erasure of a user apart for the rest of the transaction. Errors: HP047 the user is being
-- forgotten.
CREATE FUNCTION begin_import(p_app_name text, p_user_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(
        concat_ws(' ', 'erasure of', current_schema(), p_app_name, p_user_id), 0));
    IF EXISTS (SELECT FROM erasures WHERE app_name = p_app_name AND user_id = p_user_id AND finished_at IS NULL) THEN
        RAISE EXCEPTION 'user % of app % is being forgotten: import when that has ended',
            quote_literal(p_user_id), quote_literal(p_app_name) USING ERRCODE = 'HP047';
    END IF;
END
$$;

-- Stores lines of one kind for a user, who need not be whose they were. A row that is here to the letter, or that was
-- forgotten here by itself, is passed over. Returns how many were stored.
-- Errors: HP048 a line has a field that the table has not; PostgreSQL's own for values that it refuses.
CREATE FUNCTION import_lines(p_app_name text, p_user_id text, p_kind text, p_lines jsonb[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    c         data_catalogue;
    v_names   text[];
    v_unknown text;
    v_count   integer;
BEGIN
    SELECT * INTO STRICT c FROM data_catalogue WHERE export_kind = p_kind;
    SELECT array_agg(a.attname::text ORDER BY a.attnum) INTO v_names FROM pg_attribute AS a
    WHERE a.attrelid = to_regclass(quote_ident(c.table_name)) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';
    SELECT string_agg(DISTINCT k, ', ') INTO v_unknown FROM unnest(p_lines) AS l, jsonb_object_keys(l) AS k
    WHERE k <> ALL (v_names) AND k NOT IN ('kind', 'session') OR k IN ('app_name', 'user_id', 'thread_id');
    IF v_unknown IS NOT NULL THEN
        RAISE EXCEPTION 'a line of the kind % has no field %', p_kind, v_unknown USING ERRCODE = 'HP048';
    END IF;
    EXECUTE format($f$
        WITH given AS (
            SELECT l || jsonb_build_object(
                       'app_name', $1, 'user_id', $2, 'thread_id',
                       CASE WHEN %4$L THEN coalesce(t.id::text, l #>> '{session,thread_id}') ELSE t.id::text END) AS row,
                   (l #>> '{session,thread_id}')::uuid AS thread_id, l #>> '{session,session_id}' AS session_id,
                   t.id IS NULL AND l -> 'session' IS NOT NULL AS is_elsewhere
            FROM unnest($3) AS l
            LEFT JOIN threads AS t ON t.id = (l #>> '{session,thread_id}')::uuid AND t.app_name = $1 AND t.user_id = $2
        ), fresh AS (
            SELECT g.*, r.id FROM given AS g, jsonb_populate_record(NULL::%1$I, g.row) AS r
            WHERE NOT EXISTS (SELECT FROM memory_tombstones AS x WHERE x.id IN (r.id, (g.row ->> 'fact_id')::uuid))
              AND NOT EXISTS (SELECT FROM %1$I AS x WHERE x.id = r.id AND to_jsonb(x) - 'search' = to_jsonb(r) - 'search')
        ), origins AS (
            INSERT INTO imported_origins (row_id, app_name, user_id, thread_id, session_id)
            SELECT f.id, $1, $2, f.thread_id, f.session_id FROM fresh AS f WHERE f.is_elsewhere
            ON CONFLICT DO NOTHING  -- a tombstone of what an earlier import brought
        )
        INSERT INTO %1$I (%2$s)
        SELECT %3$s FROM fresh AS f, jsonb_populate_record(NULL::%1$I, f.row) AS r$f$,
        c.table_name, (SELECT string_agg(quote_ident(n), ', ') FROM unnest(v_names) AS n),
        (SELECT string_agg('r.' || quote_ident(n), ', ') FROM unnest(v_names) AS n), c.table_name = 'memories_archive')
    USING p_app_name, p_user_id, p_lines;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
