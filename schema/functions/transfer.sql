-- Export and import of memories.

-- A page of the lines of an export: the rows of one kind of data_catalogue, in the order of their ids, after p_after.
-- The file's header names the user, its lines do not; `session` is where a row was extracted.
CREATE OR REPLACE FUNCTION export_lines(p_app_name text, p_user_id text, p_kind text, p_vectors boolean, p_after uuid, p_limit integer)
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
-- erased.
CREATE OR REPLACE FUNCTION begin_import(p_app_name text, p_user_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(
        concat_ws(' ', 'erasure of', current_schema(), p_app_name, p_user_id), 0));
    IF EXISTS (SELECT FROM erasures WHERE app_name = p_app_name AND user_id = p_user_id AND finished_at IS NULL) THEN
        RAISE EXCEPTION 'user % of app % is being erased: import when that has ended',
            quote_literal(p_user_id), quote_literal(p_app_name) USING ERRCODE = 'HP047';
    END IF;
END
$$;

-- Stores lines of one kind for a user, who need not be the original one. A row that is stored already with the same
-- content, or that was erased here by itself, is skipped. Returns how many were stored.
-- Errors: HP048 a line has a field that the table does not have; PostgreSQL's own for values that it refuses.
CREATE OR REPLACE FUNCTION import_lines(p_app_name text, p_user_id text, p_kind text, p_lines jsonb[]) RETURNS integer
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
            -- The namespace of an item names its user.
            SELECT l || CASE WHEN l ? 'namespace' THEN jsonb_build_object('namespace', jsonb_build_array(
                                 'users', user_label($2)) || ((l -> 'namespace') - 0 - 0)) ELSE '{}' END
                     || jsonb_build_object(
                       'app_name', $1, 'user_id', $2, 'thread_id',
                       CASE WHEN %4$L THEN coalesce(t.id::text, l #>> '{session,thread_id}') ELSE t.id::text END) AS row,
                   (l #>> '{session,thread_id}')::uuid AS thread_id, l #>> '{session,session_id}' AS session_id,
                   t.id IS NULL AND l -> 'session' IS NOT NULL AS is_elsewhere
            FROM unnest($3) AS l
            LEFT JOIN threads AS t ON t.id = (l #>> '{session,thread_id}')::uuid AND t.app_name = $1 AND t.user_id = $2
        ), fresh AS (
            SELECT g.*, r.id FROM given AS g, jsonb_populate_record(NULL::%1$I, g.row) AS r
            WHERE NOT EXISTS (SELECT FROM memory_tombstones AS x
                              WHERE x.id IN (r.id, (g.row ->> 'fact_id')::uuid) AND x.app_name = $1 AND x.user_id = $2)
              AND NOT EXISTS (SELECT FROM %1$I AS x WHERE x.id = r.id AND to_jsonb(x) - 'search' = to_jsonb(r) - 'search')
        ), origins AS (
            INSERT INTO imported_origins (row_id, app_name, user_id, thread_id, session_id)
            SELECT f.id, $1, $2, f.thread_id, f.session_id FROM fresh AS f WHERE f.is_elsewhere
            ON CONFLICT DO NOTHING  -- a tombstone of an earlier import
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
