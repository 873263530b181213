-- The autonomic layer: ticks, effects, releases of rules, tasks.
--
-- An event refers to the effect that it is about by `ref`. An effect's key is its kind and its target, as
-- 'restart_role|writer@host:9100'. Errors of this file: HP080 append-only, HP081 no such scope, release, task or object,
-- HP082 the release in force changed, HP083 the task cannot go there, HP084 the release has not passed its checks, HP085 a
-- file does not have what the archive has.

CREATE OR REPLACE FUNCTION refuse_pulse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    RAISE EXCEPTION 'table % is written once: nothing in it is changed or deleted', TG_TABLE_NAME USING ERRCODE = 'HP080';
END
$$;

-- Stores a content and returns its hash. The same content is stored once.
CREATE OR REPLACE FUNCTION put_object(p_body bytea) RETURNS text
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    INSERT INTO objects (hash, body) VALUES (encode(sha256(p_body), 'hex'), p_body) ON CONFLICT DO NOTHING;
    SELECT encode(sha256(p_body), 'hex');
$$;

-- A scope's row. Error: HP081.
CREATE OR REPLACE FUNCTION find_pulse_scope(p_scope text) RETURNS pulse_scopes
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    s pulse_scopes;
BEGIN
    SELECT * INTO s FROM pulse_scopes WHERE scope = p_scope;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no scope %: create it with `hippocampus pulse init`', quote_literal(p_scope)
            USING ERRCODE = 'HP081';
    END IF;
    RETURN s;
END
$$;

-- Creates a scope; returns whether it is new.
CREATE OR REPLACE FUNCTION make_pulse_scope(p_scope text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO pulse_scopes (scope) VALUES (p_scope) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

-- Wakes the tick of a scope, in this transaction's commit. Channels are the database's, schemas share them.
CREATE OR REPLACE FUNCTION wake_pulse(p_scope text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$ SELECT pg_notify('pulse_wake', current_schema() || '|' || p_scope) $$;

-- Makes the caller's session the leader of a scope, until it ends; false if another one is.
CREATE OR REPLACE FUNCTION lead_pulse(p_scope text) RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT
AS $$ SELECT pg_try_advisory_lock(hashtext('pulse of ' || current_schema()), hashtext(p_scope)) $$;

-- Stores samples: sense, machine, age_seconds, data.
CREATE OR REPLACE FUNCTION put_vitals(p_scope text, p_samples jsonb) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    INSERT INTO vitals (scope, sense, machine, at, data)
    SELECT p_scope, r.sense, r.machine, engine_now() - make_interval(secs => coalesce(r.age_seconds, 0)), r.data
    FROM jsonb_to_recordset(p_samples) AS r (sense text, machine text, age_seconds double precision, data jsonb)
$$;

-- How each target's effects of the last hour ended: the last one's state and time, failures in a row, how many in the
-- last 10 minutes.
CREATE OR REPLACE FUNCTION pulse_effect_states(p_scope text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object(
        'key', t.key, 'at', extract(epoch FROM t.at), 'state', t.state, 'survival', t.survival,
        'failures', t.failures, 'recent', t.recent)), '[]')
    FROM (
        SELECT o.key,
               (array_agg(coalesce(o.ended_at, o.began_at) ORDER BY o.id DESC))[1] AS at,
               (array_agg(CASE o.ending WHEN 'effect-acked' THEN 'acked' WHEN 'effect-failed' THEN 'failed' ELSE 'open' END
                          ORDER BY o.id DESC))[1] AS state,
               (array_agg(o.survival ORDER BY o.id DESC))[1] AS survival,
               count(*) FILTER (WHERE o.ending = 'effect-failed' AND o.id > coalesce(o.acked_id, 0)) AS failures,
               count(*) FILTER (WHERE o.began_at > engine_now() - interval '10 minutes') AS recent
        FROM (
            SELECT e.id, e.key, e.occurred_at AS began_at, coalesce((e.meta -> 'survival')::boolean, false) AS survival,
                   d.kind AS ending, d.occurred_at AS ended_at,
                   max(e.id) FILTER (WHERE d.kind = 'effect-acked') OVER (PARTITION BY e.key) AS acked_id
            FROM pulse_events AS e
            LEFT JOIN pulse_events AS d ON d.ref = e.id AND d.month = e.month AND d.kind IN ('effect-acked', 'effect-failed')
            WHERE e.scope = p_scope AND e.kind = 'effect' AND e.occurred_at > engine_now() - interval '1 hour') AS o
        GROUP BY o.key) AS t
$$;

-- Errors that ticks counted between two moments.
CREATE OR REPLACE FUNCTION pulse_error_count(p_scope text, p_since timestamptz, p_until timestamptz, p_key text DEFAULT NULL)
RETURNS bigint
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(sum(n.value::bigint), 0)::bigint
    FROM vitals AS v CROSS JOIN LATERAL jsonb_each_text(v.data) AS n
    WHERE v.scope = p_scope AND v.sense = '_errors' AND v.at > p_since AND v.at <= p_until
      AND (p_key IS NULL OR n.key = p_key)
$$;

-- Begins a tick: stores the samples, counts the tick, and returns the whole present. Error: HP081.
CREATE OR REPLACE FUNCTION begin_pulse_tick(p_scope text, p_holder text, p_samples jsonb, p_with_tasks boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_now timestamptz := engine_now();
    s     pulse_scopes;
BEGIN
    PERFORM put_vitals(p_scope, p_samples);
    UPDATE pulse_scopes SET ticks = ticks + 1, holder = p_holder, last_tick_at = v_now
    WHERE scope = p_scope RETURNING * INTO s;
    IF NOT FOUND THEN
        s := find_pulse_scope(p_scope);
    END IF;
    RETURN jsonb_build_object(
        'at', extract(epoch FROM v_now),
        'scope', p_scope,
        'ticks', s.ticks,
        'senses', (
            SELECT coalesce(jsonb_object_agg(g.sense, g.samples), '{}')
            FROM (SELECT v.sense, jsonb_agg(jsonb_build_object(
                             'at', extract(epoch FROM v.at), 'machine', v.machine, 'data', v.data) ORDER BY v.at, v.id) AS samples
                  FROM vitals AS v
                  WHERE v.scope = p_scope AND v.at > v_now - interval '1 minute' AND v.sense NOT IN ('_snapshot', '_errors')
                  GROUP BY v.sense) AS g),
        'effects', pulse_effect_states(p_scope),
        'errors', jsonb_build_array(
            pulse_error_count(p_scope, v_now - interval '10 minutes', v_now),
            pulse_error_count(p_scope, v_now - interval '20 minutes', v_now - interval '10 minutes')),
        'release', (SELECT jsonb_build_array(r.id, extract(epoch FROM r.promoted_at)) FROM rule_releases AS r
                    WHERE r.id = s.release_id),
        'shadow', (SELECT jsonb_build_array(r.id, r.checks -> 'shadow') FROM rule_releases AS r
                   WHERE r.scope = p_scope AND r.status = 'shadow'),
        'projections', CASE WHEN p_with_tasks THEN pulse_task_projections(p_scope) ELSE '{}'::jsonb END);
END
$$;

-- The last snapshot that a tick stored, for the process that takes over.
CREATE OR REPLACE FUNCTION last_pulse_snapshots(p_scope text, p_limit integer DEFAULT 1) RETURNS SETOF jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT v.data FROM vitals AS v WHERE v.scope = p_scope AND v.sense = '_snapshot' ORDER BY v.at DESC, v.id DESC LIMIT p_limit
$$;

-- Ends a tick that has something to record: effects with their jobs, errors, and what was decided.
--
--   p_effects   objects with kind, key, params, rule, cooldown_seconds, survival, queue
--   p_errors    how often each error occurred in this tick, by key
--   p_senses    what became of senses: 'broken', 'works', or 'ended' with their release while they were broken
--   p_note      what the event 'tick' says; NULL for none
--
-- Equal errors are recorded at their 1st, 10th, 100th, ... occurrence within an hour. Returns the effects' ids.
CREATE OR REPLACE FUNCTION end_pulse_tick(p_scope text, p_effects jsonb, p_errors jsonb, p_senses jsonb, p_note jsonb)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e        jsonb;
    v_key    text;
    v_count  bigint;
    v_before bigint;
    v_id     bigint;
    v_ids    bigint[] := '{}';
BEGIN
    IF p_errors <> '{}'::jsonb THEN
        FOR v_key, v_count IN SELECT n.key, n.value::bigint FROM jsonb_each_text(p_errors) AS n ORDER BY n.key LOOP
            v_before := pulse_error_count(p_scope, engine_now() - interval '1 hour', engine_now(), v_key);
            IF v_before = 0 OR floor(log(v_before + v_count)) > floor(log(v_before)) THEN
                INSERT INTO pulse_events (scope, kind, key, meta)
                VALUES (p_scope, 'error', left(v_key, 200), jsonb_build_object('count', v_before + v_count));
            END IF;
        END LOOP;
        INSERT INTO vitals (scope, sense, machine, data) VALUES (p_scope, '_errors', '', p_errors);
    END IF;
    FOR e IN SELECT value FROM jsonb_array_elements(p_effects) LOOP
        v_key := (e ->> 'kind') || '|' || (e ->> 'key');
        INSERT INTO pulse_events (scope, kind, key, meta) VALUES (p_scope, 'effect', v_key, e) RETURNING id INTO v_id;
        PERFORM defer_effect(v_id, v_key, e ->> 'queue');
        v_ids := v_ids || v_id;
    END LOOP;
    INSERT INTO pulse_events (scope, kind, key, meta)
    SELECT p_scope, 'collect', left(n.key, 200), jsonb_build_object('state', n.value) FROM jsonb_each_text(p_senses) AS n;
    IF p_note IS NOT NULL THEN
        INSERT INTO pulse_events (scope, kind, key, meta) VALUES (p_scope, 'tick', '', p_note);
    END IF;
    RETURN v_ids;
END
$$;

-- The job that executes an effect. Effects on one target are executed one after the other. Without a queueing lock: a
-- job that is given back while another one waits would violate it.
CREATE OR REPLACE FUNCTION defer_effect(p_event_id bigint, p_key text, p_queue text) RETURNS bigint
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    SELECT (procrastinate_defer_jobs_v1(ARRAY[ROW(coalesce(p_queue, 'effects'), 'execute_effect', 0, 'effect:' || p_key, NULL,
        jsonb_build_object('event_id', p_event_id), NULL)::procrastinate_job_to_defer_v1]))[1]
$$;

-- An effect that has not ended; NULL if it has, or if there is none.
CREATE OR REPLACE FUNCTION open_effect(p_event_id bigint) RETURNS pulse_events
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT e FROM pulse_events AS e
    WHERE e.id = p_event_id AND e.kind = 'effect'
      AND NOT EXISTS (SELECT FROM pulse_events AS d
                      WHERE d.ref = e.id AND d.month = e.month AND d.kind IN ('effect-acked', 'effect-failed'))
$$;

-- Notes that an effect's execution begins. With p_once, false if it had begun before: then it must not run again.
CREATE OR REPLACE FUNCTION begin_effect(p_event_id bigint, p_once boolean, p_meta jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO pulse_events (scope, kind, key, ref, month, meta)
    SELECT e.scope, 'effect-executing', e.key, e.id, e.month,
           p_meta || CASE WHEN p_once THEN '{"once": true}'::jsonb ELSE '{}'::jsonb END
    FROM pulse_events AS e WHERE e.id = p_event_id
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

-- Ends an effect, unless it has ended. Returns whether this call did. A failure wakes the tick.
CREATE OR REPLACE FUNCTION end_effect(p_event_id bigint, p_failed boolean, p_meta jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO pulse_events (scope, kind, key, ref, month, meta)
    SELECT e.scope, CASE WHEN p_failed THEN 'effect-failed' ELSE 'effect-acked' END, e.key, e.id, e.month, p_meta
    FROM pulse_events AS e WHERE e.id = p_event_id
    ON CONFLICT DO NOTHING;
    IF FOUND AND p_failed THEN
        PERFORM wake_pulse(e.scope) FROM pulse_events AS e WHERE e.id = p_event_id AND (e.meta -> 'survival') = 'true'::jsonb;
        RETURN true;
    END IF;
    RETURN FOUND;
END
$$;

-- Gives effects that neither ended nor have a job another one, two minutes after they were decided. One that had not
-- begun after 15 minutes fails instead: it describes a past that is over. Returns how many.
CREATE OR REPLACE FUNCTION reconcile_effects(p_scope text) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e       pulse_events;
    v_count integer := 0;
BEGIN
    FOR e IN
        SELECT o.* FROM pulse_events AS o
        WHERE o.scope = p_scope AND o.kind = 'effect'
          AND o.occurred_at BETWEEN engine_now() - interval '7 days' AND engine_now() - interval '2 minutes'
          AND NOT EXISTS (SELECT FROM pulse_events AS d
                          WHERE d.ref = o.id AND d.month = o.month AND d.kind IN ('effect-acked', 'effect-failed'))
        ORDER BY o.id LIMIT 100
    LOOP
        IF e.occurred_at < engine_now() - interval '15 minutes'
           AND NOT EXISTS (SELECT FROM pulse_events AS b WHERE b.scope = e.scope AND b.kind = 'effect-executing'
                                                           AND b.key = e.key AND b.ref = e.id) THEN
            PERFORM end_effect(e.id, true, '{"code": "expired"}');
            v_count := v_count + 1;
        ELSIF NOT EXISTS (SELECT FROM procrastinate_jobs AS j
                          WHERE j.lock = 'effect:' || e.key AND j.status IN ('todo', 'doing')
                            AND (j.args ->> 'event_id')::bigint = e.id) THEN
            PERFORM defer_effect(e.id, e.key, e.meta ->> 'queue');
            v_count := v_count + 1;
        END IF;
    END LOOP;
    RETURN v_count;
END
$$;

-- Deletes measurements: snapshots after an hour, others after a day. Returns how many, at most p_limit.
-- Rows that another process is deleting are left to it.
CREATE OR REPLACE FUNCTION gc_vitals(p_limit integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    DELETE FROM vitals AS v WHERE v.id = ANY (ARRAY(
        SELECT o.id FROM vitals AS o
        WHERE o.at < engine_now() - interval '1 day' OR (o.sense = '_snapshot' AND o.at < engine_now() - interval '1 hour')
        ORDER BY o.at LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

-- Postpones the reflections that wait, so that the machine recovers. Returns how many, at most 1,000.
CREATE OR REPLACE FUNCTION shed_load(p_seconds integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    UPDATE procrastinate_jobs AS j SET scheduled_at = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE j.id IN (
        SELECT q.id FROM procrastinate_jobs AS q
        WHERE q.queue_name = 'deep_reflection' AND q.status = 'todo'
          AND (q.scheduled_at IS NULL OR q.scheduled_at < clock_timestamp() + make_interval(secs => p_seconds))
        ORDER BY q.id LIMIT 1000 FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

-- Runs a periodic task of the upkeep now, as its scheduler would.
CREATE OR REPLACE FUNCTION run_upkeep_now(p_task text) RETURNS bigint
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    SELECT (procrastinate_defer_jobs_v1(ARRAY[ROW('maintenance', p_task, 0, p_task, NULL, '{}'::jsonb,
        NULL)::procrastinate_job_to_defer_v1]))[1]
$$;

-- What people see of a scope, in one statement: who leads, the newest sample of each sense and machine, the last ticks
-- that decided something, and the last effects with how they ended: waiting, executing, acked or failed. NULL without
-- such a scope.
CREATE OR REPLACE FUNCTION pulse_status(p_scope text, p_limit integer DEFAULT 20) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT jsonb_build_object(
        'scope', jsonb_build_object(
            'scope', s.scope, 'release_id', s.release_id, 'version', s.version, 'ticks', s.ticks, 'holder', s.holder,
            'last_tick_at', s.last_tick_at,
            -- The longest tick is a minute.
            'is_ticking', coalesce(s.last_tick_at > engine_now() - interval '75 seconds', false)),
        'vitals', (
            SELECT coalesce(jsonb_agg(to_jsonb(n) ORDER BY n.sense, n.machine), '[]')
            FROM (SELECT DISTINCT ON (v.sense, v.machine) v.sense, v.machine, v.at, v.data FROM vitals AS v
                  WHERE v.scope = p_scope AND v.at > engine_now() - interval '5 minutes' AND v.sense NOT LIKE '\_%'
                  ORDER BY v.sense, v.machine, v.at DESC, v.id DESC) AS n),
        'decisions', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'id', e.id, 'at', e.occurred_at, 'rule', e.meta ->> 'rule', 'effect', e.key,
                       'survival', coalesce((e.meta -> 'survival')::boolean, false), 'why', e.meta -> 'params',
                       'end', CASE WHEN d.kind IS NOT NULL THEN substr(d.kind, 8)
                                   WHEN b.meta IS NOT NULL THEN 'executing' ELSE 'waiting' END,
                       'code', d.meta ->> 'code', 'by', b.meta ->> 'by', 'ended_at', d.occurred_at) ORDER BY e.id DESC), '[]')
            FROM (SELECT o.* FROM pulse_events AS o WHERE o.scope = p_scope AND o.kind = 'effect'
                  ORDER BY o.occurred_at DESC, o.id DESC LIMIT p_limit) AS e
            LEFT JOIN pulse_events AS d ON d.ref = e.id AND d.month = e.month AND d.kind IN ('effect-acked', 'effect-failed')
            LEFT JOIN LATERAL (SELECT x.meta FROM pulse_events AS x
                               WHERE x.scope = e.scope AND x.kind = 'effect-executing' AND x.key = e.key AND x.ref = e.id
                               ORDER BY x.id DESC LIMIT 1) AS b ON true),
        'ticks', (
            SELECT coalesce(jsonb_agg(jsonb_build_object('at', t.occurred_at) || t.meta ORDER BY t.id DESC), '[]')
            FROM (SELECT o.* FROM pulse_events AS o WHERE o.scope = p_scope AND o.kind = 'tick'
                  ORDER BY o.occurred_at DESC, o.id DESC LIMIT p_limit) AS t))
    FROM pulse_scopes AS s WHERE s.scope = p_scope
$$;

-- The events of a scope, the newest first: of a kind or all, before an id or from the newest.
CREATE OR REPLACE FUNCTION list_pulse_events(p_scope text, p_kind text, p_before bigint, p_limit integer)
RETURNS TABLE (id bigint, kind text, key text, ref bigint, hash text, meta jsonb, occurred_at timestamptz)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT e.id, e.kind, e.key, e.ref, e.hash, e.meta, e.occurred_at FROM pulse_events AS e
    WHERE e.scope = p_scope AND (p_kind IS NULL OR e.kind = p_kind) AND (p_before IS NULL OR e.id < p_before)
    ORDER BY e.id DESC LIMIT p_limit
$$;

-- Makes the record's partitions of this month and the next two, in UTC, and moves whole months to the archive that are
-- older than p_months; 0 moves none. A month in which a task began that is not over stays. Returns how many it moved.
-- With the rights of the owner, since only that one may create and move tables; it can drop none.
CREATE OR REPLACE FUNCTION keep_pulse_partitions(p_months integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
-- Ticks wait behind this one; the next run retries.
SET lock_timeout = '500ms'
AS $$
DECLARE
    v_now    date := date_trunc('month', engine_now() AT TIME ZONE 'UTC')::date;
    v_month  date;
    v_months date[];
    v_name   text;
    v_moved  integer := 0;
BEGIN
    -- One process at a time; the others have nothing to do.
    IF NOT pg_try_advisory_xact_lock(hashtext('keep_pulse_partitions'), hashtext(current_schema())) THEN
        RETURN 0;
    END IF;
    FOR v_name IN
        SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE p_months > 0 AND i.inhparent = 'pulse_events'::regclass ORDER BY c.relname
    LOOP
        EXECUTE format('SELECT array_agg(DISTINCT month ORDER BY month) FROM %I', v_name) INTO v_months;
        CONTINUE WHEN v_months IS NULL OR v_months[array_upper(v_months, 1)] >= v_now - make_interval(months => p_months)
            OR EXISTS (SELECT FROM pulse_pending_tasks AS t
                       WHERE date_trunc('month', t.created_at AT TIME ZONE 'UTC')::date = ANY (v_months));
        EXECUTE format('ALTER TABLE pulse_events DETACH PARTITION %I', v_name);
        IF v_name = 'pulse_events_default' THEN
            v_name := 'pulse_events_until_' || to_char(v_months[array_upper(v_months, 1)], 'YYYYMM');
            EXECUTE format('ALTER TABLE pulse_events_default RENAME TO %I', v_name);
            CREATE TABLE pulse_events_default PARTITION OF pulse_events DEFAULT;
            CREATE TRIGGER pulse_events_not_emptied BEFORE TRUNCATE ON pulse_events_default
                FOR EACH STATEMENT EXECUTE FUNCTION refuse_pulse_change();
        END IF;
        EXECUTE format('ALTER TABLE pulse_events_archive ATTACH PARTITION %I FOR VALUES IN (%s)', v_name,
                       (SELECT string_agg(quote_literal(m), ', ') FROM unnest(v_months) AS m));
        v_moved := v_moved + 1;
    END LOOP;
    FOR v_month IN SELECT (v_now + make_interval(months => n))::date FROM generate_series(0, 2) AS n LOOP
        v_name := 'pulse_events_' || to_char(v_month, 'YYYYMM');
        -- Rows of that month which are in the default partition stay there: it cannot be split.
        CONTINUE WHEN to_regclass(quote_ident(v_name)) IS NOT NULL
            OR EXISTS (SELECT FROM pulse_events_default WHERE month = v_month);
        EXECUTE format('CREATE TABLE %I PARTITION OF pulse_events FOR VALUES IN (%L)', v_name, v_month);
        -- A trigger on TRUNCATE is not inherited.
        EXECUTE format('CREATE TRIGGER pulse_events_not_emptied BEFORE TRUNCATE ON %I'
                       ' FOR EACH STATEMENT EXECUTE FUNCTION refuse_pulse_change()', v_name);
    END LOOP;
    RETURN v_moved;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;

-- The archive's tables, the oldest first, with the number of their events and their size in bytes.
CREATE OR REPLACE FUNCTION list_pulse_archive() RETURNS TABLE (name text, events bigint, bytes bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_name text;
BEGIN
    FOR v_name IN
        SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'pulse_events_archive'::regclass ORDER BY right(c.relname, 6), c.relname
    LOOP
        RETURN QUERY EXECUTE format('SELECT %L::text, count(*), pg_total_relation_size(%L::regclass) FROM %I',
                                    v_name, quote_ident(v_name), v_name);
    END LOOP;
END
$$;

-- Drops a table of the archive whose events are in a file, and records that in each scope that has some: the file's name
-- and the SHA-256 of its content. Only the owner may. Errors: HP081 no such table; HP085 it has another number of events.
CREATE OR REPLACE FUNCTION drop_pulse_archive(p_name text, p_events bigint, p_file text, p_sha256 text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_events bigint;
BEGIN
    SELECT a.events INTO v_events FROM list_pulse_archive() AS a WHERE a.name = p_name;
    IF v_events IS NULL THEN
        RAISE EXCEPTION 'the archive has no table %', quote_literal(p_name) USING ERRCODE = 'HP081';
    ELSIF v_events <> p_events THEN
        RAISE EXCEPTION 'table % has % events, and the file %', p_name, v_events, p_events USING ERRCODE = 'HP085';
    END IF;
    EXECUTE format($q$INSERT INTO pulse_events (scope, kind, key, meta)
                      SELECT a.scope, 'archive', %L, jsonb_build_object('file', %L::text, 'sha256', %L::text, 'events', count(*))
                      FROM %I AS a GROUP BY a.scope$q$, p_name, p_file, p_sha256, p_name);
    EXECUTE format('DROP TABLE %I', p_name);
END
$$;

-- Stores rules as a release, and returns its id. Error: HP081.
CREATE OR REPLACE FUNCTION stage_release(p_scope text, p_body bytea) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_hash text;
    v_id   bigint;
BEGIN
    PERFORM find_pulse_scope(p_scope);
    v_hash := put_object(p_body);
    INSERT INTO rule_releases (scope, hash) VALUES (p_scope, v_hash) RETURNING id INTO v_id;
    INSERT INTO pulse_events (scope, kind, key, hash) VALUES (p_scope, 'stage', v_id::text, v_hash);
    RETURN v_id;
END
$$;

-- A release of a scope, locked. Error: HP081.
CREATE OR REPLACE FUNCTION lock_release(p_scope text, p_release_id bigint) RETURNS rule_releases
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    r rule_releases;
BEGIN
    PERFORM find_pulse_scope(p_scope);
    SELECT * INTO r FROM rule_releases WHERE id = p_release_id AND scope = p_scope FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'scope % has no release %: see `hippocampus pulse releases`', quote_literal(p_scope), p_release_id
            USING ERRCODE = 'HP081';
    END IF;
    RETURN r;
END
$$;

-- Records a release's checks, and what it is then: checked, shadow, refused. Another shadow of the scope ends. Errors:
-- HP081; HP083 the release is past that.
CREATE OR REPLACE FUNCTION check_release(p_scope text, p_release_id bigint, p_status text, p_checks jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    r rule_releases := lock_release(p_scope, p_release_id);
BEGIN
    IF NOT (p_status = 'checked' AND r.status = 'staged' OR p_status = 'shadow' AND r.status IN ('checked', 'shadow')
            OR p_status = 'refused' AND r.status IN ('staged', 'checked', 'shadow')) THEN
        RAISE EXCEPTION 'release % is %: it cannot become %', p_release_id, r.status, p_status USING ERRCODE = 'HP083';
    END IF;
    IF p_status = 'shadow' THEN
        UPDATE rule_releases SET status = 'checked' WHERE scope = p_scope AND status = 'shadow' AND id <> p_release_id;
    END IF;
    UPDATE rule_releases SET status = p_status, checks = checks || p_checks WHERE id = p_release_id;
    IF r.status <> p_status THEN
        PERFORM wake_pulse(p_scope);
    END IF;
END
$$;

-- Puts a release in force. Returns the version after it.
-- Errors: HP081; HP082 the version is not the expected one; HP084 it has not passed its checks and its shadow run.
CREATE OR REPLACE FUNCTION promote_release(p_scope text, p_release_id bigint, p_expected_version bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    s pulse_scopes;
    r rule_releases;
BEGIN
    SELECT * INTO s FROM pulse_scopes WHERE scope = p_scope FOR NO KEY UPDATE;
    r := lock_release(p_scope, p_release_id);
    IF s.version <> p_expected_version THEN
        RAISE EXCEPTION 'the rules of scope % are at version %, not %: another release was promoted or rolled back meanwhile',
            quote_literal(p_scope), s.version, p_expected_version USING ERRCODE = 'HP082';
    ELSIF r.status <> 'shadow' OR coalesce((r.checks #> '{shadow,passed}') <> 'true'::jsonb, true) THEN
        RAISE EXCEPTION 'release % is % and was not promoted: %', p_release_id, r.status,
            CASE WHEN r.status = 'shadow' THEN format('its shadow run is not over: %s of %s ticks, which the role pulse runs',
                coalesce(r.checks #>> '{shadow,ticks}', '0'), coalesce(r.checks #>> '{shadow,wanted}', '20')) ELSE 'only one that ran as a shadow can be' END
            || ', its checks are ' || r.checks::text USING ERRCODE = 'HP084';
    END IF;
    UPDATE rule_releases SET status = 'retired', retired_at = engine_now() WHERE id = s.release_id;
    UPDATE rule_releases SET status = 'active', promoted_at = engine_now(), previous = s.release_id WHERE id = p_release_id;
    UPDATE pulse_scopes SET release_id = p_release_id, version = version + 1 WHERE scope = p_scope;
    INSERT INTO pulse_events (scope, kind, key, hash, meta)
    VALUES (p_scope, 'promote', p_release_id::text, r.hash, jsonb_build_object('previous', s.release_id, 'version', s.version + 1));
    PERFORM wake_pulse(p_scope);
    RETURN s.version + 1;
END
$$;

-- Takes the release in force out of it, in favour of the newest earlier one that was in force for ten minutes, or of
-- none; never of one that was rolled back. With p_release_id only if that one is in force. Returns whether it did, and
-- the release in force now. Error: HP081 no such scope, or nothing is in force.
CREATE OR REPLACE FUNCTION rollback_release(p_scope text, p_cause text, p_release_id bigint DEFAULT NULL,
                                            OUT is_done boolean, OUT release_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    s pulse_scopes;
    t rule_releases;
BEGIN
    SELECT * INTO s FROM pulse_scopes WHERE scope = p_scope FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        s := find_pulse_scope(p_scope);
    END IF;
    release_id := s.release_id;
    is_done := s.release_id IS NOT NULL AND s.release_id = coalesce(p_release_id, s.release_id);
    IF s.release_id IS NULL AND p_release_id IS NULL THEN
        RAISE EXCEPTION 'scope % has no release in force: there is nothing to roll back', quote_literal(p_scope)
            USING ERRCODE = 'HP081';
    ELSIF NOT is_done THEN
        RETURN;
    END IF;
    SELECT * INTO t FROM rule_releases AS o
    WHERE o.scope = p_scope AND o.status = 'retired' AND o.id <> s.release_id
      AND o.retired_at - o.promoted_at >= interval '10 minutes'
    ORDER BY o.promoted_at DESC, o.id DESC LIMIT 1;
    UPDATE rule_releases SET status = 'rolled_back', retired_at = engine_now() WHERE id = s.release_id;
    UPDATE rule_releases SET status = 'active', retired_at = NULL WHERE id = t.id;
    UPDATE pulse_scopes SET release_id = t.id, version = version + 1 WHERE scope = p_scope;
    INSERT INTO pulse_events (scope, kind, key, hash, meta)
    VALUES (p_scope, 'rollback', s.release_id::text, t.hash,
            jsonb_build_object('cause', p_cause, 'to', t.id, 'version', s.version + 1));
    PERFORM wake_pulse(p_scope);
    release_id := t.id;
END
$$;

-- Appends an event of a task, if it may follow the task's last one, and returns its id.
-- Errors: HP081 no such scope; HP083 it may not.
CREATE OR REPLACE FUNCTION task_transition(p_scope text, p_task_id text, p_kind text, p_meta jsonb DEFAULT '{}',
                                           p_hash text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_last  text;
    v_month date;
    v_id    bigint;
BEGIN
    PERFORM find_pulse_scope(p_scope);
    PERFORM pg_advisory_xact_lock(hashtextextended('task of ' || current_schema() || ' ' || p_scope || ' ' || p_task_id, 0));
    SELECT e.kind, e.month INTO v_last, v_month FROM pulse_events AS e
    WHERE e.scope = p_scope AND e.key = p_task_id AND e.kind IN (SELECT DISTINCT t.to_kind FROM task_transitions AS t)
    ORDER BY e.id DESC LIMIT 1;
    IF v_last IS NULL THEN
        SELECT e.kind INTO v_last FROM pulse_events_archive AS e
        WHERE e.scope = p_scope AND e.key = p_task_id AND e.kind IN ('task-closed', 'task-given-up') LIMIT 1;
    END IF;
    IF NOT EXISTS (SELECT FROM task_transitions AS t WHERE t.from_kind = coalesce(v_last, '') AND t.to_kind = p_kind) THEN
        RAISE EXCEPTION 'task % is %: % cannot follow', quote_literal(p_task_id), coalesce(v_last, 'not created'), p_kind
            USING ERRCODE = 'HP083';
    END IF;
    -- All that becomes of a task is in the month in which it was created.
    INSERT INTO pulse_events (scope, kind, key, hash, meta, month)
    VALUES (p_scope, p_kind, p_task_id, p_hash, p_meta,
            coalesce(v_month, date_trunc('month', engine_now() AT TIME ZONE 'UTC')::date))
    RETURNING id INTO v_id;
    RETURN v_id;
END
$$;

-- The tasks' events, each with the agent that the task was then assigned to, and when.
CREATE OR REPLACE VIEW pulse_task_events AS
SELECT g.id, g.scope, g.kind, g.key, g.hash, g.meta, g.occurred_at,
       max(g.agent) OVER w AS agent, max(g.assigned_at) OVER w AS assigned_at
FROM (SELECT e.id, e.scope, e.kind, e.key, e.hash, e.meta, e.occurred_at,
             CASE e.kind WHEN 'task-assigned' THEN e.meta ->> 'agent' END AS agent,
             CASE e.kind WHEN 'task-assigned' THEN e.occurred_at END AS assigned_at,
             count(*) FILTER (WHERE e.kind = 'task-assigned') OVER (PARTITION BY e.scope, e.key ORDER BY e.id) AS assignments
      FROM pulse_events AS e
      WHERE e.kind IN ('task-created', 'task-assigned', 'task-executing', 'task-acked', 'task-closed', 'task-given-up')) AS g
WINDOW w AS (PARTITION BY g.scope, g.key, g.assignments);

CREATE OR REPLACE VIEW pulse_tasks AS
SELECT c.scope, c.key AS id, c.meta ->> 'project' AS project, (c.meta ->> 'priority')::integer AS priority,
       substr(l.kind, 6) AS status, l.agent, a.meta ->> 'result' AS result, c.hash,
       c.occurred_at AS created_at, l.occurred_at AS updated_at
FROM (SELECT DISTINCT ON (t.scope, t.key) t.* FROM pulse_task_events AS t ORDER BY t.scope, t.key, t.id DESC) AS l
JOIN pulse_events AS c ON c.scope = l.scope AND c.kind = 'task-created' AND c.key = l.key
LEFT JOIN pulse_events AS a ON a.scope = l.scope AND a.kind = 'task-acked' AND a.key = l.key;

CREATE OR REPLACE VIEW pulse_pending_tasks AS
SELECT * FROM pulse_tasks WHERE status NOT IN ('closed', 'given-up');

CREATE OR REPLACE VIEW pulse_agent_stats AS
SELECT t.scope, t.agent,
       count(*) FILTER (WHERE t.kind = 'task-assigned') AS assigned,
       count(*) FILTER (WHERE t.kind = 'task-closed') AS closed,
       count(*) FILTER (WHERE t.kind = 'task-given-up') AS given_up,
       count(*) FILTER (WHERE t.kind = 'task-given-up' AND t.id > coalesce(t.closed_id, 0)) AS consecutive_failures,
       (avg(1000 * extract(epoch FROM t.occurred_at - t.assigned_at)) FILTER (WHERE t.kind = 'task-closed'))::double precision
           AS avg_duration_ms
FROM (SELECT e.*, max(e.id) FILTER (WHERE e.kind = 'task-closed') OVER (PARTITION BY e.scope, e.agent) AS closed_id
      FROM pulse_task_events AS e WHERE e.agent IS NOT NULL) AS t
GROUP BY t.scope, t.agent;

-- What a snapshot holds of tasks: at most 100 pending ones, the most urgent first.
CREATE OR REPLACE FUNCTION pulse_task_projections(p_scope text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT jsonb_build_object(
        'pending-tasks', jsonb_build_object(
            'pendingCount', (SELECT count(*) FROM pulse_pending_tasks AS p WHERE p.scope = p_scope),
            'tasks', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', f.id, 'project', f.project, 'priority', f.priority,
                                                                   'status', f.status, 'agent', f.agent)), '[]')
                      FROM (SELECT * FROM pulse_pending_tasks AS p WHERE p.scope = p_scope
                            ORDER BY p.priority DESC, p.created_at, p.id LIMIT 100) AS f),
            'byProject', (SELECT coalesce(jsonb_object_agg(g.project, g.number), '{}')
                          FROM (SELECT p.project, count(*) AS number FROM pulse_pending_tasks AS p
                                WHERE p.scope = p_scope GROUP BY p.project) AS g)),
        'agent-capability-stats', (
            SELECT coalesce(jsonb_object_agg(a.agent, jsonb_build_object(
                'assigned', a.assigned, 'closed', a.closed, 'givenUp', a.given_up,
                'consecutiveFailures', a.consecutive_failures, 'avgDurationMs', a.avg_duration_ms)), '{}')
            FROM pulse_agent_stats AS a WHERE a.scope = p_scope))
$$;
