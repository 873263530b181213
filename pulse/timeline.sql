-- Every statement of timelines.

-- name: list_timeline
-- app, user, session id, after this sequence number, at most this many, event types; no row: no such session
SELECT (SELECT array_agg(ROW(e.id, e.sequence_num, e.author, e.event_type::text, e.invocation_id, e.content::text,
                             e.actions::text, e.occurred_at, e.created_at) ORDER BY e.sequence_num)
        FROM (SELECT * FROM events WHERE thread_id = t.id AND sequence_num > $4 AND event_type = ANY ($6)
              ORDER BY sequence_num LIMIT $5) AS e) AS events
FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)

-- name: list_timeline_before
-- app, user, session id, before this sequence number, at most this many, the newest of them, event types; no row: no
-- such session
SELECT (SELECT array_agg(ROW(e.id, e.sequence_num, e.author, e.event_type::text, e.invocation_id, e.content::text,
                             e.actions::text, e.occurred_at, e.created_at) ORDER BY e.sequence_num)
        FROM (SELECT * FROM events WHERE thread_id = t.id AND sequence_num < $4 AND event_type = ANY ($6)
              ORDER BY sequence_num DESC LIMIT $5) AS e) AS events
FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)
