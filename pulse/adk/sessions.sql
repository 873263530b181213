-- The statements of the session service for Google ADK, in addition to those of the engine.

-- name: check_tables
-- fails if they are missing
SELECT 'append_seen_event'::regproc

-- name: create_adk_session
-- app, user, session id, session state, user delta or null, app delta or null, metadata or null, time to live or null; an
-- empty state of user or app is null
-- redacts: $4, $5, $6, $7 of app $1; as $9
SELECT thread_id, version, nullif(user_state, '{}')::text AS user_state, nullif(app_state, '{}')::text AS app_state,
       created_at
FROM create_session($1, $2, $3, $4, $5, $6, coalesce($7, '{}'::jsonb), $8, $9)

-- name: append_adk_event
-- app, user, session id, its version, the event, its thread, the event's time in seconds; the notifier wakes the
-- listeners afterwards
-- redacts: $5 of app $1; as $8
SELECT sequence_num, created_at, appended, thread_id, version, last_seq
FROM append_next_event($1, $2, $3, $4, $5::event_input, false, $6, $7, $8)

-- name: append_adk_event_traced
-- as append_adk_event; then the context of a span, which the jobs carry
-- redacts: $5 of app $1; as $9
SELECT sequence_num, created_at, appended, thread_id, version, last_seq
FROM append_next_event(with_traceparent($8, $1), $2, $3, $4, $5::event_input, false, $6, $7, $9)

-- name: append_seen_event_traced
-- as append_seen_event; then as above
-- redacts: $5 of app $1; as $8
SELECT sequence_num, created_at, appended, thread_id, version, last_seq
FROM append_seen_event(with_traceparent($7, $1), $2, $3, $4, $5, $6, $8)

-- name: append_seen_event
-- app, user, session id, ids of the newest events that were read, the event, its time in seconds
-- redacts: $5 of app $1; as $7
SELECT sequence_num, created_at, appended, thread_id, version, last_seq
FROM append_seen_event($1, $2, $3, $4, $5, $6, $7)

-- name: get_adk_session
-- app, user, session id, at most this many events of the newest times and all that share the last one's (0: none), not
-- before this time or null
SELECT t.id AS thread_id, t.version, t.created_at, last_event_time(t) AS event_time,
       t.state::text AS state, u.state::text AS user_state, a.state::text AS app_state,
       CASE WHEN $4::bigint > 0 THEN (
           SELECT json_agg(json_build_array(e.id, e.author, e.invocation_id, extract(epoch FROM e.occurred_at),
                                            e.content, e.actions))::text
           FROM (SELECT * FROM events AS each
                 WHERE each.thread_id = t.id AND each.occurred_at > '-infinity'
                       AND each.occurred_at >= coalesce($5::timestamptz, '-infinity')
                 ORDER BY each.occurred_at DESC FETCH FIRST $4 ROWS WITH TIES) AS e)
       END AS events
FROM threads AS t
LEFT JOIN user_states AS u ON u.app_name = t.app_name AND u.user_id = t.user_id
LEFT JOIN app_states AS a ON a.app_name = t.app_name
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)

-- name: list_adk_sessions
-- app, user (null: all), below this user and thread (null: from the top), at most this many (null: all); a user's state stands
-- in the user's first row alone, the app's in the first of all
SELECT t.id AS thread_id, t.user_id, t.session_id, t.version, t.created_at,
       last_event_time(t) AS event_time, t.state::text AS state,
       CASE WHEN lag(t.user_id) OVER (ORDER BY t.user_id DESC, t.id DESC) IS DISTINCT FROM t.user_id
            THEN u.state::text END AS user_state,
       CASE WHEN lag(t.user_id) OVER (ORDER BY t.user_id DESC, t.id DESC) IS NULL
            THEN (SELECT state::text FROM app_states WHERE app_name = $1) END AS app_state
FROM (SELECT * FROM threads AS each
      WHERE each.app_name = $1 AND each.session_id <> '' AND ($2::text IS NULL OR each.user_id = $2) AND is_open(each)
            AND ($4::uuid IS NULL OR (each.user_id, each.id) < ($3::text, $4))
      ORDER BY each.user_id DESC, each.id DESC LIMIT $5) AS t
LEFT JOIN user_states AS u ON u.app_name = t.app_name AND u.user_id = t.user_id
ORDER BY t.user_id DESC, t.id DESC

-- name: get_user_state
-- app, user
SELECT state::text FROM user_states WHERE app_name = $1 AND user_id = $2
