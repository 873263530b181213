-- The statements of what is given to the memory from outside.

-- name: unknown_events
-- app, user, session id, event ids, their times: those that neither the session nor the memory's thread of it holds, and
-- that the user had not forgotten when they were given as another session's
WITH places AS MATERIALIZED (
    SELECT t.id FROM threads AS t
    WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = ANY ($3::text || memory_thread_names($3))
      AND t.memory_only = (t.session_id <> $3)
), forgotten AS MATERIALIZED (
    SELECT e.id, e.occurred_at FROM erasures AS x
    JOIN events AS e ON e.thread_id = x.thread_id AND e.sequence_num = ANY (x.sequence_nums)
    WHERE x.app_name = $1 AND x.user_id = $2 AND x.scope IN ('turn', 'events')
)
SELECT g.id FROM unnest($4::text[], $5::timestamptz[]) AS g (id, occurred_at)
-- Lateral, with its limit: whole threads are not read for it.
WHERE NOT EXISTS (SELECT FROM places AS p, LATERAL (
          SELECT FROM events AS e WHERE e.thread_id = p.id AND e.id = g.id AND e.id <> '' LIMIT 1) AS known)
  AND (g.id, coalesce(g.occurred_at, 'infinity')) NOT IN (SELECT id, occurred_at FROM forgotten)

-- name: memory_thread
-- app, user, session id
SELECT memory_thread($1, $2, $3) AS session_id

-- name: consolidate_session
-- app, user, session id: how many jobs will consolidate it, and what the memory was given of it
SELECT count(*) FROM threads AS t CROSS JOIN LATERAL consolidate_session($1, $2, t.session_id) AS j
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = ANY ($3::text || memory_thread_names($3))
  AND t.memory_only = (t.session_id <> $3)

-- name: give_memories
-- app, user, memories
-- redacts: $3 of app $1
SELECT give_memories($1, $2, $3::given_memory[])

-- name: sources
-- app, user, ids of messages, names of threads: who said the messages, in which event; and which session the threads hold
-- turns of that are the memory's
SELECT m.id, NULL AS thread, m.author, m.event_id, NULL AS session_id FROM messages AS m
WHERE m.app_name = $1 AND m.user_id = $2 AND m.id = ANY ($3::uuid[])
UNION ALL
SELECT NULL, t.session_id, NULL, NULL, remembered_session(t) FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = ANY ($4::text[]) AND t.memory_only

-- name: turns_of_event
-- app, user, message: all messages of this user that come from the same event, which was given as several sessions' own;
-- this one last, none where there is no such
SELECT twin.id
FROM messages AS m
JOIN threads AS t ON t.app_name = $1 AND t.user_id = $2 AND t.session_id <> ''
JOIN events AS e ON e.thread_id = t.id AND e.id = m.event_id AND e.id <> ''
JOIN messages AS twin ON twin.thread_id = e.thread_id AND twin.sequence_num = e.sequence_num
WHERE m.id = $3 AND m.app_name = $1 AND m.user_id = $2
  AND twin.occurred_at = m.occurred_at AND twin.content = m.content
ORDER BY twin.id = m.id, twin.id

-- name: erase_turn
-- audited
-- app, user, message; null where there is none
SELECT (erase_turn($1, $2, $3)).id
