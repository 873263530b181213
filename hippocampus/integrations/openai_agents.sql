-- Items of the OpenAI Agents SDK.

-- name: newest_items
-- app, user, session id, type of the items that are not turns, at most this many (null: all); in sequence
SELECT e.id, e.sequence_num, e.author, e.event_type::text, e.invocation_id, e.content::text, e.actions::text,
       e.occurred_at, e.created_at
FROM threads AS t
CROSS JOIN LATERAL (
    SELECT * FROM events AS v
    WHERE v.thread_id = t.id
          AND (v.event_type = $4 OR (v.event_type IN ('user_message', 'assistant_message')
                                     AND EXISTS (SELECT FROM messages AS m WHERE m.thread_id = v.thread_id
                                                                             AND m.sequence_num = v.sequence_num)))
    ORDER BY v.sequence_num DESC LIMIT $5) AS e
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)
ORDER BY e.sequence_num
