-- The statements of what is given to the memory from outside.

-- name: unknown_events
-- app, user, session id, event ids: those that neither the session nor the memory's thread of it holds
SELECT g.id FROM unnest($4::text[]) AS g (id)
WHERE NOT EXISTS (
    SELECT FROM threads AS t JOIN events AS e ON e.thread_id = t.id AND e.id = g.id
    WHERE t.app_name = $1 AND t.user_id = $2
      AND (t.session_id = $3 AND NOT t.memory_only OR t.session_id = ANY (memory_thread_names($3)) AND t.memory_only))

-- name: memory_thread
-- app, user, session id
SELECT memory_thread($1, $2, $3) AS session_id

-- name: consolidate_session
-- app, user, session id: how many jobs will consolidate it, and what the memory was given of it
SELECT count(*) FROM threads AS t CROSS JOIN LATERAL consolidate_session($1, $2, t.session_id) AS j
WHERE t.app_name = $1 AND t.user_id = $2
  AND (t.session_id = $3 AND NOT t.memory_only OR t.session_id = ANY (memory_thread_names($3)) AND t.memory_only)

-- name: give_memories
-- app, user, memories
SELECT give_memories($1, $2, $3::given_memory[])

-- name: sources
-- app, user, ids of messages, names of threads: who said the messages, in which event; and which session the threads hold
-- turns of that are the memory's
SELECT m.id, NULL AS thread, m.author, m.event_id, NULL AS session_id FROM messages AS m WHERE m.id = ANY ($3::uuid[])
UNION ALL
SELECT NULL, t.session_id, NULL, NULL, remembered_session(t) FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = ANY ($4::text[]) AND t.memory_only

-- name: erase_turn
-- app, user, message; null where there is none
SELECT (erase_turn($1, $2, $3)).id
