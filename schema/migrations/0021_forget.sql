-- Forgetting on request: what each table holds of a user, and the erasing of sessions and events by that. States without
-- what was erased: 0029. What is drawn anew: 0030. Turns, memories, facts, and users: 0031.
--
-- `data_catalogue` names every table and says which of its rows are a user's, a session's or an event's; the functions
-- here go by it, so that a new table is one more row there and nothing else. A session, the events of one session, a
-- memory, a fact: each is one transaction. A user is worked off by `advance_erasure`, a session or a bounded batch of
-- rows per call, and the row of `erasures` remembers that there is more to do, whoever dies meanwhile.
--
-- What keeps it forgotten: `threads.erasures` is compared when a slice is stored that was read before; a tombstone
-- holds its event's id, so that a repeated append brings nothing back; `memory_tombstones` holds what replays and late
-- jobs must not draw again.

CREATE TABLE data_catalogue (
    place        integer PRIMARY KEY,   -- the order in which rows are locked and go
    table_name   text NOT NULL UNIQUE,
    -- Conditions over the table's own columns. NULL: no row is concerned.
    user_rows    text,                  -- $1 app, $2 user
    thread_rows  text,                  -- $1 thread
    event_rows   text,                  -- $1 thread, $2 sequence numbers
    target_rows  text,                  -- $1 id of a memory or a fact that is forgotten by itself
    event_change text,                  -- what SET does to event_rows, with the same arguments; NULL: they go
    cascades     boolean NOT NULL DEFAULT false,  -- with its session: counted, not deleted by itself
    export_kind  text UNIQUE,           -- as the lines of an export name its rows; NULL: not exported
    export_rows  text,                  -- $1 app, $2 user
    note         text NOT NULL,
    CHECK ((export_kind IS NULL) = (export_rows IS NULL)),
    CHECK (event_change IS NULL OR event_rows IS NOT NULL)
);
COMMENT ON TABLE data_catalogue IS 'What each table holds of a user. Whoever adds a table adds a row here.';

-- One request to forget. It holds ids and counts, never content.
CREATE TABLE erasures (
    id            uuid PRIMARY KEY DEFAULT new_id(),
    scope         text NOT NULL CHECK (scope IN ('user', 'session', 'events', 'turn', 'memory', 'fact')),
    app_name      varchar(255) NOT NULL,
    user_id       varchar(255) NOT NULL,
    thread_id     uuid,
    sequence_nums bigint[],
    target_id     uuid,                 -- of the memory or the fact
    counts        jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(counts) = 'object'),   -- rows by table
    requested_at  timestamptz NOT NULL DEFAULT engine_now(),
    finished_at   timestamptz           -- NULL: there is more to do
);
CREATE INDEX erasures_unfinished_idx ON erasures (id) WHERE finished_at IS NULL;
CREATE INDEX erasures_user_idx ON erasures (app_name, user_id);

-- What was forgotten by itself, and must not be drawn again from what was said before: no text, only where it stood.
CREATE TABLE memory_tombstones (
    id           uuid PRIMARY KEY,      -- of the memory or the fact
    app_name     varchar(255) NOT NULL,
    user_id      varchar(255) NOT NULL,
    memory_type  text,                  -- of a memory; NULL: it is a fact
    fact_hash    text,                  -- of a fact: see fact_hash()
    thread_id    uuid,
    from_seq     bigint,
    upto_seq     bigint,
    source_seqs  bigint[] NOT NULL DEFAULT '{}',
    forgotten_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((memory_type IS NULL) <> (fact_hash IS NULL))
);
CREATE INDEX memory_tombstones_fact_idx ON memory_tombstones (app_name, user_id, fact_hash) WHERE fact_hash IS NOT NULL;
CREATE INDEX memory_tombstones_thread_idx ON memory_tombstones (thread_id);

-- Slices to be drawn anew because something in them was erased: 'fast' leaves a summary and the slice, 'deep' insights
-- and facts, 'facts' facts alone.
CREATE TABLE slice_redraws (
    id         uuid PRIMARY KEY DEFAULT new_id(),
    thread_id  uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    stage      text NOT NULL CHECK (stage IN ('fast', 'deep', 'facts')),
    from_seq   bigint NOT NULL,
    upto_seq   bigint NOT NULL CHECK (upto_seq >= from_seq),
    created_at timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE (thread_id, stage, from_seq)
);

CREATE FUNCTION fact_hash(p_fact_type text, p_key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(sha256(convert_to(p_fact_type || E'\n' || lower(p_key), 'UTF8')), 'hex');

-- Whether somebody had this key forgotten after all the turns that say it now were recorded. A turn that came later
-- may teach it anew. Every function that stores a fact asks this.
CREATE FUNCTION is_forgotten_fact(p_thread threads, p_fact fact_input) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (
        SELECT FROM memory_tombstones AS x
        WHERE x.app_name = p_thread.app_name AND x.user_id = p_thread.user_id
          AND x.fact_hash = fact_hash(p_fact.fact_type, coalesce(p_fact.normal_key, plain_key(p_fact.key)))
          AND NOT EXISTS (SELECT FROM events AS e
                          WHERE e.thread_id = p_thread.id AND e.sequence_num = ANY (p_fact.source_seqs)
                            AND e.created_at > x.forgotten_at))
$$;

-- Whether a memory of this kind over these turns was forgotten by itself: a summary or a slice by its range, an insight
-- by any turn that it rests on. Whoever draws a slice anew asks this.
CREATE FUNCTION is_forgotten_memory(
    p_thread_id uuid, p_memory_type text, p_from_seq bigint, p_upto_seq bigint, p_source_seqs bigint[])
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (
        SELECT FROM memory_tombstones AS x
        WHERE x.thread_id = p_thread_id AND x.memory_type = p_memory_type
          AND CASE p_memory_type WHEN 'semantic' THEN x.source_seqs && p_source_seqs
                                 ELSE x.from_seq <= p_upto_seq AND p_from_seq <= x.upto_seq END)
$$;

-- Whether a statement rests on any of some turns: it cites one; it cites none, and its slice holds one; or its slice
-- holds one that says the value itself.
CREATE FUNCTION rests_on(p_from_seq bigint, p_upto_seq bigint, p_source_seqs bigint[], p_value jsonb,
                         p_thread_id uuid, p_seqs bigint[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT p_source_seqs && p_seqs
        OR (EXISTS (SELECT FROM unnest(p_seqs) AS s WHERE s BETWEEN p_from_seq AND p_upto_seq)
            AND (p_source_seqs = '{}' OR EXISTS (
                SELECT FROM messages AS m
                WHERE m.thread_id = p_thread_id AND m.sequence_num = ANY (p_seqs)
                  AND m.sequence_num BETWEEN p_from_seq AND p_upto_seq
                  AND strpos(lower(m.content), lower(coalesce(p_value ->> 'text', p_value #>> '{}'))) > 0)))
$$;

-- What a job's result may say after something of its thread was erased: ids.
CREATE FUNCTION redact_result(p_result jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_strip_nulls(jsonb_build_object(
    'message', 'Something of this session was forgotten since',
    'summary', CASE WHEN p_result ? 'summary'
                    THEN jsonb_build_object('memory_id', p_result #> '{summary,memory_id}') END,
    'episodic', p_result -> 'episodic', 'insights', p_result -> 'insights', 'follow_up', p_result -> 'follow_up'));

-- A fact as it is embedded and searched.
CREATE FUNCTION fact_text(p_key text, p_value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_key || ': ' || CASE jsonb_typeof(p_value -> 'text') WHEN 'string'
    THEN CASE coalesce(p_value ->> 'subject', 'user') WHEN 'user' THEN '' ELSE (p_value ->> 'subject') || ' ' END
         || (p_value ->> 'text')
    ELSE p_value #>> '{}' END;

INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, event_rows, event_change, cascades,
                            export_kind, export_rows, note) VALUES
(100, 'snapshots', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1 AND sequence_num >= (SELECT min(s) FROM unnest($2) AS s) AND (events_summary <> ''{}'' OR state <> rebase_state(state, ''snapshot'', $1, $2, sequence_num))',
 'state = rebase_state(state, ''snapshot'', $1, $2, sequence_num), events_summary = ''{}''', true, NULL, NULL,
 'states of a session; after an event is erased, as if it had never been'),
(110, 'app_states', NULL, NULL,
 'app_name = (SELECT app_name FROM threads WHERE id = $1) AND state <> rebase_state(state, ''app'', $1, $2)',
 'state = rebase_state(state, ''app'', $1, $2), version = version + 1', false, NULL, NULL,
 'the app''s own; what an erased event set in it goes'),
(120, 'user_states', 'app_name = $1 AND user_id = $2', NULL,
 '(app_name, user_id) = (SELECT app_name, user_id FROM threads WHERE id = $1) AND state <> rebase_state(state, ''user'', $1, $2)',
 'state = rebase_state(state, ''user'', $1, $2), version = version + 1', false, NULL, NULL,
 'the user''s state in an app; stays when one session is forgotten'),
(125, 'imported_states', 'app_name = $1 AND user_id = $2', NULL,
 'app_name = (SELECT app_name FROM threads WHERE id = $1) AND (user_id IS NULL OR user_id = (SELECT user_id FROM threads WHERE id = $1)) AND delta <> rebase_state(delta, CASE WHEN user_id IS NULL THEN ''app'' ELSE ''user'' END, $1, $2)',
 'delta = rebase_state(delta, CASE WHEN user_id IS NULL THEN ''app'' ELSE ''user'' END, $1, $2)', false, NULL, NULL,
 'what imports set in states that sessions share; after an event is erased, as if it had never been'),
(200, 'fact_versions', 'app_name = $1 AND user_id = $2', 'thread_id = $1',
 'thread_id = $1 AND rests_on(from_seq, upto_seq, source_seqs, value, $1, $2)', NULL, false,
 'fact_version', 'app_name = $1 AND user_id = $2', 'facts that do not hold any more, or never did'),
(210, 'facts', 'app_name = $1 AND user_id = $2', 'thread_id = $1',
 'thread_id = $1 AND rests_on(from_seq, upto_seq, source_seqs, value, $1, $2)', NULL, false,
 'fact', 'app_name = $1 AND user_id = $2', 'current facts'),
(220, 'fact_aliases', 'app_name = $1 AND user_id = $2',
 '(app_name, user_id) = (SELECT app_name, user_id FROM threads WHERE id = $1) AND NOT EXISTS (SELECT FROM fact_versions AS v WHERE v.fact_id = fact_aliases.fact_id)',
 '(app_name, user_id) = (SELECT app_name, user_id FROM threads WHERE id = $1) AND NOT EXISTS (SELECT FROM fact_versions AS v WHERE v.fact_id = fact_aliases.fact_id)',
 NULL, false, 'merge', 'app_name = $1 AND user_id = $2', 'spellings of a fact''s key: they go with the fact'),
(230, 'instruction_proposals', 'app_name = $1 AND user_id = $2', 'thread_id = $1',
 'thread_id = $1 AND (source_seqs && $2 OR source_seqs = ''{}'')', NULL, false, 'proposal', 'app_name = $1 AND user_id = $2',
 'what a user''s feedback asks for; what was approved is the app''s'),
(240, 'replays', 'app_name = $1 AND user_id = $2', 'thread_id = $1', NULL, NULL, false, NULL, NULL,
 'memories being drawn anew'),
(250, 'replay_draws', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1 AND EXISTS (SELECT FROM unnest($2) AS s WHERE s BETWEEN from_seq AND upto_seq)', NULL, true, NULL, NULL,
 'what was drawn anew and not yet taken'),
(300, 'consolidation_jobs', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)',
 'thread_id = $1', 'thread_id = $1 AND (result - ''message'' <> redact_result(result) - ''message'' OR error IS NOT NULL OR raw_reply IS NOT NULL)',
 'result = redact_result(result), error = NULL, raw_reply = NULL', true, NULL, NULL,
 'results, errors and raw replies quote what was said'),
(310, 'consolidation_jobs_archive', 'app_name = $1 AND user_id = $2', 'thread_id = $1',
 'thread_id = $1 AND (result - ''message'' <> redact_result(result) - ''message'' OR error IS NOT NULL OR raw_reply IS NOT NULL)',
 'result = redact_result(result), error = NULL, raw_reply = NULL', false, NULL, NULL, 'as consolidation_jobs'),
(400, 'memories', 'app_name = $1 AND user_id = $2', 'thread_id = $1',
 'thread_id = $1 AND created_at <= $6 AND EXISTS (SELECT FROM unnest($2) AS s WHERE s BETWEEN from_seq AND upto_seq OR s = ANY (source_seqs))',
 NULL, false, 'memory', 'app_name = $1 AND user_id = $2', 'summaries, slices, insights'),
(410, 'memories_archive', 'app_name = $1 AND user_id = $2', 'thread_id = $1',
 'thread_id = $1 AND created_at <= $6 AND EXISTS (SELECT FROM unnest($2) AS s WHERE s BETWEEN from_seq AND upto_seq OR s = ANY (source_seqs))',
 NULL, false, 'archived_memory', 'app_name = $1 AND user_id = $2', 'memories that became too weak'),
(420, 'memory_tombstones', 'app_name = $1 AND user_id = $2', 'thread_id = $1', NULL, NULL, false,
 'tombstone', 'app_name = $1 AND user_id = $2',
 'what was forgotten by itself, without its text'),
(430, 'slice_redraws', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 NULL, NULL, true, NULL, NULL, 'slices to be drawn anew'),
(500, 'messages', 'app_name = $1 AND user_id = $2', 'thread_id = $1', 'thread_id = $1 AND sequence_num = ANY ($2)',
 NULL, true, NULL, NULL, 'what was said'),
(510, 'runs', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1 AND run_id IN (SELECT e.invocation_id FROM events AS e WHERE e.thread_id = $1 AND e.sequence_num = ANY ($2) AND e.invocation_id <> '''')',
 'thinking_steps = ''[]'', tool_calls = ''[]'', error = CASE status WHEN ''failed'' THEN ''erased'' END', true, NULL, NULL,
 'what an agent thought and called on the way'),
(520, 'live_messages', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 NULL, NULL, true, NULL, NULL, 'what is being said'),
(530, 'initial_states', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 NULL, NULL, true, NULL, NULL, 'what sessions were created with'),
(540, 'stream_tickets', 'app_name = $1 AND user_id = $2',
 '(app_name, user_id, session_id) = (SELECT app_name, user_id, session_id FROM threads WHERE id = $1)', NULL, NULL,
 false, NULL, NULL, 'what browsers may watch'),
(600, 'artifacts', 'app_name = $1 AND user_id = $2',
 '(app_name, user_id, session_id) = (SELECT app_name, user_id, session_id FROM threads WHERE id = $1)', NULL, NULL,
 false, NULL, NULL, 'names of files; their versions and bytes go with them'),
(900, 'threads', 'app_name = $1 AND user_id = $2', 'id = $1',
 'id = $1 AND EXISTS (SELECT FROM events AS e WHERE e.thread_id = $1 AND e.sequence_num = ANY ($2) AND e.erased_at IS NULL)',
 'state = rebase_state(state, ''session'', $1, $2), version = version + 1, erasures = erasures + 1', false, NULL, NULL,
 'sessions; one whose event is erased moves to its next version'),
(910, 'events', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1 AND sequence_num = ANY ($2) AND erased_at IS NULL',
 'author = ''erased'', event_type = ''erased'', invocation_id = '''', content = ''{"erased": true}'', actions = ''{}'', session_delta = NULL, user_delta = NULL, app_delta = NULL, erased_at = clock_timestamp()',
 true, NULL, NULL, 'an erased event leaves a tombstone'),
(990, 'artifact_versions', NULL, NULL, NULL, NULL, false, NULL, NULL, 'go with their artifact'),
(995, 'artifact_blobs', NULL, NULL, NULL, NULL, false, NULL, NULL, 'go with the last version that holds them'),
(1000, 'instructions', NULL, NULL, NULL, NULL, false, 'instruction', 'app_name = $1', 'an app''s own: no user''s'),
(1010, 'erasures', NULL, NULL, NULL, NULL, false, NULL, NULL, 'that something was forgotten, without what'),
(1020, 'app_policies', NULL, NULL, NULL, NULL, false, NULL, NULL, 'set by people who run the app'),
(1030, 'engine_settings', NULL, NULL, NULL, NULL, false, NULL, NULL, 'facts about the database'),
(1040, 'data_catalogue', NULL, NULL, NULL, NULL, false, NULL, NULL, 'this table'),
(1050, 'metrics_targets', NULL, NULL, NULL, NULL, false, NULL, NULL, 'addresses of processes'),
(1060, 'call_limits', NULL, NULL, NULL, NULL, false, NULL, NULL, 'a provider''s reasons, by model'),
(1070, 'call_breakers', NULL, NULL, NULL, NULL, false, NULL, NULL, 'kinds of errors, by pool and model'),
(1080, 'embedding_refusals', NULL, NULL, NULL, NULL, false, NULL, NULL, 'ids and hashes'),
(1090, 'embedding_target', NULL, NULL, NULL, NULL, false, NULL, NULL, 'a model''s name'),
(1100, 'merge_thresholds', NULL, NULL, NULL, NULL, false, NULL, NULL, 'models'' names and numbers'),
(1110, 'fact_styles', NULL, NULL, NULL, NULL, false, NULL, NULL, 'set by people who run the app');

UPDATE data_catalogue SET
    target_rows = CASE WHEN table_name IN ('fact_versions', 'fact_aliases') THEN 'fact_id = $1' ELSE 'id = $1' END
WHERE table_name IN ('facts', 'fact_versions', 'fact_aliases', 'memories', 'memories_archive');

-- The condition on a table's rows that a scope of `erasures` reaches: $1 app, $2 user, $3 thread, $4 sequence numbers,
-- $5 target, $6 the moment up to which it reaches. A user's sessions that began after it are a new life, and stay; so
-- does what is drawn anew from a slice after an event of it was erased.
CREATE FUNCTION erasure_condition(c data_catalogue, p_scope text) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT CASE p_scope
        WHEN 'user' THEN c.user_rows || CASE
            WHEN c.table_name = 'threads' THEN ' AND created_at <= $6'
            WHEN c.thread_rows LIKE 'thread_id%' AND c.user_rows IS NOT NULL
            THEN ' AND NOT EXISTS (SELECT FROM threads AS young WHERE young.id = thread_id AND young.created_at > $6)'
            ELSE '' END
        WHEN 'session' THEN replace(c.thread_rows, '$1', '$3')
        WHEN 'events' THEN replace(replace(c.event_rows, '$2', '$4'), '$1', '$3')
        -- What is searched and what was drawn; the event, its run and the state stay as they are.
        WHEN 'turn' THEN CASE WHEN c.table_name IN (
                'facts', 'fact_versions', 'fact_aliases', 'instruction_proposals', 'replay_draws', 'consolidation_jobs',
                'consolidation_jobs_archive', 'model_replies', 'memories', 'memories_archive', 'messages')
            THEN replace(replace(c.event_rows, '$2', '$4'), '$1', '$3') END
        ELSE replace(c.target_rows, '$1', '$5') || ' AND app_name = $1 AND user_id = $2' END
$$;

-- A user: when it was asked for. All else: when it was done, under the session's lock.
CREATE FUNCTION erasure_moment(e erasures) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ SELECT CASE e.scope WHEN 'user' THEN e.requested_at ELSE coalesce(e.finished_at, clock_timestamp()) END $$;

-- What a request reaches, or still finds: rows by table, and the first p_limit of each without their vectors.
CREATE FUNCTION erasure_rows(e erasures, p_limit integer DEFAULT 0)
RETURNS TABLE (table_name text, row_count bigint, sample jsonb[])
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    c       data_catalogue;
    v_where text;
BEGIN
    FOR c IN SELECT * FROM data_catalogue ORDER BY place LOOP
        v_where := erasure_condition(c, e.scope);
        CONTINUE WHEN v_where IS NULL;
        table_name := c.table_name;
        EXECUTE format('SELECT count(*) FROM %I WHERE %s', c.table_name, v_where) INTO row_count
        USING e.app_name, e.user_id, e.thread_id, e.sequence_nums, e.target_id, erasure_moment(e);
        CONTINUE WHEN row_count = 0;
        EXECUTE format($f$SELECT array_agg(to_jsonb(x) - 'embedding' - 'search')
                          FROM (SELECT * FROM %I WHERE %s LIMIT $7) AS x$f$, c.table_name, v_where) INTO sample
        USING e.app_name, e.user_id, e.thread_id, e.sequence_nums, e.target_id, erasure_moment(e), p_limit;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Erases what a request of one session, of events, of a memory or of a fact reaches, by the catalogue and in its order.
-- The caller holds the session's lock. Returns rows by table.
CREATE FUNCTION erase_rows(e erasures) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    c        data_catalogue;
    v_where  text;
    v_rows   bigint;
    v_counts jsonb := '{}';
BEGIN
    PERFORM set_config('hippocampus.erasing', coalesce(e.thread_id::text, ''), true);
    -- What goes with its session is counted while it is there.
    FOR c IN SELECT * FROM data_catalogue ORDER BY e.scope = 'session' AND NOT cascades, place LOOP
        v_where := erasure_condition(c, e.scope);
        CONTINUE WHEN v_where IS NULL;
        IF e.scope = 'session' AND c.cascades THEN
            EXECUTE format('SELECT count(*) FROM %I WHERE %s', c.table_name, v_where) INTO v_rows
            USING e.app_name, e.user_id, e.thread_id;
        ELSIF e.scope IN ('events', 'turn') AND c.event_change IS NOT NULL THEN
            EXECUTE format('UPDATE %I SET %s WHERE %s', c.table_name,
                           replace(replace(c.event_change, '$2', '$4'), '$1', '$3'), v_where)
            USING e.app_name, e.user_id, e.thread_id, e.sequence_nums;
            GET DIAGNOSTICS v_rows = ROW_COUNT;
        ELSE
            EXECUTE format('DELETE FROM %I WHERE %s', c.table_name, v_where)
            USING e.app_name, e.user_id, e.thread_id, e.sequence_nums, e.target_id, erasure_moment(e);
            GET DIAGNOSTICS v_rows = ROW_COUNT;
        END IF;
        IF v_rows > 0 THEN
            v_counts := v_counts || jsonb_build_object(c.table_name, v_rows);
        END IF;
    END LOOP;
    PERFORM set_config('hippocampus.erasing', '', true);
    RETURN v_counts;
END
$$;

-- As erase_rows, for what is drawn from a thread: facts of which a statement goes are made anew afterwards.
CREATE FUNCTION erase_drawn(e erasures) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_facts  uuid[];
    v_fact   uuid;
    v_counts jsonb;
BEGIN
    PERFORM lock_user_memory(e.app_name, e.user_id);
    -- In the order in which the jobs of the user's other threads lock them, and accesses lock theirs.
    PERFORM FROM facts WHERE thread_id = e.thread_id ORDER BY fact_type, key FOR UPDATE;
    PERFORM FROM memories WHERE thread_id = e.thread_id ORDER BY id FOR UPDATE;
    SELECT array_agg(g.fact_id ORDER BY g.fact_type, g.key, g.fact_id) INTO v_facts
    FROM (SELECT f.id AS fact_id, f.fact_type, f.key, f.thread_id, f.from_seq, f.upto_seq, f.source_seqs, f.value
          FROM facts AS f
          UNION ALL
          SELECT v.fact_id, v.fact_type, v.key, v.thread_id, v.from_seq, v.upto_seq, v.source_seqs, v.value
          FROM fact_versions AS v) AS g
    WHERE g.thread_id = e.thread_id
      AND (e.scope = 'session'
           OR rests_on(g.from_seq, g.upto_seq, g.source_seqs, g.value, e.thread_id, e.sequence_nums));
    v_counts := erase_rows(e);
    -- From what is left of each fact's statements.
    FOREACH v_fact IN ARRAY coalesce(v_facts, '{}') LOOP
        PERFORM rebuild_fact(v_fact);
    END LOOP;
    IF v_facts IS NOT NULL THEN
        PERFORM enqueue_embedding_backfill();
    END IF;
    RETURN v_counts;
END
$$;

-- Forgets a session with everything that was said and drawn in it. delete_session keeps what was drawn; this does not.
-- Errors: HP001.
CREATE FUNCTION erase_session(p_app_name text, p_user_id text, p_session_id text) RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e erasures;
BEGIN
    SELECT id INTO e.thread_id FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no session % for app % and user %',
            quote_nullable(p_session_id), quote_nullable(p_app_name), quote_nullable(p_user_id) USING ERRCODE = 'HP001';
    END IF;
    INSERT INTO erasures (scope, app_name, user_id, thread_id, finished_at)
    VALUES ('session', p_app_name, p_user_id, e.thread_id, clock_timestamp()) RETURNING * INTO e;
    PERFORM FROM threads WHERE id = e.thread_id FOR UPDATE;
    PERFORM note_erased_import(e);
    UPDATE erasures SET counts = erase_thread(e) WHERE id = e.id RETURNING * INTO e;
    RETURN e;
END
$$;

-- One thread, whole. Whoever reads or writes it waits, and finds it gone.
CREATE FUNCTION erase_thread(e erasures) RETURNS jsonb
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM FROM threads WHERE id = e.thread_id FOR UPDATE;
    UPDATE procrastinate_jobs SET status = 'cancelled'
    WHERE status = 'todo' AND id IN (
        SELECT procrastinate_job_id FROM consolidation_jobs WHERE thread_id = e.thread_id AND status = 'pending');
    e.scope := 'session';
    RETURN erase_drawn(e);
END
$$;

-- Forgets events of a session: each leaves a tombstone with its number, id and time. State and snapshots become what
-- they would be without them; what rests on them goes, and slices that lose something are drawn anew from what is left
-- of them. Privileged: it changes history. Events that are erased already are passed over.
-- Errors: HP001; HP007 none or over 1,000 were named; HP046 one of them does not exist, and nothing was changed.
CREATE FUNCTION erase_events(p_app_name text, p_user_id text, p_session_id text, p_seqs bigint[], p_event_ids text[])
RETURNS erasures
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e       erasures;
    v_wrong text;
BEGIN
    -- First of all: what is named must still be what is erased.
    SELECT id INTO e.thread_id FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id FOR NO KEY UPDATE;
    e.sequence_nums := event_numbers(p_app_name, p_user_id, p_session_id, p_seqs, p_event_ids);
    INSERT INTO erasures (scope, app_name, user_id, thread_id, sequence_nums, finished_at)
    VALUES ('events', p_app_name, p_user_id, e.thread_id, e.sequence_nums, clock_timestamp()) RETURNING * INTO e;

    PERFORM note_redraws(e);
    PERFORM note_erased_import(e);
    UPDATE erasures SET counts = erase_drawn(e) WHERE id = e.id RETURNING * INTO e;
    PERFORM enqueue_redraws();
    RETURN e;
END
$$;

-- The numbers of events that were named by number or id and stand, each once, in order. Errors as erase_events.
CREATE FUNCTION event_numbers(p_app_name text, p_user_id text, p_session_id text, p_seqs bigint[], p_event_ids text[])
RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    v_thread  uuid;
    v_found   bigint[];
    v_missing text;
BEGIN
    SELECT id INTO v_thread FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no session % for app % and user %',
            quote_nullable(p_session_id), quote_nullable(p_app_name), quote_nullable(p_user_id) USING ERRCODE = 'HP001';
    ELSIF coalesce(cardinality(p_seqs), 0) + coalesce(cardinality(p_event_ids), 0) NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'name 1 to 1000 events, by number or by id' USING ERRCODE = 'HP007';
    END IF;
    SELECT string_agg(w.name, ', ') INTO v_missing
    FROM (SELECT '#' || s FROM unnest(p_seqs) AS s
          WHERE NOT EXISTS (SELECT FROM events WHERE thread_id = v_thread AND sequence_num = s)
          UNION ALL
          SELECT quote_nullable(i) FROM unnest(p_event_ids) AS i
          WHERE NOT EXISTS (SELECT FROM events WHERE thread_id = v_thread AND id = i)
          LIMIT 10) AS w (name);
    IF v_missing IS NOT NULL THEN
        RAISE EXCEPTION 'session % has no event %', quote_literal(p_session_id), v_missing USING ERRCODE = 'HP046';
    END IF;
    SELECT coalesce(array_agg(sequence_num ORDER BY sequence_num), '{}') INTO v_found FROM events
    WHERE thread_id = v_thread AND erased_at IS NULL AND (sequence_num = ANY (p_seqs) OR id = ANY (p_event_ids));
    RETURN v_found;
END
$$;

-- Whoever may erase is said by a GRANT; the owner may.
REVOKE EXECUTE ON FUNCTION erase_events(text, text, text, bigint[], text[]), erase_session(text, text, text),
    erase_rows(erasures), erase_drawn(erasures), erase_thread(erasures) FROM PUBLIC;
