-- Every statement of a state's history.

-- name: changes_since
-- app, user, session id, versions of the session, of the user's state, of the app's; no row: no such session.
-- Each version has at least one event of its own, so none past a version has a number at or below it; but where events
-- were erased, which takes back what they set, and is a version without an event.
SELECT $4 = 0 OR t.erasures > 0 AND t.version > $4 AS is_whole, t.version, t.last_seq, coalesce(u.version, 0) AS user_version, coalesce(a.version, 0) AS app_version,
       CASE WHEN $4 = 0 OR t.erasures > 0 AND t.version > $4 THEN t.state ELSE (
           SELECT fold_deltas(e.session_delta ORDER BY e.sequence_num) FROM events AS e
           WHERE e.thread_id = t.id AND e.sequence_num > $4 AND e.version > $4 AND e.session_delta IS NOT NULL
             AND coalesce(e.session_delta, e.user_delta, e.app_delta) IS NOT NULL) END AS delta,
       CASE WHEN u.version > $5::bigint THEN u.state ELSE '{}' END AS user_state,
       CASE WHEN a.version > $6::bigint THEN a.state ELSE '{}' END AS app_state
FROM threads AS t
LEFT JOIN user_states AS u ON u.app_name = t.app_name AND u.user_id = t.user_id
LEFT JOIN app_states AS a ON a.app_name = t.app_name
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)

-- name: list_changes
-- app, user, session id, before this sequence number (null: from the newest), limit; no row: no such session
SELECT (SELECT array_agg(ROW(e.sequence_num, e.version, e.id, e.event_type::text, e.author, e.invocation_id,
                             e.session_delta, e.user_delta, e.app_delta, e.created_at)
                         ORDER BY e.sequence_num DESC)
        FROM (SELECT * FROM events
              WHERE thread_id = t.id AND ($4::bigint IS NULL OR sequence_num < $4)
                AND coalesce(session_delta, user_delta, app_delta) IS NOT NULL
              ORDER BY sequence_num DESC LIMIT $5) AS e) AS changes
FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)

-- name: restore_state
-- app, user, session id, after this event (null: the newest), from a snapshot; no row: no such session
SELECT r.state, r.sequence_num, r.version, r.snapshot_seq, r.deltas
FROM threads AS t LEFT JOIN LATERAL restore_state(t.id, $4, $5) AS r ON true
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)

-- name: rebuild_shared_states
-- app, user
SELECT user_state, user_is_complete, app_state, app_is_complete FROM rebuild_shared_states($1, $2)

-- name: take_snapshot
-- app, user, session id; no row: no such session
SELECT take_snapshot(t.id) AS taken FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)

-- name: prune_snapshots
-- how long a superseded snapshot stays, how many at most
SELECT prune_snapshots($1, $2)
