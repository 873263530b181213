-- Erasure on request.

-- name: request_user
-- audited
-- app, user
SELECT e.* FROM request_user_erasure($1, $2) AS e

-- name: advance
-- request, rows at most that belong to no session; one step in a transaction of its own
SELECT e.* FROM advance_erasure($1, $2) AS e

-- name: erase_session
-- audited
-- app, user, session id
SELECT e.* FROM erase_session($1, $2, $3) AS e

-- name: erase_events
-- audited
-- app, user, session id, sequence numbers, event ids
SELECT e.* FROM erase_events($1, $2, $3, $4, $5) AS e

-- name: erase_memory
-- audited
-- app, user, id of a memory or a fact
SELECT e.* FROM erase_memory($1, $2, $3) AS e

-- name: get_erasure
-- request, app, user
SELECT e.* FROM erasures AS e WHERE e.id = $1 AND e.app_name = $2 AND e.user_id = $3

-- name: unfinished
-- requests at most; those that another process works on are skipped
SELECT e.id FROM erasures AS e WHERE e.finished_at IS NULL ORDER BY e.id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED

-- name: remaining
-- request: what it still finds, by table
SELECT r.table_name, r.row_count FROM erasures AS e CROSS JOIN LATERAL erasure_rows(e) AS r WHERE e.id = $1

-- name: preview
-- scope, app, user, thread, sequence numbers, memory or fact, rows of each table at most
SELECT r.* FROM (SELECT engine_now() AS now) AS n
CROSS JOIN LATERAL erasure_rows(
    jsonb_populate_record(NULL::erasures, jsonb_build_object(
        'scope', $1::text, 'app_name', $2::text, 'user_id', $3::text, 'thread_id', $4::uuid,
        'sequence_nums', $5::bigint[], 'target_id', $6::uuid, 'requested_at', n.now)), $7) AS r

-- name: find_thread
-- app, user, session id
SELECT id FROM threads WHERE app_name = $1 AND user_id = $2 AND session_id = $3

-- name: event_numbers
-- app, user, session id, sequence numbers, event ids
SELECT event_numbers($1, $2, $3, $4, $5)

-- name: find_target
-- app, user, id of a memory or a fact
SELECT f.scope, f.thread_id FROM find_target($1, $2, $3) AS f
