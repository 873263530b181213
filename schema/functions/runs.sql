-- Runs: one execution of an agent, as events of its session. The process that executes it holds a lease.
--
--                 start_run             end_run
--                     |        .-------------------------> completed    last event: complete
--                     v        |
--                  running ----+-------------------------> failed       error
--                              |   also reap_runs, once
--                              |   the lease ran out
--                              '-------------------------> cancelled    cancelled
--
-- An ended run does not change. Its event and the change of its row are one transaction, so that a reader of the events
-- misses nothing of the run.

CREATE OR REPLACE FUNCTION refuse_run_revival() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    RAISE EXCEPTION 'run % has ended as %, and cannot change', OLD.run_id, OLD.status USING ERRCODE = 'HP022';
END
$$;

CREATE OR REPLACE FUNCTION check_lease(p_lease_seconds double precision) RETURNS interval
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_lease_seconds BETWEEN 1 AND 3600 THEN
        RETURN make_interval(secs => p_lease_seconds);
    END IF;
    RAISE EXCEPTION 'a lease must be from 1 to 3600 seconds, not %', p_lease_seconds USING ERRCODE = 'HP007';
END
$$;

-- append_events for the events of a run, each of which has the run's id. p_redaction: as there.
CREATE OR REPLACE FUNCTION append_run_events(p_thread threads, p_run_id text, p_events event_input[], p_notify boolean,
                                             p_redaction text DEFAULT NULL)
RETURNS stored_event[]
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(p_events) AS e WHERE e.invocation_id IS DISTINCT FROM p_run_id) THEN
        RAISE EXCEPTION 'the events of run % need its id as their invocation_id', p_run_id USING ERRCODE = 'HP007';
    END IF;
    RETURN (
        SELECT array_agg(ROW(a.event_id, a.sequence_num, a.occurred_at, a.created_at, a.appended, a.version, a.last_seq,
                             a.user_version, a.app_version)::stored_event)
        FROM append_events(p_thread.app_name, p_thread.user_id, p_thread.session_id, NULL, p_events, p_notify,
                           p_redaction => p_redaction) AS a);
END
$$;

-- Ends the runs of a session, which the caller has locked, whose lease ran out; a run that is still running is an
-- error, unless it is the one that is requested again. Errors: HP060.
CREATE OR REPLACE FUNCTION require_no_run(p_thread threads, p_run_id text, p_notify boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    r runs;
BEGIN
    FOR r IN SELECT * FROM runs AS o
             WHERE o.thread_id = p_thread.id AND o.status = 'running' AND o.run_id <> p_run_id
             ORDER BY o.id FOR NO KEY UPDATE LOOP
        IF r.lease_until >= engine_now() THEN
            RAISE EXCEPTION 'run % of this session is still running', r.run_id USING ERRCODE = 'HP060';
        END IF;
        PERFORM reap_run(p_thread, r, p_notify);
    END LOOP;
END
$$;

-- Starts a run with its first events: the user's message, or `run_started` if there is none. The same run id again
-- changes nothing and returns the stored run, created false, without events: it is never executed twice. With p_alone
-- it starts only if no other run of the session is running; those whose lease ran out are ended first.
-- p_expected_version refuses a new run of a session at another version, for a state that was computed from it.
-- Errors: HP001, HP002 another version, HP021 the id belongs to another session, HP060 another run is running, and
-- those of append_events.
CREATE OR REPLACE FUNCTION start_run(
    p_app_name text, p_user_id text, p_session_id text, p_run_id text, p_holder text,
    p_lease_seconds double precision, p_events event_input[], p_notify boolean DEFAULT true,
    p_alone boolean DEFAULT false, p_expected_version integer DEFAULT NULL, p_redaction text DEFAULT 'off',
    OUT run runs, OUT created boolean, OUT stored stored_event[])
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    t threads;
BEGIN
    t := lock_session(p_app_name, p_user_id, p_session_id);
    IF p_alone THEN
        PERFORM require_no_run(t, p_run_id, p_notify);
        t := lock_session(p_app_name, p_user_id, p_session_id);
    END IF;
    INSERT INTO runs AS r (thread_id, app_name, run_id, holder, lease_until, first_seq, last_seq)
    VALUES (t.id, p_app_name, p_run_id, p_holder, engine_now() + check_lease(p_lease_seconds),
            t.last_seq + 1, t.last_seq + greatest(cardinality(p_events), 1))
    ON CONFLICT (app_name, run_id) DO NOTHING
    RETURNING r.* INTO run;
    created := FOUND;
    IF created AND p_expected_version <> t.version THEN
        RAISE EXCEPTION 'session % is at version %, not %: read it again and retry',
            p_session_id, t.version, p_expected_version USING ERRCODE = 'HP002';
    ELSIF created THEN
        stored := append_run_events(t, p_run_id, p_events, p_notify, p_redaction);
        IF NOT (SELECT bool_and(s.appended) FROM unnest(stored) AS s) THEN
            RAISE EXCEPTION 'a run starts with new events: one of these is stored already' USING ERRCODE = 'HP003';
        END IF;
        RETURN;
    END IF;
    SELECT * INTO run FROM runs AS r WHERE r.app_name = p_app_name AND r.run_id = p_run_id;
    IF run.thread_id <> t.id THEN
        RAISE EXCEPTION 'the run id % is taken by another session of app %: use a new one', p_run_id, p_app_name
            USING ERRCODE = 'HP021';
    END IF;
END
$$;

-- Locks a run's thread, then the run, for its holder. A run that ended is given only to a holder that repeats what is
-- stored. Errors: HP020 no such run, HP022 it ended, HP023 another process holds it.
CREATE OR REPLACE FUNCTION hold_run(p_app_name text, p_run_id text, p_holder text, p_events event_input[],
                         OUT thread threads, OUT run runs)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    SELECT * INTO run FROM runs AS r WHERE r.app_name = p_app_name AND r.run_id = p_run_id;
    SELECT * INTO thread FROM threads AS t WHERE t.id = run.thread_id FOR NO KEY UPDATE;
    SELECT * INTO run FROM runs AS r WHERE r.id = run.id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'app % has no run %', quote_nullable(p_app_name), quote_nullable(p_run_id)
            USING ERRCODE = 'HP020';
    ELSIF run.holder IS DISTINCT FROM p_holder THEN
        RAISE EXCEPTION 'run % is held by another process', p_run_id USING ERRCODE = 'HP023';
    ELSIF run.status <> 'running' AND EXISTS (
        SELECT FROM unnest(p_events) AS i
        WHERE NOT EXISTS (SELECT FROM events AS e WHERE e.thread_id = thread.id AND e.id = i.id AND e.id <> ''
                          AND e.event_type = i.event_type AND e.content::text = i.content::text)) THEN
        RAISE EXCEPTION 'run % has ended as %', p_run_id, run.status USING ERRCODE = 'HP022';
    END IF;
END
$$;

-- What happens during a run: appends its events and extends the lease. p_tools describes the calls among them,
-- {"event_id", "tool_call_id", "tool_name"}, and the results, {"event_id", "tool_call_id", "is_error"}.
-- Errors: as hold_run and append_events; HP007 for events that only end_run may append.
CREATE OR REPLACE FUNCTION write_run(
    p_app_name text, p_run_id text, p_holder text, p_lease_seconds double precision, p_events event_input[],
    p_tools jsonb DEFAULT '[]', p_notify boolean DEFAULT true, p_redaction text DEFAULT 'off',
    OUT run runs, OUT stored stored_event[])
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_held   record;
    v_thread threads;
    v_tool   jsonb;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_events) AS e WHERE e.event_type IN ('complete', 'error', 'cancelled')) THEN
        RAISE EXCEPTION 'complete, error and cancelled end a run: use end_run' USING ERRCODE = 'HP007';
    END IF;
    v_held := hold_run(p_app_name, p_run_id, p_holder, p_events);
    v_thread := v_held.thread;
    run := v_held.run;
    stored := append_run_events(v_thread, p_run_id, p_events, p_notify, p_redaction);
    IF run.status <> 'running' OR NOT (SELECT bool_or(s.appended) FROM unnest(stored) AS s) THEN
        RETURN;
    END IF;
    FOR v_tool IN
        SELECT (p.tool - 'event_id') || jsonb_build_object(
            CASE WHEN p.tool ? 'is_error' THEN 'result_sequence_num' ELSE 'sequence_num' END, s.sequence_num)
        FROM jsonb_array_elements(p_tools) WITH ORDINALITY AS p (tool, place)
        JOIN unnest(stored) AS s ON s.id = p.tool ->> 'event_id'
        WHERE s.appended ORDER BY p.place
    LOOP
        run.tool_calls := note_tool(run.tool_calls, v_tool);
    END LOOP;
    UPDATE runs AS r SET
        lease_until = greatest(r.lease_until, engine_now() + check_lease(p_lease_seconds)),
        last_seq = stored[cardinality(stored)].last_seq,
        thinking_steps = newest_of(r.thinking_steps || coalesce((
            SELECT jsonb_agg(jsonb_build_object('sequence_num', s.sequence_num, 'event_id', s.id) ORDER BY s.sequence_num)
            FROM unnest(stored) AS s JOIN unnest(p_events) AS e ON e.id = s.id
            WHERE s.appended AND e.event_type = 'thought'), '[]')),
        tool_calls = run.tool_calls
    WHERE r.id = run.id
    RETURNING r.* INTO run;
END
$$;

-- A run's row holds its newest 200 steps and calls, since it is rewritten with each of them.
CREATE OR REPLACE FUNCTION newest_of(p_entries jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN jsonb_array_length(p_entries) <= 200 THEN p_entries ELSE (
    SELECT jsonb_agg(e.entry ORDER BY e.place) FROM jsonb_array_elements(p_entries) WITH ORDINALITY AS e (entry, place)
    WHERE e.place > jsonb_array_length(p_entries) - 200) END;

-- Adds a call, or the result of a call.
CREATE OR REPLACE FUNCTION note_tool(p_calls jsonb, p_tool jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT
AS $$
    SELECT CASE
        WHEN p_calls @> jsonb_build_array(jsonb_build_object('tool_call_id', p_tool -> 'tool_call_id')) THEN (
            SELECT jsonb_agg(CASE WHEN c.call -> 'tool_call_id' = p_tool -> 'tool_call_id' THEN c.call || p_tool
                                  ELSE c.call END ORDER BY c.place)
            FROM jsonb_array_elements(p_calls) WITH ORDINALITY AS c (call, place))
        ELSE newest_of(p_calls || p_tool) END
$$;

-- Ends a run with its last events: an assistant_message if there is a reply, and finally complete, error or cancelled,
-- according to the status. What a run that failed or was cancelled has streamed is stored before them. A snapshot is
-- taken if the state changed. The same end again changes nothing.
-- Errors: as hold_run and append_events; HP007 if the status and the last event differ.
CREATE OR REPLACE FUNCTION end_run(
    p_app_name text, p_run_id text, p_holder text, p_status text, p_events event_input[],
    p_error text DEFAULT NULL, p_error_code text DEFAULT NULL, p_notify boolean DEFAULT true,
    p_redaction text DEFAULT 'off',
    OUT run runs, OUT stored stored_event[])
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_held   record;
    v_thread threads;
    v_last   event_input := p_events[cardinality(p_events)];
BEGIN
    v_held := hold_run(p_app_name, p_run_id, p_holder, p_events);
    v_thread := v_held.thread;
    run := v_held.run;
    IF v_last.event_type IS DISTINCT FROM terminal_event_type(p_status) THEN
        RAISE EXCEPTION 'a run that ends as % must end with the event %, not %', quote_nullable(p_status),
            terminal_event_type(p_status), v_last.event_type USING ERRCODE = 'HP007';
    END IF;
    IF run.status = 'running' AND p_status <> 'completed' THEN
        PERFORM store_partial_messages(v_thread, p_run_id, p_notify);
    END IF;
    stored := append_run_events(v_thread, p_run_id, p_events, p_notify, p_redaction);
    IF run.status = 'running' THEN
        UPDATE runs AS r SET status = p_status, error = p_error, error_code = p_error_code,
                             completed_at = engine_now(), last_seq = stored[cardinality(stored)].last_seq
        WHERE r.id = run.id
        RETURNING r.* INTO run;
        PERFORM take_snapshot(v_thread.id);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION terminal_event_type(p_status text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE p_status WHEN 'completed' THEN 'complete' WHEN 'failed' THEN 'error' WHEN 'cancelled' THEN 'cancelled' END;

-- The heartbeat of everything that one holder executes, in one call. Each run is returned as it is now: its owner stops
-- one that is no longer running, and ends one that it is asked to cancel. A run that is locked is being written by its
-- owner, which extends its lease, too.
CREATE OR REPLACE FUNCTION renew_runs(p_holder text, p_ids uuid[], p_lease_seconds double precision)
RETURNS TABLE (id uuid, status text, cancel_requested boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    UPDATE runs AS r SET lease_until = greatest(r.lease_until, engine_now() + check_lease(p_lease_seconds))
    FROM (SELECT id FROM runs WHERE id = ANY (p_ids) AND holder = p_holder AND status = 'running'
          ORDER BY id FOR NO KEY UPDATE SKIP LOCKED) AS mine
    WHERE r.id = mine.id;
    RETURN QUERY SELECT r.id, r.status, r.cancel_requested_at IS NOT NULL FROM runs AS r WHERE r.id = ANY (p_ids);
END
$$;

-- Asks the owner of a run to cancel it; a run that ended stays as it is. The owner is informed by its next heartbeat
-- or write. Errors: HP020.
CREATE OR REPLACE FUNCTION request_cancel(p_app_name text, p_user_id text, p_run_id text) RETURNS runs
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    r runs;
BEGIN
    SELECT o.* INTO r FROM runs AS o JOIN threads AS t ON t.id = o.thread_id
    WHERE o.app_name = p_app_name AND o.run_id = p_run_id AND t.user_id = p_user_id AND is_open(t);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no run % for app % and user %', quote_nullable(p_run_id), quote_nullable(p_app_name),
            quote_nullable(p_user_id) USING ERRCODE = 'HP020';
    END IF;
    UPDATE runs AS o SET cancel_requested_at = coalesce(o.cancel_requested_at, engine_now())
    WHERE o.id = r.id AND o.status = 'running';
    SELECT * INTO r FROM runs AS o WHERE o.id = r.id;
    RETURN r;
END
$$;

-- Ends runs whose lease ran out: as cancelled if that was requested, else as failed with the code 'orphaned', in either
-- case with what was streamed, and with the event, so that readers are informed of the end. Locked runs are left for the next call. Returns how
-- many.
CREATE OR REPLACE FUNCTION reap_runs(p_limit integer DEFAULT 100, p_notify boolean DEFAULT true) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    c       record;
    t       threads;
    r       runs;
    v_count integer := 0;
BEGIN
    FOR c IN SELECT o.id, o.thread_id FROM runs AS o
             WHERE o.status = 'running' AND o.lease_until < engine_now() ORDER BY o.id LIMIT p_limit LOOP
        SELECT * INTO t FROM threads AS o WHERE o.id = c.thread_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        SELECT * INTO r FROM runs AS o
        WHERE o.id = c.id AND o.status = 'running' AND o.lease_until < engine_now() FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        PERFORM reap_run(t, r, p_notify);
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END
$$;

CREATE OR REPLACE FUNCTION reap_run(p_thread threads, p_run runs, p_notify boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_status text := CASE WHEN p_run.cancel_requested_at IS NULL THEN 'failed' ELSE 'cancelled' END;
    v_error  text := CASE v_status WHEN 'failed' THEN 'the process that executed this run was lost' END;
    v_code   text := CASE v_status WHEN 'failed' THEN 'orphaned' END;
    v_stored stored_event[];
BEGIN
    PERFORM store_partial_messages(p_thread, p_run.run_id, p_notify);
    v_stored := append_run_events(p_thread, p_run.run_id, ARRAY[ROW(
        'end-of-' || p_run.id, 'system', terminal_event_type(v_status), p_run.run_id,
        json_strip_nulls(json_build_object('message', v_error, 'code', v_code)),
        '{}', NULL, NULL, NULL, NULL, NULL, NULL)::event_input], p_notify);
    UPDATE runs AS r SET status = v_status, error = v_error, error_code = v_code, completed_at = engine_now(),
                         last_seq = v_stored[1].last_seq
    WHERE r.id = p_run.id;
    PERFORM take_snapshot(p_thread.id);
END
$$;
