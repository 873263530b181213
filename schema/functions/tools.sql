-- Tools of an app, their versions, and the calls of them.
--
-- Waits for a call are never here: a call is two statements, before it (begin_tool_call) and after it (end_tool_call).

-- Numbers a change of a tool's definition. The lock makes the numbers of an app ascend in the order of its commits, so
-- that a reader who asks for what is newer than a number misses nothing.
CREATE OR REPLACE FUNCTION number_tool_change() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('hippocampus tools ' || NEW.app_name, 0));
    NEW.revision := nextval('tool_revisions');
    NEW.updated_at := engine_now();
    PERFORM pg_notify('agent_tools', json_build_object('app', NEW.app_name, 'version', NEW.revision)::text);
    RETURN NEW;
END
$$;

-- A tool's definition: what a version holds.
CREATE OR REPLACE FUNCTION tool_definition(t tools) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT jsonb_build_object(
        'display_name', t.display_name, 'description', t.description, 'openapi_schema', t.openapi_schema,
        'permissions', t.permissions, 'kind', t.kind, 'input_schema', t.input_schema,
        'output_schema', t.output_schema, 'operation', t.operation, 'nature', t.nature,
        'timeout_seconds', t.timeout_seconds)
$$;

-- Adds a tool, or gives it its next version if its definition (as tool_definition) differs. One that was gone is there
-- again; one that a person has disabled stays so. Errors: HP007 the name is taken by a tool of another source.
CREATE OR REPLACE FUNCTION put_tool(p_app_name text, p_name text, p_source_id uuid, p_definition jsonb) RETURNS tools
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t tools;
    d tools := jsonb_populate_record(NULL::tools, p_definition);
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('hippocampus tools ' || p_app_name, 0));
    SELECT * INTO t FROM tools AS o WHERE o.app_name = p_app_name AND o.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO tools (app_name, name, source_id, display_name, description, openapi_schema, permissions, kind,
                           input_schema, output_schema, operation, nature, timeout_seconds)
        VALUES (p_app_name, p_name, p_source_id, d.display_name, d.description, d.openapi_schema, d.permissions, d.kind,
                d.input_schema, d.output_schema, d.operation, d.nature, d.timeout_seconds)
        RETURNING * INTO t;
    ELSIF t.source_id IS DISTINCT FROM p_source_id THEN
        RAISE EXCEPTION 'the name % is taken by a tool of another source: remove that, or name this one otherwise',
            quote_literal(p_name) USING ERRCODE = 'HP007';
    ELSIF tool_definition(t) = p_definition THEN
        IF t.is_gone THEN
            UPDATE tools SET is_gone = false WHERE id = t.id RETURNING * INTO t;
        END IF;
        RETURN t;
    ELSE
        UPDATE tools AS o SET
            display_name = d.display_name, description = d.description, openapi_schema = d.openapi_schema,
            permissions = d.permissions, kind = d.kind, input_schema = d.input_schema,
            output_schema = d.output_schema, operation = d.operation, nature = d.nature,
            timeout_seconds = d.timeout_seconds, is_gone = false,
            version = 1 + (SELECT max(v.version) FROM tool_versions AS v WHERE v.tool_id = t.id)
        WHERE o.id = t.id RETURNING * INTO t;
    END IF;
    INSERT INTO tool_versions (tool_id, version, definition) VALUES (t.id, t.version, tool_definition(t));
    RETURN t;
END
$$;

-- Stores a source and its tools, {"name", "definition"} each; those of its tools that are not named are gone.
-- Returns the names that are new, changed and gone. Errors: as put_tool.
CREATE OR REPLACE FUNCTION put_tool_source(
    p_app_name text, p_name text, p_kind text, p_document jsonb, p_sha256 bytea, p_base_url text, p_options jsonb,
    p_tools jsonb, OUT source_id uuid, OUT added text[], OUT changed text[], OUT gone text[])
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_id     uuid;
    v_before jsonb;
    v_tool   jsonb;
    t        tools;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('hippocampus tools ' || p_app_name, 0));
    INSERT INTO tool_sources AS s (app_name, name, kind, document, sha256, base_url, options)
    VALUES (p_app_name, p_name, p_kind, p_document, p_sha256, p_base_url, p_options)
    ON CONFLICT (app_name, name) DO UPDATE SET
        kind = EXCLUDED.kind, document = EXCLUDED.document, sha256 = EXCLUDED.sha256, base_url = EXCLUDED.base_url,
        options = EXCLUDED.options, version = s.version + 1, updated_at = engine_now()
    RETURNING s.id INTO v_id;
    source_id := v_id;
    SELECT coalesce(jsonb_object_agg(o.name, o.version), '{}') INTO v_before
    FROM tools AS o WHERE o.source_id = v_id AND NOT o.is_gone;
    added := '{}';
    changed := '{}';
    FOR v_tool IN SELECT e.value FROM jsonb_array_elements(p_tools) AS e LOOP
        t := put_tool(p_app_name, v_tool ->> 'name', v_id, v_tool -> 'definition');
        IF NOT v_before ? t.name THEN
            added := added || t.name::text;
        ELSIF (v_before ->> t.name)::integer <> t.version THEN
            changed := changed || t.name::text;
        END IF;
    END LOOP;
    WITH ended AS (
        UPDATE tools AS o SET is_gone = true
        WHERE o.source_id = v_id AND NOT o.is_gone
          AND o.name NOT IN (SELECT e.value ->> 'name' FROM jsonb_array_elements(p_tools) AS e)
        RETURNING o.name)
    SELECT coalesce(array_agg(e.name::text ORDER BY e.name), '{}') INTO gone FROM ended AS e;
    -- Where a source is reached, and with which credentials, is not part of a tool: its tools are read again.
    UPDATE tools AS o SET is_gone = false WHERE o.source_id = v_id AND NOT o.is_gone;
END
$$;

-- Gives a tool the definition of one of its versions, as a version of its own. Errors: HP007 there is none.
CREATE OR REPLACE FUNCTION roll_tool_back(p_app_name text, p_name text, p_version integer) RETURNS tools
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t tools;
    v tool_versions;
BEGIN
    SELECT * INTO t FROM tools AS o WHERE o.app_name = p_app_name AND o.name = p_name;
    SELECT * INTO v FROM tool_versions AS o WHERE o.tool_id = t.id AND o.version = p_version;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no version % of a tool %', p_version, quote_nullable(p_name) USING ERRCODE = 'HP007';
    END IF;
    RETURN put_tool(p_app_name, p_name, t.source_id, v.definition);
END
$$;

-- Before a call: the tool is as the caller knows it, and its limits allow the call; then the call is a row that runs,
-- or waits for a person. A refusal is a row, too. p_refusal is what the caller has already found.
-- Returns the row's id, `refusal` (NULL, 'stale': the tool has changed, 'rate_limited', or p_refusal), the time after
-- which to retry, the attempt's number, and the run.
-- Errors: HP020 no such run of this app and user.
CREATE OR REPLACE FUNCTION begin_tool_call(
    p_app_name text, p_user_id text, p_tool_id uuid, p_revision bigint, p_tool_name text, p_tool_version integer,
    p_run_id uuid, p_tool_call_id text, p_input jsonb, p_held jsonb, p_refusal text, p_error text,
    p_is_once boolean, p_per_second double precision, p_burst integer, p_concurrency integer, p_limit_name text,
    p_seconds double precision, p_trace_id text, p_span_id text,
    OUT id uuid, OUT refusal text, OUT wait_seconds double precision, OUT attempt integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_commit text := current_setting('synchronous_commit');
    v_id     uuid;
    v_status text := 'running';
BEGIN
    IF p_tool_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM tools AS t WHERE t.id = p_tool_id AND t.revision = p_revision AND t.is_active AND NOT t.is_gone) THEN
        refusal := 'stale';
        RETURN;
    END IF;
    IF p_run_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM runs AS r JOIN threads AS t ON t.id = r.thread_id
        WHERE r.id = p_run_id AND t.app_name = p_app_name AND t.user_id = p_user_id) THEN
        RAISE EXCEPTION 'app % and user % have no run %', quote_literal(p_app_name), quote_literal(p_user_id), p_run_id
            USING ERRCODE = 'HP020';
    END IF;
    refusal := p_refusal;
    -- A call that waits for a person counts when it is asked for, so that no model asks without end.
    IF refusal IS NULL AND p_per_second > 0 THEN
        SELECT CASE WHEN NOT r.is_reserved THEN 'rate_limited' END, r.wait_seconds INTO refusal, wait_seconds
        FROM reserve_call(p_limit_name, p_per_second, p_burst, 1, 0) AS r;
    END IF;
    IF refusal IS NULL AND p_held IS NULL AND p_concurrency IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('hippocampus calls ' || p_tool_id, 0));
        IF (SELECT count(*) FROM tool_executions AS e
            WHERE e.tool_id = p_tool_id AND e.status = 'running' AND e.expires_at > clock_timestamp()) >= p_concurrency
        THEN
            refusal := 'rate_limited';
            wait_seconds := 1;
        END IF;
    END IF;
    IF refusal IS NOT NULL THEN
        v_status := 'refused';
    ELSIF p_held IS NOT NULL THEN
        v_status := 'waiting';
    END IF;
    attempt := 1;
    IF p_run_id IS NOT NULL THEN
        SELECT coalesce(max(e.attempt), 0) + 1 INTO attempt FROM tool_executions AS e
        WHERE e.run_id = p_run_id AND e.tool_call_id = p_tool_call_id;
    END IF;
    -- A call that must not be repeated is on disk before it is made; others need not wait for it.
    PERFORM set_config('synchronous_commit',
                       CASE WHEN p_is_once AND v_status <> 'refused' THEN v_commit ELSE 'off' END, true);
    INSERT INTO tool_executions AS e (
        tool_id, run_id, app_name, user_id, tool_name, tool_version, tool_call_id, attempt, input_params, held_params,
        status, error_code, error, trace_id, span_id, expires_at, ended_at)
    VALUES (p_tool_id, p_run_id, p_app_name, p_user_id, p_tool_name, p_tool_version, p_tool_call_id, attempt, p_input,
            CASE WHEN v_status = 'waiting' THEN p_held END, v_status, refusal,
            CASE WHEN v_status = 'refused' THEN p_error END, p_trace_id, p_span_id,
            clock_timestamp() + make_interval(secs => p_seconds),
            CASE WHEN v_status = 'refused' THEN clock_timestamp() END)
    RETURNING e.id INTO v_id;
    id := v_id;
END
$$;

-- After a call: its end, and the tool's counters. A row that was erased or given up meanwhile stays as it is.
CREATE OR REPLACE FUNCTION end_tool_call(
    p_id uuid, p_status text, p_latency_ms double precision, p_output jsonb, p_output_bytes bigint,
    p_output_sha256 bytea, p_error_code text, p_error text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_tool uuid;
BEGIN
    -- The counters' row is locked until the commit: it must not wait for the disk as well.
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE tool_executions AS e SET
        status = p_status, latency_ms = p_latency_ms, output_result = p_output, output_bytes = p_output_bytes,
        output_sha256 = p_output_sha256, error_code = p_error_code, error = p_error, ended_at = clock_timestamp()
    WHERE e.id = p_id AND e.status = 'running'
    RETURNING e.tool_id INTO v_tool;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_status = 'refused' THEN
        RETURN true;
    END IF;
    UPDATE tools AS t SET
        call_count = t.call_count + 1,
        avg_latency_ms = t.avg_latency_ms + (p_latency_ms - t.avg_latency_ms) / (t.call_count + 1)
    WHERE t.id = v_tool;
    RETURN true;
END
$$;

-- A decision on a call that waits: it runs, once, with exactly the arguments that are returned; or it is refused.
-- p_is_answer: the user's client gives the result of its own tool, instead of a person confirming another's; NULL: not
-- known. `outcome`: 'confirmed', 'denied', 'gone' (decided before, expired, or no such call); it keeps waiting if it is
-- 'other' (an answer where a person has to confirm, or the reverse) or 'busy' (max_concurrency calls of the tool run).
CREATE OR REPLACE FUNCTION decide_tool_call(
    p_app_name text, p_user_id text, p_id uuid, p_is_confirmed boolean, p_seconds double precision,
    p_is_answer boolean DEFAULT NULL,
    OUT outcome text, OUT tool_name text, OUT params jsonb, OUT tool_call_id text, OUT run_id uuid)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    e         tool_executions;
    v_kind    text;
    v_most    integer;
    v_seconds double precision;
BEGIN
    SELECT * INTO e FROM tool_executions AS o
    WHERE o.id = p_id AND o.app_name = p_app_name AND o.user_id = p_user_id AND o.status = 'waiting'
      AND o.expires_at > clock_timestamp() FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'gone';
        RETURN;
    END IF;
    IF p_is_confirmed THEN
        -- It counts as lost as soon as another call of the tool would: until then it holds a place of max_concurrency.
        SELECT t.kind, (t.permissions ->> 'max_concurrency')::integer, t.timeout_seconds + 30
        INTO v_kind, v_most, v_seconds
        FROM tools AS t WHERE t.id = e.tool_id;
        IF p_is_answer IS NOT NULL AND p_is_answer <> (v_kind IS NOT DISTINCT FROM 'client') THEN
            outcome := 'other';
            RETURN;
        END IF;
        IF v_most IS NOT NULL AND p_is_answer IS NOT TRUE THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('hippocampus calls ' || e.tool_id, 0));
            IF (SELECT count(*) FROM tool_executions AS o
                WHERE o.tool_id = e.tool_id AND o.status = 'running' AND o.expires_at > clock_timestamp()) >= v_most THEN
                outcome := 'busy';
                RETURN;
            END IF;
        END IF;
    END IF;
    outcome := CASE WHEN p_is_confirmed THEN 'confirmed' ELSE 'denied' END;
    UPDATE tool_executions AS o SET
        status = CASE WHEN p_is_confirmed THEN 'running' ELSE 'refused' END, held_params = NULL,
        error_code = CASE WHEN NOT p_is_confirmed THEN 'denied' END,
        expires_at = clock_timestamp() + make_interval(secs => least(p_seconds, v_seconds)),
        ended_at = CASE WHEN NOT p_is_confirmed THEN clock_timestamp() END
    WHERE o.id = p_id;
    tool_name := e.tool_name;
    params := e.held_params;
    tool_call_id := e.tool_call_id;
    run_id := e.run_id;
END
$$;

-- Ends calls whose process was lost, and those that were not confirmed; deletes calls and limits whose time is over.
-- Returns how many rows it processed.
CREATE OR REPLACE FUNCTION prune_tool_calls(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
    v_rows  integer;
BEGIN
    UPDATE tool_executions AS e SET
        status = CASE e.status WHEN 'running' THEN 'unknown' ELSE 'cancelled' END, held_params = NULL,
        error_code = CASE e.status WHEN 'running' THEN 'outcome_unknown' ELSE 'expired' END,
        error = CASE e.status WHEN 'running' THEN 'its process was lost: it may have happened'
                ELSE 'not confirmed or answered in time: it was not made' END,
        ended_at = clock_timestamp()
    WHERE e.id IN (SELECT o.id FROM tool_executions AS o WHERE o.ended_at IS NULL AND o.expires_at <= clock_timestamp()
                   ORDER BY o.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    DELETE FROM tool_executions AS e WHERE e.id IN (
        SELECT o.id FROM tool_executions AS o WHERE o.created_at <= engine_now() - p_keep AND o.ended_at IS NOT NULL
        ORDER BY o.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_count := greatest(v_count, v_rows);
    DELETE FROM call_limits AS l WHERE l.name IN (
        SELECT o.name FROM call_limits AS o
        WHERE o.name LIKE 'tool:%' AND o.full_at < clock_timestamp() - interval '1 hour'
        LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    RETURN greatest(v_count, v_rows);
END
$$;
