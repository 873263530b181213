-- Every statement of the session service.

-- name: create_session
-- app, user, session id, session state, user delta or null, app delta or null, metadata
-- redacts: $4, $5, $6, $7 of app $1; as $8
SELECT thread_id, version, user_state, app_state, created_at, user_version, app_version
FROM create_session($1, $2, $3, $4, $5, $6, $7, p_redaction => $8)

-- name: get_session
-- app, user, session id, after this sequence number, at most this many newest events (null: all), keys of the session's,
-- the user's and the app's state (null: all)
SELECT t.id AS thread_id, t.session_id, pick_keys(t.state, $6) AS state, t.version, t.metadata, t.created_at,
       t.updated_at, t.finalized_at, coalesce(pick_keys(u.state, $7), '{}') AS user_state,
       coalesce(pick_keys(a.state, $8), '{}') AS app_state,
       coalesce(u.version, 0) AS user_version, coalesce(a.version, 0) AS app_version,
       (SELECT array_agg(ROW(e.id, e.sequence_num, e.author, e.event_type::text, e.invocation_id, e.content::text,
                             e.actions::text, e.occurred_at, e.created_at) ORDER BY e.sequence_num)
        FROM (SELECT * FROM events WHERE thread_id = t.id AND sequence_num > $4
              ORDER BY sequence_num DESC LIMIT $5) AS e) AS events
FROM threads AS t
LEFT JOIN user_states AS u ON u.app_name = t.app_name AND u.user_id = t.user_id
LEFT JOIN app_states AS a ON a.app_name = t.app_name
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)

-- name: list_sessions
-- app, user, before this thread (null: from the newest), limit
SELECT t.id AS thread_id, t.session_id, t.state, t.version, t.metadata, t.created_at, t.updated_at, t.finalized_at,
       coalesce(u.state, '{}') AS user_state, coalesce(a.state, '{}') AS app_state,
       coalesce(u.version, 0) AS user_version, coalesce(a.version, 0) AS app_version, NULL AS events
FROM threads AS t
LEFT JOIN user_states AS u ON u.app_name = t.app_name AND u.user_id = t.user_id
LEFT JOIN app_states AS a ON a.app_name = t.app_name
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id <> '' AND is_open(t)
      AND ($3::uuid IS NULL OR t.id < $3)
ORDER BY t.id DESC
LIMIT $4

-- name: list_events
-- app, user, session id, after this sequence number, at most this many; no row where there is no such session
SELECT (SELECT array_agg(ROW(e.id, e.sequence_num, e.author, e.event_type::text, e.invocation_id, e.content::text,
                             e.actions::text, e.occurred_at, e.created_at) ORDER BY e.sequence_num)
        FROM (SELECT * FROM events WHERE thread_id = t.id AND sequence_num > $4
              ORDER BY sequence_num LIMIT $5) AS e) AS events
FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)

-- name: append_events
-- app, user, session id, expected version or null, events, expected versions of the user's and the app's state or null;
-- the notifier wakes the listeners afterwards
-- redacts: $5 of app $1; as $8
SELECT event_id, sequence_num, occurred_at, created_at, appended, thread_id, version, last_seq, user_version, app_version
FROM append_events($1, $2, $3, $4, $5::event_input[], false, $6, $7, p_redaction => $8)

-- name: append_next_event
-- app, user, session id, its version, the event; the notifier wakes the listeners afterwards
-- redacts: $5 of app $1; as $6
SELECT sequence_num, occurred_at, created_at, appended, thread_id, version, last_seq, user_version, app_version
FROM append_next_event($1, $2, $3, $4, $5::event_input, false, p_redaction => $6)

-- name: append_events_traced
-- as append_events; then the context of a span, which the jobs carry
-- redacts: $5 of app $1; as $9
SELECT event_id, sequence_num, occurred_at, created_at, appended, thread_id, version, last_seq, user_version, app_version
FROM append_events(with_traceparent($8, $1), $2, $3, $4, $5::event_input[], false, $6, $7, p_redaction => $9)

-- name: append_next_event_traced
-- as append_next_event; then as above
-- redacts: $5 of app $1; as $7
SELECT sequence_num, occurred_at, created_at, appended, thread_id, version, last_seq, user_version, app_version
FROM append_next_event(with_traceparent($6, $1), $2, $3, $4, $5::event_input, false, p_redaction => $7)

-- name: finalize_session
-- app, user, session id
SELECT job_id, job_type FROM finalize_session($1, $2, $3)

-- name: delete_session
-- app, user, session id
SELECT delete_session($1, $2, $3)

-- name: finalize_session_at
-- app, user, session id, version at which it must be
SELECT f.job_id, f.job_type
FROM lock_session_at($1, $2, $3, $4) AS locked CROSS JOIN LATERAL finalize_session($1, $2, locked) AS f

-- name: delete_session_at
-- app, user, session id, version at which it must be
SELECT delete_session($1, $2, locked) FROM lock_session_at($1, $2, $3, $4) AS locked
