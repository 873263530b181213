-- Conversations of pydantic-ai: a session each, whose state holds the record.

-- name: records
-- app, user, scope as JSON or null, at most this many (null: all); last saved first
SELECT t.state -> 'pydantic_ai' AS record, t.state -> 'pydantic_ai:waiting' AS waiting
FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND is_open(t) AND t.state ? 'pydantic_ai'
      AND ($3::jsonb IS NULL OR t.state -> 'pydantic_ai' -> 'scope' = $3::jsonb)
ORDER BY (t.state -> 'pydantic_ai' ->> 'updated_at')::timestamptz DESC
LIMIT $4

-- name: line
-- app, user, session id (null: whichever has the entry), entry, types of the events, before this sequence number (null:
-- up to the entry), at most this many (null: all); the newest first
WITH found AS MATERIALIZED (
    SELECT t.id, t.session_id, e.sequence_num
    FROM threads AS t
    CROSS JOIN LATERAL (SELECT v.sequence_num FROM events AS v
                        WHERE v.thread_id = t.id AND v.id = $4 AND v.id <> '' LIMIT 1) AS e
    WHERE t.app_name = $1 AND t.user_id = $2 AND ($3::text IS NULL OR t.session_id = $3) AND is_open(t)
    LIMIT 1
)
SELECT f.session_id, e.id, e.sequence_num, e.event_type::text, e.content::text, e.actions::text
FROM found AS f
CROSS JOIN LATERAL (
    SELECT * FROM events AS v
    WHERE v.thread_id = f.id AND v.event_type = ANY ($5::text[])
          AND v.sequence_num <= coalesce($6::bigint - 1, f.sequence_num)
    ORDER BY v.sequence_num DESC LIMIT $7) AS e
ORDER BY e.sequence_num DESC

-- name: erase_conversation
-- app, user, session id, version at which it must be
SELECT (erase_session($1, $2, locked)).id FROM lock_session_at($1, $2, $3, $4) AS locked
