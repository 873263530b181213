-- Traces: stored in batches by each process, dropped a day at a time.

-- Stores spans, and returns how many. One that is stored already is left as it is; one that began before an erasure of
-- its user was requested is not stored any more.
CREATE OR REPLACE FUNCTION store_spans(p_spans jsonb) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_rows integer;
BEGIN
    INSERT INTO traces (
        start_time, trace_id, span_id, parent_span_id, linked_trace_id, is_root, operation_name, span_kind,
        service_name, app_name, user_id, session_id, run_id, attributes, events, end_time, duration_ns, status_code,
        status_message)
    SELECT s.started, s.trace_id, s.span_id, s.parent_span_id, s.linked_trace_id, s.is_root, s.operation_name,
           s.span_kind, s.service_name, s.app_name, s.user_id, s.session_id, s.run_id, s.attributes, s.events,
           s.started + make_interval(secs => s.duration_ns / 1e9), s.duration_ns, s.status_code, s.status_message
    FROM (SELECT r.*, timestamptz 'epoch' + r.start_us * interval '1 microsecond' AS started
          FROM jsonb_to_recordset(p_spans) AS r (
              start_us bigint, trace_id text, span_id text, parent_span_id text, linked_trace_id text, is_root boolean,
              operation_name text, span_kind text, service_name text, app_name text, user_id text, session_id text,
              run_id text, attributes jsonb, events jsonb, duration_ns bigint, status_code text,
              status_message text)) AS s
    WHERE NOT EXISTS (SELECT FROM erasures AS e
                      WHERE e.app_name = s.app_name AND e.user_id = s.user_id AND e.scope = 'user'
                        AND e.requested_at >= s.started)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    RETURN v_rows;
END
$$;

-- Has the jobs that this transaction enqueues carry the context of a span, and returns the app: an argument of an append.
CREATE OR REPLACE FUNCTION with_traceparent(p_traceparent text, p_app_name text) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM set_config('hippocampus.traceparent', p_traceparent, true);
    RETURN p_app_name;
END
$$;

-- Makes the partitions of today and the next two days, in UTC, and drops those that ended before p_keep. Returns how
-- many it dropped. With the rights of the owner, since only that one may create and drop tables.
CREATE OR REPLACE FUNCTION keep_trace_partitions(p_keep interval) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
-- Others that read and write spans wait behind this one; the next run retries.
SET lock_timeout = '500ms'
AS $$
DECLARE
    v_today   date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    v_day     date;
    v_name    text;
    v_dropped integer := 0;
BEGIN
    -- One process at a time; the others have nothing to do.
    IF NOT pg_try_advisory_xact_lock(hashtext('keep_trace_partitions'), hashtext(current_schema())) THEN
        RETURN 0;
    END IF;
    FOR v_day IN SELECT v_today + n FROM generate_series(0, 2) AS n LOOP
        v_name := 'traces_' || to_char(v_day, 'YYYYMMDD');
        -- Rows of that day which are in the default partition stay there: it cannot be split without a lock.
        CONTINUE WHEN to_regclass(quote_ident(v_name)) IS NOT NULL OR EXISTS (
            SELECT FROM traces_default
            WHERE start_time >= v_day::timestamp AT TIME ZONE 'UTC'
              AND start_time < (v_day + 1)::timestamp AT TIME ZONE 'UTC');
        EXECUTE format('CREATE TABLE %I PARTITION OF traces FOR VALUES FROM (%L) TO (%L)', v_name,
                       v_day::timestamp AT TIME ZONE 'UTC', (v_day + 1)::timestamp AT TIME ZONE 'UTC');
    END LOOP;
    FOR v_name, v_day IN
        SELECT c.relname, to_date(substr(c.relname, 8), 'YYYYMMDD')
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'traces'::regclass AND c.relname ~ '^traces_[0-9]{8}$'
    LOOP
        CONTINUE WHEN (v_day + 1)::timestamp AT TIME ZONE 'UTC' > clock_timestamp() - p_keep;
        EXECUTE format('DROP TABLE %I', v_name);
        v_dropped := v_dropped + 1;
    END LOOP;
    RETURN v_dropped;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;

-- Deletes spans of the default partition that ended before p_keep; at most p_limit. Returns how many.
CREATE OR REPLACE FUNCTION prune_default_traces(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_rows integer;
BEGIN
    DELETE FROM traces_default WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM traces_default WHERE start_time < clock_timestamp() - p_keep LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    RETURN v_rows;
END
$$;
