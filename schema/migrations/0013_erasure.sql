-- Erasure on request: what each table holds of a user, the requests, and what keeps erased data from coming back.

-- What each table holds of a user, a session and an event: erasure and export follow it.
CREATE TABLE data_catalogue (
    place        integer PRIMARY KEY,   -- the order in which rows are locked and deleted
    table_name   text NOT NULL UNIQUE,
    -- Conditions on the table's own columns. NULL: no row.
    user_rows    text,                  -- $1 app, $2 user
    thread_rows  text,                  -- $1 thread
    event_rows   text,                  -- $1 thread, $2 sequence numbers
    target_rows  text,                  -- $1 id of a memory or a fact that is erased on its own
    event_change text,                  -- what SET does to event_rows, same arguments; NULL: they are deleted
    cascades     boolean NOT NULL DEFAULT false,  -- deleted with its session, only counted here
    export_kind  text UNIQUE,           -- the kind of its lines in an export; NULL: not exported
    export_rows  text,                  -- $1 app, $2 user
    note         text NOT NULL,
    CHECK ((export_kind IS NULL) = (export_rows IS NULL)),
    CHECK (event_change IS NULL OR event_rows IS NOT NULL)
);
COMMENT ON TABLE data_catalogue IS 'What each table holds of a user. A new table needs a row here.';

-- One request for erasure. It holds ids and counts, never content.
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
    finished_at   timestamptz           -- NULL: not finished
);
CREATE INDEX erasures_unfinished_idx ON erasures (id) WHERE finished_at IS NULL;
CREATE INDEX erasures_user_idx ON erasures (app_name, user_id);

-- Memories and facts that were erased on their own and must not be extracted again from earlier turns: no text, only
-- their origin.
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

-- Slices to be derived again because something in them was erased: 'fast' gives a summary and the slice, 'deep' gives
-- insights and facts, 'facts' gives facts alone.
CREATE TABLE slice_redraws (
    id         uuid PRIMARY KEY DEFAULT new_id(),
    thread_id  uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    stage      text NOT NULL CHECK (stage IN ('fast', 'deep', 'facts')),
    from_seq   bigint NOT NULL,
    upto_seq   bigint NOT NULL CHECK (upto_seq >= from_seq),
    created_at timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE (thread_id, stage, from_seq)
);

-- Where imported rows come from whose session is not in this database.
CREATE TABLE imported_origins (
    row_id     uuid PRIMARY KEY,
    app_name   varchar(255) NOT NULL,
    user_id    varchar(255) NOT NULL,
    thread_id  uuid NOT NULL,
    session_id text
);
CREATE INDEX imported_origins_user_idx ON imported_origins (app_name, user_id);

-- What was erased of imported sessions, whose origin may still hold it: no names and no content, only hashes of a
-- session's id, or of a key of a shared state with its value. user_id NULL: of the app's state.
CREATE TABLE erased_imports (
    app_name    varchar(255) NOT NULL,
    user_id     varchar(255),
    hash        text NOT NULL,
    erased_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE NULLS NOT DISTINCT (app_name, user_id, hash)
);

INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, event_rows, event_change, cascades,
                            export_kind, export_rows, note) VALUES
(100, 'snapshots', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1 AND sequence_num >= (SELECT min(s) FROM unnest($2) AS s) AND (events_summary <> ''{}'' OR state <> rebase_state(state, ''snapshot'', $1, $2, sequence_num))',
 'state = rebase_state(state, ''snapshot'', $1, $2, sequence_num), events_summary = ''{}''', true, NULL, NULL,
 'states of a session; after an event is erased, as if it had not been appended'),
(110, 'app_states', NULL, NULL,
 'app_name = (SELECT app_name FROM threads WHERE id = $1) AND state <> rebase_state(state, ''app'', $1, $2)',
 'state = rebase_state(state, ''app'', $1, $2), version = version + 1', false, NULL, NULL,
 'an app''s own; what an erased event set in it is removed'),
(120, 'user_states', 'app_name = $1 AND user_id = $2', NULL,
 '(app_name, user_id) = (SELECT app_name, user_id FROM threads WHERE id = $1) AND state <> rebase_state(state, ''user'', $1, $2)',
 'state = rebase_state(state, ''user'', $1, $2), version = version + 1', false, NULL, NULL,
 'the user''s state in an app; stays when one session is erased'),
(125, 'imported_states', 'app_name = $1 AND user_id = $2', NULL,
 'app_name = (SELECT app_name FROM threads WHERE id = $1) AND (user_id IS NULL OR user_id = (SELECT user_id FROM threads WHERE id = $1)) AND delta <> rebase_state(delta, CASE WHEN user_id IS NULL THEN ''app'' ELSE ''user'' END, $1, $2)',
 'delta = rebase_state(delta, CASE WHEN user_id IS NULL THEN ''app'' ELSE ''user'' END, $1, $2)', false, NULL, NULL,
 'what imports set in shared states; after an event is erased, as if it had not been appended'),
(126, 'erased_imports', 'app_name = $1 AND user_id = $2', NULL, NULL, NULL, false, NULL, NULL,
 'hashes of what was erased and may still exist where it was copied from'),
(200, 'fact_versions', 'app_name = $1 AND user_id = $2', 'thread_id = $1',
 'thread_id = $1 AND rests_on(from_seq, upto_seq, source_seqs, value, $1, $2)', NULL, false,
 'fact_version', 'app_name = $1 AND user_id = $2', 'former facts and candidates'),
(210, 'facts', 'app_name = $1 AND user_id = $2', 'thread_id = $1',
 'thread_id = $1 AND rests_on(from_seq, upto_seq, source_seqs, value, $1, $2)', NULL, false,
 'fact', 'app_name = $1 AND user_id = $2', 'current facts'),
(220, 'fact_aliases', 'app_name = $1 AND user_id = $2',
 '(app_name, user_id) = (SELECT app_name, user_id FROM threads WHERE id = $1) AND NOT EXISTS (SELECT FROM fact_versions AS v WHERE v.fact_id = fact_aliases.fact_id)',
 '(app_name, user_id) = (SELECT app_name, user_id FROM threads WHERE id = $1) AND NOT EXISTS (SELECT FROM fact_versions AS v WHERE v.fact_id = fact_aliases.fact_id)',
 NULL, false, 'merge', 'app_name = $1 AND user_id = $2', 'spellings of a fact''s key; deleted with the fact'),
(230, 'instruction_proposals', 'app_name = $1 AND user_id = $2', 'thread_id = $1',
 'thread_id = $1 AND (source_seqs && $2 OR source_seqs = ''{}'')', NULL, false, 'proposal', 'app_name = $1 AND user_id = $2',
 'what a user''s feedback asks for; what was approved is the app''s own'),
(240, 'replays', 'app_name = $1 AND user_id = $2', 'thread_id = $1', NULL, NULL, false, NULL, NULL,
 'memories that are being extracted again'),
(250, 'replay_draws', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1 AND EXISTS (SELECT FROM unnest($2) AS s WHERE s BETWEEN from_seq AND upto_seq)', NULL, true, NULL, NULL,
 'what was extracted again and is not swapped in yet'),
(300, 'consolidation_jobs', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)',
 'thread_id = $1', 'thread_id = $1 AND (result - ''message'' <> redact_result(result) - ''message'' OR error IS NOT NULL OR raw_reply IS NOT NULL)',
 'result = redact_result(result), error = NULL, raw_reply = NULL', true, NULL, NULL,
 'results, errors and raw replies quote messages'),
(305, 'model_replies', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1', NULL, true, NULL, NULL, 'replies that wait for their commit quote messages'),
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
 'what was erased by itself, without its text'),
(430, 'slice_redraws', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 NULL, NULL, true, NULL, NULL, 'slices to be derived again'),
(440, 'imported_origins', 'app_name = $1 AND user_id = $2', 'thread_id = $1', NULL, NULL, false, NULL, NULL,
 'names of sessions that are elsewhere'),
(500, 'messages', 'app_name = $1 AND user_id = $2', 'thread_id = $1', 'thread_id = $1 AND sequence_num = ANY ($2)',
 NULL, true, NULL, NULL, 'messages'),
(510, 'runs', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1 AND run_id IN (SELECT e.invocation_id FROM events AS e WHERE e.thread_id = $1 AND e.sequence_num = ANY ($2) AND e.invocation_id <> '''')',
 'thinking_steps = ''[]'', tool_calls = ''[]'', error = CASE status WHEN ''failed'' THEN ''erased'' END', true, NULL, NULL,
 'an agent''s thoughts and tool calls'),
(520, 'live_messages', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 NULL, NULL, true, NULL, NULL, 'messages that are being streamed'),
(530, 'initial_states', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 NULL, NULL, true, NULL, NULL, 'what sessions were created with'),
(540, 'stream_tickets', 'app_name = $1 AND user_id = $2',
 '(app_name, user_id, session_id) = (SELECT app_name, user_id, session_id FROM threads WHERE id = $1)', NULL, NULL,
 false, NULL, NULL, 'what browsers may watch'),
(600, 'artifacts', 'app_name = $1 AND user_id = $2',
 '(app_name, user_id, session_id) = (SELECT app_name, user_id, session_id FROM threads WHERE id = $1)', NULL, NULL,
 false, NULL, NULL, 'names of files; their versions and content are deleted with them'),
(900, 'threads', 'app_name = $1 AND user_id = $2', 'id = $1',
 'id = $1 AND EXISTS (SELECT FROM events AS e WHERE e.thread_id = $1 AND e.sequence_num = ANY ($2) AND e.erased_at IS NULL)',
 'state = rebase_state(state, ''session'', $1, $2), version = version + 1, erasures = erasures + 1', false, NULL, NULL,
 'sessions; one whose event is erased moves to its next version'),
(910, 'events', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1 AND sequence_num = ANY ($2) AND erased_at IS NULL',
 'author = ''erased'', event_type = ''erased'', invocation_id = '''', content = ''{"erased": true}'', actions = ''{}'', session_delta = NULL, user_delta = NULL, app_delta = NULL, erased_at = clock_timestamp()',
 true, NULL, NULL, 'an erased event leaves a tombstone'),
(990, 'artifact_versions', NULL, NULL, NULL, NULL, false, NULL, NULL, 'deleted with their artifact'),
(995, 'artifact_blobs', NULL, NULL, NULL, NULL, false, NULL, NULL, 'deleted with the last version that refers to them'),
(1000, 'instructions', NULL, NULL, NULL, NULL, false, 'instruction', 'app_name = $1', 'an app''s own'),
(1010, 'erasures', NULL, NULL, NULL, NULL, false, NULL, NULL, 'that something was erased, without its content'),
(1020, 'app_policies', NULL, NULL, NULL, NULL, false, NULL, NULL, 'set by people who run the app'),
(1030, 'engine_settings', NULL, NULL, NULL, NULL, false, NULL, NULL, 'settings of the database'),
(1040, 'data_catalogue', NULL, NULL, NULL, NULL, false, NULL, NULL, 'this table'),
(1050, 'metrics_targets', NULL, NULL, NULL, NULL, false, NULL, NULL, 'addresses of processes'),
(1060, 'call_limits', NULL, NULL, NULL, NULL, false, NULL, NULL, 'a provider''s reasons, by model'),
(1070, 'call_breakers', NULL, NULL, NULL, NULL, false, NULL, NULL, 'kinds of errors, by pool and model'),
(1080, 'embedding_refusals', NULL, NULL, NULL, NULL, false, NULL, NULL, 'ids and hashes'),
(1090, 'embedding_target', NULL, NULL, NULL, NULL, false, NULL, NULL, 'a model''s name'),
(1100, 'merge_thresholds', NULL, NULL, NULL, NULL, false, NULL, NULL, 'models'' names and numbers'),
(1110, 'fact_styles', NULL, NULL, NULL, NULL, false, NULL, NULL, 'set by people who run the app'),
(1200, 'api_keys', NULL, NULL, NULL, NULL, false, NULL, NULL, 'made by people who run the app');

UPDATE data_catalogue SET target_rows = CASE
    WHEN table_name IN ('fact_versions', 'fact_aliases') THEN 'fact_id = $1'
    WHEN table_name = 'imported_origins' THEN 'row_id = $1'
    ELSE 'id = $1' END
WHERE table_name IN ('facts', 'fact_versions', 'fact_aliases', 'memories', 'memories_archive', 'imported_origins');
