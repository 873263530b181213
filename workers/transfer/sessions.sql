-- Sessions as lines of JSON and back. PostgreSQL writes and reads every value itself: nothing is rounded.

-- name: export_lines
-- app, user, session, each or NULL: the states first, then each session before its events.
SELECT line FROM (
    SELECT 0 AS part, a.app_name, '' AS user_id, '' AS session_id, 0::bigint AS seq,
           json_build_object('kind', 'app_state', 'app_name', a.app_name, 'state', a.state,
                             'updated_at', a.updated_at)::text AS line
    FROM app_states AS a WHERE $1::text IS NULL OR a.app_name = $1
    UNION ALL
    SELECT 1, u.app_name, u.user_id, '', 0,
           json_build_object('kind', 'user_state', 'app_name', u.app_name, 'user_id', u.user_id, 'state', u.state,
                             'updated_at', u.updated_at)::text
    FROM user_states AS u WHERE ($1::text IS NULL OR u.app_name = $1) AND ($2::text IS NULL OR u.user_id = $2)
    UNION ALL
    SELECT 2, t.app_name, t.user_id, t.session_id, rest.seq, rest.line
    FROM threads AS t CROSS JOIN LATERAL (
        SELECT 0::bigint AS seq, json_build_object(
            'kind', 'session', 'id', t.id, 'app_name', t.app_name, 'user_id', t.user_id, 'session_id', t.session_id,
            'state', t.state, 'version', t.version, 'metadata', t.metadata, 'last_seq', t.last_seq,
            'token_count', t.token_count, 'fast_upto_seq', t.fast_upto_seq, 'deep_upto_seq', t.deep_upto_seq,
            'last_event_at', t.last_event_at, 'finalized_at', t.finalized_at, 'created_at', t.created_at,
            'updated_at', t.updated_at, 'state_seq', t.state_seq, 'event_time', t.event_time, 'ttl', t.ttl,
            'expires_at', t.expires_at, 'memory_only', t.memory_only, 'initial_state', (
                SELECT json_build_object('session', i.session_state, 'user', i.user_delta, 'app', i.app_delta)
                FROM initial_states AS i WHERE i.thread_id = t.id))::text AS line
        UNION ALL
        SELECT e.sequence_num, translate(json_build_object(
            'kind', 'event', 'sequence_num', e.sequence_num, 'id', e.id, 'invocation_id', e.invocation_id,
            'author', e.author, 'event_type', e.event_type, 'content', e.content, 'actions', e.actions,
            'occurred_at', e.occurred_at, 'created_at', e.created_at, 'erased_at', e.erased_at, 'version', e.version,
            'session_delta', e.session_delta, 'user_delta', e.user_delta, 'app_delta', e.app_delta,
            'message', CASE WHEN m.id IS NOT NULL THEN json_build_object(
                'role', m.role, 'content', m.content, 'token_estimate', m.token_estimate, 'metadata', m.metadata) END
            -- White space between the tokens of an opaque body has no meaning; a line must not contain line breaks.
            )::text, E'\n\r', '  ')
        FROM events AS e LEFT JOIN messages AS m ON (m.thread_id, m.sequence_num) = (e.thread_id, e.sequence_num)
        WHERE e.thread_id = t.id) AS rest
    WHERE ($1::text IS NULL OR t.app_name = $1) AND ($2::text IS NULL OR t.user_id = $2)
      AND ($3::text IS NULL OR t.session_id = $3)
) AS lines ORDER BY part, app_name COLLATE "C", user_id COLLATE "C", session_id COLLATE "C", seq

-- name: plain_values
-- Times and intervals in the format that every server reads.
SELECT set_config('timezone', 'UTC', true), set_config('intervalstyle', 'postgres', true)

-- name: import_state
-- A line of a state: stored where there is none; true if it was.
WITH line AS (SELECT $1::json AS v),
app AS (
    INSERT INTO app_states (app_name, state, updated_at)
    SELECT v ->> 'app_name', (v -> 'state')::jsonb, (v ->> 'updated_at')::timestamptz
    FROM line WHERE v ->> 'kind' = 'app_state'
    ON CONFLICT DO NOTHING RETURNING app_name, NULL AS user_id, state, version),
own AS (
    INSERT INTO user_states (app_name, user_id, state, updated_at)
    SELECT v ->> 'app_name', v ->> 'user_id', (v -> 'state')::jsonb, (v ->> 'updated_at')::timestamptz
    FROM line WHERE v ->> 'kind' = 'user_state'
    ON CONFLICT DO NOTHING RETURNING app_name, user_id, state, version),
stored AS (
    INSERT INTO imported_states (app_name, user_id, delta, version)
    SELECT * FROM app UNION ALL SELECT * FROM own
    RETURNING true)
SELECT EXISTS (SELECT FROM stored)

-- name: import_session
-- A line of a session, and whether it is to be consolidated again from its first event. No row where it exists.
-- Versions of shared states belong to the other database and are not imported. The session keeps its id, unless that is
-- taken: an export of memories names it.
WITH stored AS (
INSERT INTO threads (id, app_name, user_id, session_id, state, version, metadata, last_seq, token_count, fast_upto_seq,
                     deep_upto_seq, fast_queued_seq, deep_queued_seq, fast_queued_tokens, deep_queued_tokens,
                     fast_due_at, deep_due_at, last_event_at, finalized_at, created_at, updated_at, state_seq,
                     event_time, ttl, expires_at, memory_only)
SELECT CASE WHEN s.id IS NULL OR EXISTS (SELECT FROM threads AS t WHERE t.id = s.id) THEN new_id() ELSE s.id END,
       v ->> 'app_name', v ->> 'user_id', v ->> 'session_id', (v -> 'state')::jsonb, (v ->> 'version')::integer,
       (v -> 'metadata')::jsonb, s.last_seq, (v ->> 'token_count')::bigint, s.fast, s.deep, s.fast, s.deep,
       CASE WHEN s.fast = s.last_seq THEN (v ->> 'token_count')::bigint ELSE 0 END,
       CASE WHEN s.deep = s.last_seq THEN (v ->> 'token_count')::bigint ELSE 0 END,
       CASE WHEN s.fast < s.last_seq THEN engine_now() END, CASE WHEN s.deep < s.last_seq THEN engine_now() END,
       (v ->> 'last_event_at')::timestamptz, (v ->> 'finalized_at')::timestamptz, (v ->> 'created_at')::timestamptz,
       (v ->> 'updated_at')::timestamptz, coalesce((v ->> 'state_seq')::bigint, 0),
       (v ->> 'event_time')::double precision, (v ->> 'ttl')::interval, (v ->> 'expires_at')::timestamptz,
       coalesce((v ->> 'memory_only')::boolean, false)
FROM (SELECT $1::json AS v) AS line CROSS JOIN LATERAL (
    SELECT (v ->> 'id')::uuid AS id, (v ->> 'last_seq')::bigint AS last_seq,
           CASE WHEN $2 THEN 0 ELSE (v ->> 'fast_upto_seq')::bigint END AS fast,
           CASE WHEN $2 THEN 0 ELSE (v ->> 'deep_upto_seq')::bigint END AS deep) AS s
ON CONFLICT (app_name, user_id, session_id) DO NOTHING
RETURNING id
), initial AS (
    INSERT INTO initial_states (thread_id, session_state, user_delta, app_delta)
    SELECT s.id, (i.v -> 'session')::jsonb, nullif((i.v -> 'user')::jsonb, 'null'), nullif((i.v -> 'app')::jsonb, 'null')
    FROM stored AS s, (SELECT $1::json -> 'initial_state' AS v) AS i WHERE json_typeof(i.v) = 'object'
)
SELECT id FROM stored

-- name: silence
-- Notify no listener of past events.
SELECT set_config('hippocampus.notify', 'off', true)

-- name: import_events
-- A thread, and the columns of its events and their messages, each as an array; how many were stored.
WITH line AS (
    SELECT seq::bigint, id, invocation_id, author, event_type, content, actions, occurred_at::timestamptz,
           created_at::timestamptz, erased_at::timestamptz, version::integer, session_delta::jsonb, user_delta::jsonb, app_delta::jsonb,
           role, message, tokens::integer, metadata::jsonb
    FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::json[], $8::json[], $9::text[],
                $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[],
                $17::text[], $18::text[], $19::text[])
         AS v (seq, id, invocation_id, author, event_type, content, actions, occurred_at, created_at, erased_at, version,
               session_delta, user_delta, app_delta, role, message, tokens, metadata)),
stored AS (
    INSERT INTO events (thread_id, sequence_num, id, invocation_id, author, event_type, content, actions, occurred_at,
                        created_at, erased_at, version, session_delta, user_delta, app_delta)
    SELECT $1::uuid, seq, id, invocation_id, author, event_type, content, actions, occurred_at, created_at, erased_at,
           version, session_delta, user_delta, app_delta
    FROM line
    RETURNING true),
stored_messages AS (
    INSERT INTO messages (thread_id, sequence_num, event_id, app_name, user_id, role, author, content, token_estimate,
                          metadata, occurred_at, created_at)
    SELECT t.id, l.seq, l.id, t.app_name, t.user_id, l.role, l.author, l.message, l.tokens, l.metadata, l.occurred_at,
           l.created_at
    FROM line AS l CROSS JOIN threads AS t WHERE t.id = $1 AND l.role IS NOT NULL
    RETURNING true)
SELECT (SELECT count(*) FROM stored)

-- name: count_events
-- A thread: how many events it has, and how many it should have.
SELECT count(e.thread_id) AS events, t.last_seq, coalesce(max(e.sequence_num), 0) AS last_stored
FROM threads AS t LEFT JOIN events AS e ON e.thread_id = t.id WHERE t.id = $1 GROUP BY t.last_seq
