-- Cells: what a move of an app copies, and the fence that keeps writers from the cell that does not serve it.

-- The tables that hold rows of apps, in the order in which erasure locks them: the condition on the rows of the app $1,
-- the columns without those that are computed, the primary key ('{}': none), whether the rows are shared between apps,
-- whether another index than the primary key's is unique, and the column by which the fence finds the app (NULL: it
-- does not watch the table, whose rows change only together with others).
CREATE OR REPLACE FUNCTION moved_tables()
RETURNS TABLE (table_name text, app_rows text, columns text[], key_columns text[], is_shared boolean,
               has_more_keys boolean, fenced_by text, place integer)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT c.table_name, r.app_rows, a.columns, coalesce(k.columns, '{}'), c.table_name = 'artifact_blobs',
           EXISTS (SELECT FROM pg_index AS x WHERE x.indrelid = o.oid AND x.indisunique AND NOT x.indisprimary),
           -- A job's status follows the queue's, which knows nothing of apps.
           CASE WHEN c.table_name IN ('consolidation_jobs', 'artifact_blobs', 'embedding_refusals', 'item_vectors') THEN NULL
                ELSE f.name END,
           c.place
    FROM data_catalogue AS c
    CROSS JOIN LATERAL to_regclass(quote_ident(c.table_name)) AS o (oid)
    CROSS JOIN LATERAL (
        SELECT array_agg(t.attname::text ORDER BY t.attnum) AS names,
               array_agg(t.attname::text ORDER BY t.attnum) FILTER (WHERE t.attgenerated = '') AS columns
        FROM pg_attribute AS t WHERE t.attrelid = o.oid AND t.attnum > 0 AND NOT t.attisdropped) AS a
    CROSS JOIN LATERAL (
        SELECT coalesce(c.app_rows,
                        CASE WHEN 'app_name' = ANY (a.names) THEN 'app_name = $1'
                             WHEN 'thread_id' = ANY (a.names)
                             THEN 'thread_id IN (SELECT id FROM threads WHERE app_name = $1)' END) AS app_rows) AS r
    LEFT JOIN LATERAL (
        SELECT array_agg(t.attname::text ORDER BY p.place) AS columns
        FROM pg_index AS x
        CROSS JOIN LATERAL unnest(x.indkey::smallint[]) WITH ORDINALITY AS p (attnum, place)
        JOIN pg_attribute AS t ON t.attrelid = o.oid AND t.attnum = p.attnum
        WHERE x.indrelid = o.oid AND x.indisprimary) AS k ON true
    LEFT JOIN LATERAL (
        SELECT n.name FROM unnest('{app_name,thread_id,endpoint_id,artifact_id}'::text[]) WITH ORDINALITY AS n (name, rank)
        WHERE n.name = ANY (a.names) ORDER BY n.rank LIMIT 1) AS f ON true
    WHERE r.app_rows IS NOT NULL AND r.app_rows <> 'false'
    ORDER BY c.place
$$;

-- Refuses a change of a row whose app is served by another cell. The arguments are the column that leads to the app,
-- and the apps: in the trigger, so that every transaction sees them at once, whatever its snapshot.
-- Errors: HP091 the app is being moved, HP092 it has moved.
CREATE OR REPLACE FUNCTION refuse_moved_app() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_app   text;
    v_where app_cells;
BEGIN
    -- What a permitted change entails, such as a job's status that follows the queue's.
    IF pg_trigger_depth() > 1 THEN
        RETURN coalesce(NEW, OLD);
    END IF;
    CASE TG_ARGV[0]
        WHEN 'app_name' THEN
            v_app := coalesce(NEW.app_name, OLD.app_name);
        WHEN 'thread_id' THEN
            SELECT t.app_name INTO v_app FROM threads AS t WHERE t.id = coalesce(NEW.thread_id, OLD.thread_id);
        WHEN 'endpoint_id' THEN
            SELECT e.app_name INTO v_app FROM webhook_endpoints AS e WHERE e.id = coalesce(NEW.endpoint_id, OLD.endpoint_id);
        WHEN 'artifact_id' THEN
            SELECT a.app_name INTO v_app FROM artifacts AS a WHERE a.id = coalesce(NEW.artifact_id, OLD.artifact_id);
    END CASE;
    IF v_app = ANY (TG_ARGV[1:]) THEN
        SELECT * INTO v_where FROM app_cells AS c WHERE c.app_name = v_app;
        -- Until every process has read that the app has moved, a retry is what reaches the new cell.
        IF v_where.state = 'leaving'
           OR v_where.state = 'moved' AND v_where.marked_at > clock_timestamp() - interval '3 seconds' THEN
            RAISE EXCEPTION 'the app % is being moved to the cell %: nothing was changed, retry in a moment',
                quote_literal(v_app), v_where.cell USING ERRCODE = 'HP091';
        END IF;
        RAISE EXCEPTION 'the app % is served by the cell %, not here: nothing was changed', quote_literal(v_app),
            coalesce(v_where.cell, '?') USING ERRCODE = 'HP092';
    END IF;
    RETURN coalesce(NEW, OLD);
END
$$;

-- Sets the fence of every table to the apps of app_cells. Without any, there is no trigger: a cell that serves all of
-- its apps pays nothing. Each CREATE TRIGGER waits for the transactions that write its table.
CREATE OR REPLACE FUNCTION renew_fences() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_apps  text;
    v_table record;
BEGIN
    SELECT string_agg(quote_literal(c.app_name), ', ' ORDER BY c.app_name) INTO v_apps FROM app_cells AS c;
    -- Threads first, as every writer locks them.
    FOR v_table IN SELECT m.table_name, m.fenced_by FROM moved_tables() AS m WHERE m.fenced_by IS NOT NULL
                   ORDER BY m.table_name <> 'threads', m.place LOOP
        IF v_apps IS NULL THEN
            EXECUTE format('DROP TRIGGER IF EXISTS app_moved ON %I', v_table.table_name);
        ELSE
            EXECUTE format('CREATE OR REPLACE TRIGGER app_moved BEFORE INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW'
                           ' EXECUTE FUNCTION refuse_moved_app(%L, %s)', v_table.table_name, v_table.fenced_by, v_apps);
        END IF;
    END LOOP;
END
$$;

-- Marks where an app is served, and fences it off here. Once this commits, no transaction changes the app's rows.
CREATE OR REPLACE FUNCTION mark_app_cell(p_app_name text, p_cell text, p_state text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_is_known boolean;
BEGIN
    SELECT EXISTS (SELECT FROM app_cells AS c WHERE c.app_name = p_app_name) INTO v_is_known;
    INSERT INTO app_cells AS c (app_name, cell, state) VALUES (p_app_name, p_cell, p_state)
    ON CONFLICT (app_name) DO UPDATE SET cell = excluded.cell, state = excluded.state, marked_at = clock_timestamp();
    IF NOT v_is_known THEN
        PERFORM renew_fences();
    END IF;
END
$$;

-- Serves an app here from now on: removes its fence, and puts its jobs and deliveries, which came without their jobs of
-- the queue, into this cell's queue.
CREATE OR REPLACE FUNCTION serve_app(p_app_name text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    j        record;
    v_queued bigint;
BEGIN
    DELETE FROM app_cells AS c WHERE c.app_name = p_app_name;
    PERFORM renew_fences();
    FOR j IN SELECT c.* FROM consolidation_jobs AS c JOIN threads AS t ON t.id = c.thread_id
             WHERE t.app_name = p_app_name AND c.procrastinate_job_id IS NULL
               AND c.status IN ('pending', 'running', 'failed')
             ORDER BY c.created_at, c.id LOOP
        IF j.status = 'failed' THEN
            -- It waits for a person, who may have it run again.
            INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args, status, attempts)
            VALUES (CASE j.job_type WHEN 'fast_replay' THEN 'fast_replay' ELSE 'deep_reflection' END, j.job_type,
                    j.job_type || ':' || j.thread_id, jsonb_build_object('job_id', j.id), 'failed', j.attempts)
            RETURNING id INTO v_queued;
        ELSE
            v_queued := defer_consolidation(j.id, j.thread_id, j.job_type);
        END IF;
        -- An attempt that was cut off counts, as one whose worker died does: the job is no longer fresh.
        UPDATE consolidation_jobs AS c SET
            status = CASE j.status WHEN 'failed' THEN 'failed' ELSE 'pending' END,
            started_at = CASE j.status WHEN 'running' THEN NULL ELSE c.started_at END,
            procrastinate_job_id = v_queued
        WHERE c.id = j.id;
    END LOOP;
END
$$;
