-- Roles with the least that each process needs, and row-level security behind them. An installation whose processes
-- connect as the tables' owner needs none of this: the owner is not subject to policies.

-- The app and the user that the session's login may read: see reader_scopes. NULL: none. The login is the one that
-- authenticated: SET ROLE does not change it. Privileged functions: readers do not see the scopes of others.
CREATE OR REPLACE FUNCTION scope_app() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
AS $$
    SELECT s.app_name FROM reader_scopes AS s WHERE s.role_name = session_user
$$;

CREATE OR REPLACE FUNCTION scope_user() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
AS $$
    SELECT coalesce(s.user_id, nullif(current_setting('hippocampus.user_id', true), '')) FROM reader_scopes AS s
    WHERE s.role_name = session_user
$$;

-- Creates the roles hippocampus_writer, hippocampus_worker and hippocampus_reader, grants each what it needs, and
-- renews the policies of every table that the catalogue names. Idempotent; run it again after each migration, as the
-- tables' owner with CREATEROLE. Returns how many tables have policies.
--
--   writer   the HTTP API and agents' hosts: sessions, memory, erasure, of every app
--   worker   the workers of all pools: the same, without keys and without the addresses of webhooks
--   reader   SELECT on what belongs to the scope of its login, and nothing else
CREATE OR REPLACE FUNCTION grant_roles() RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_schema text := current_schema();
    v_vector text := (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
                      WHERE e.extname = 'vector');
    v_role   text;
    v_name   text;
    v_count  integer := 0;
    v_tables jsonb;
    c        record;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['hippocampus_writer', 'hippocampus_worker', 'hippocampus_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = v_role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOBYPASSRLS', v_role);
        END IF;
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', v_schema, v_role);
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', v_schema, v_role);
        -- pgvector's may be another one; where everyone may use it, there is nothing to grant.
        IF NOT has_schema_privilege(v_role, v_vector, 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', v_vector, v_role);
        END IF;
    END LOOP;
    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', v_schema);
    -- A temporary table would stand before ours in the path of a privileged function.
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO hippocampus_writer, hippocampus_worker', v_schema);
    -- Some, such as those of erasure, are not for everyone.
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO hippocampus_writer, hippocampus_worker', v_schema);
    FOR v_name IN
        SELECT p.oid::regprocedure::text FROM pg_proc AS p
        WHERE p.pronamespace = v_schema::regnamespace AND p.prosecdef AND p.proname NOT IN ('scope_app', 'scope_user')
          AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = p.oid AND d.deptype = 'e')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', v_name);
    END LOOP;

    FOR c IN
        SELECT t.relname AS name, d.user_rows,
               -- What only the owner, or only a function, changes.
               t.relname = ANY ('{engine_settings,data_catalogue,reader_scopes,audit_log,app_policies}')
               OR t.relname LIKE 'hippocampus\_%' AS is_fixed
        FROM pg_class AS t LEFT JOIN data_catalogue AS d ON d.table_name = t.relname
        WHERE t.relnamespace = v_schema::regnamespace AND t.relkind IN ('r', 'p', 'v')
          AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.objid = t.oid AND e.deptype = 'e')
        ORDER BY t.relname
    LOOP
        IF c.name IN ('api_keys', 'reader_scopes') THEN
            -- Below.
        ELSIF c.is_fixed THEN
            EXECUTE format('GRANT SELECT ON %I.%I TO hippocampus_writer, hippocampus_worker', v_schema, c.name);
        ELSE
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO hippocampus_writer, hippocampus_worker',
                           v_schema, c.name);
        END IF;
    END LOOP;
    EXECUTE format('REVOKE SELECT ON %1$I.audit_log FROM hippocampus_worker', v_schema);
    EXECUTE format('REVOKE INSERT ON %1$I.webhook_endpoints FROM hippocampus_worker', v_schema);
    EXECUTE format('REVOKE INSERT ON %1$I.stream_tickets FROM hippocampus_worker', v_schema);
    -- The writer makes secrets of webhooks; only the worker reads them.
    EXECUTE format('REVOKE SELECT ON %1$I.webhook_secrets FROM hippocampus_writer', v_schema);
    EXECUTE format('GRANT SELECT (id, endpoint_id, expires_at, created_at) ON %1$I.webhook_secrets'
                   ' TO hippocampus_writer', v_schema);
    -- Keys are made by the owner; an erasure deletes a user's own.
    EXECUTE format('GRANT SELECT, DELETE, UPDATE (last_used_at) ON %1$I.api_keys TO hippocampus_writer', v_schema);
    EXECUTE format('GRANT SELECT (ctid, id, app_name, user_id), DELETE, UPDATE (last_used_at) ON %1$I.api_keys'
                   ' TO hippocampus_worker', v_schema);

    -- Read first: the catalogue itself has a policy.
    v_tables := (
        SELECT jsonb_agg(jsonb_build_object(
            'table_name', d.table_name,
            'read', CASE
                WHEN d.table_name IN ('api_keys', 'stream_tickets', 'erased_imports') THEN NULL
                WHEN d.table_name IN ('memory_vectors', 'message_vectors', 'fact_vectors')
                    THEN 'app_name = $1 AND user_id = $2'
                WHEN d.table_name = 'app_states' THEN 'app_name = $1'
                WHEN d.table_name IN ('app_policies', 'fact_styles', 'instructions') THEN 'app_name IN ($1, ''*'')'
                -- Not the key of cursors, which is in the same table.
                WHEN d.table_name = 'engine_settings' THEN 'name = ''test_clock'''
                WHEN d.table_name IN ('vector_fill', 'embedding_target') THEN 'true'
                WHEN d.table_name = 'corpus_access'
                    THEN 'app_name = $1 AND grantee IN (''*'', ''user:'' || $2)'
                WHEN d.table_name = 'corpus'
                    THEN 'app_name = $1 AND (user_id = $2 OR id IN (SELECT a.corpus_id FROM corpus_access AS a))'
                -- What belongs to the corpora that the login sees.
                WHEN d.table_name IN ('knowledge_documents', 'knowledge_versions', 'knowledge_base', 'knowledge_vectors')
                    THEN 'corpus_id IN (SELECT c.id FROM corpus AS c)'
                ELSE d.user_rows END) ORDER BY d.table_name)
        FROM data_catalogue AS d
        JOIN pg_class AS t ON t.relname = d.table_name AND t.relnamespace = v_schema::regnamespace
                              AND t.relkind IN ('r', 'p'));
    FOR c IN SELECT * FROM jsonb_to_recordset(v_tables) AS t (table_name text, read text)
    LOOP
        EXECUTE format('DROP POLICY IF EXISTS hippocampus_service ON %I.%I', v_schema, c.table_name);
        EXECUTE format('DROP POLICY IF EXISTS hippocampus_scope ON %I.%I', v_schema, c.table_name);
        EXECUTE format('CREATE POLICY hippocampus_service ON %I.%I TO hippocampus_writer, hippocampus_worker'
                       ' USING (true) WITH CHECK (true)', v_schema, c.table_name);
        IF c.read IS NOT NULL THEN
            -- The catalogue's own condition, with the scope in place of app and user: evaluated once for each statement.
            EXECUTE format('CREATE POLICY hippocampus_scope ON %I.%I FOR SELECT TO hippocampus_reader USING (%s)',
                           v_schema, c.table_name,
                           replace(replace(replace(c.read, '$1', '(SELECT scope_app())'),
                                           '$2', '(SELECT scope_user())'), '$6', '''infinity''::timestamptz'));
            EXECUTE format('GRANT SELECT ON %I.%I TO hippocampus_reader', v_schema, c.table_name);
        END IF;
        EXECUTE format('ALTER TABLE %I.%I ENABLE ROW LEVEL SECURITY', v_schema, c.table_name);
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END
$$;

-- Binds a login to an app, or to one user of it, as a member of hippocampus_reader; run by the tables' owner.
-- Errors: HP007 no such role, or one that row-level security does not hold.
CREATE OR REPLACE FUNCTION bind_reader(p_role text, p_app_name text, p_user_id text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = p_role AND NOT r.rolsuper AND NOT r.rolbypassrls) THEN
        RAISE EXCEPTION 'there is no role %, or policies do not hold it: create it with CREATE ROLE … LOGIN',
            quote_nullable(p_role) USING ERRCODE = 'HP007';
    END IF;
    EXECUTE format('GRANT hippocampus_reader TO %I', p_role);
    INSERT INTO reader_scopes (role_name, app_name, user_id) VALUES (p_role, p_app_name, p_user_id)
    ON CONFLICT (role_name) DO UPDATE SET app_name = EXCLUDED.app_name, user_id = EXCLUDED.user_id;
END
$$;
