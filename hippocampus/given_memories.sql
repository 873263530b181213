-- The statements of what is given to the memory from outside.

-- name: unknown_events
-- app, user, session ids, event ids: those that none of the sessions holds
SELECT g.id FROM unnest($4::text[]) AS g (id)
WHERE NOT EXISTS (
    SELECT FROM threads AS t JOIN events AS e ON e.thread_id = t.id AND e.id = g.id
    WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = ANY ($3))

-- name: memory_thread
-- app, user, session id
SELECT memory_thread($1, $2, $3)

-- name: consolidate_sessions
-- app, user, session ids
SELECT count(*) FROM unnest($3::text[]) AS s (session_id)
CROSS JOIN LATERAL consolidate_session($1, $2, s.session_id) AS j

-- name: give_memories
-- app, user, memories
SELECT give_memories($1, $2, $3::given_memory[])

-- name: speakers
-- ids of messages: who said them, in which event
SELECT id, author, event_id FROM messages WHERE id = ANY ($1::uuid[])

-- name: erase_turn
-- app, user, message; null where there is none
SELECT (erase_turn($1, $2, $3)).id
