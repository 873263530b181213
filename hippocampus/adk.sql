-- What a search of Google ADK's memory service leaves out.

-- name: running_session
-- app, user, the query with single blanks, its length, at which it was cut: the session whose newest turn of the user is
-- the query, or begins with it as a part of its own; of several, the one that was written last. What the memory was given
-- of sessions kept elsewhere does not count.
SELECT t.session_id
FROM (SELECT * FROM threads AS each
      WHERE each.app_name = $1 AND each.user_id = $2 AND each.session_id <> '' AND NOT each.memory_only
      ORDER BY each.last_event_at DESC NULLS LAST LIMIT 20) AS t
CROSS JOIN LATERAL (
    SELECT btrim(regexp_replace(regexp_replace(left(m.content, 4 * $4::integer + 100), '\s*\n\s*', E'\n', 'g'),
                                '(?!\n)\s+', ' ', 'g'), E' \n') AS content
    FROM messages AS m WHERE m.thread_id = t.id AND m.role = 'user'
    ORDER BY m.sequence_num DESC LIMIT 1) AS newest
WHERE translate(left(newest.content, $4), E'\n', ' ') = $3
  AND ($4 = $5 OR substr(newest.content, $4 + 1, 1) IN ('', E'\n'))
ORDER BY t.last_event_at DESC LIMIT 1

-- name: rewinds
-- app, user, names of sessions: their rewinds, the last first, with the first event that each took back, or null
SELECT t.session_id, r.sequence_num,
       (SELECT min(e.sequence_num) FROM events AS e WHERE e.thread_id = t.id AND e.invocation_id = r.invocation) AS first_seq
FROM threads AS t
CROSS JOIN LATERAL (
    SELECT e.sequence_num, substring(e.actions::text FROM '"rewindBeforeInvocationId": *"([^"\\]+)"') AS invocation
    FROM events AS e
    WHERE e.thread_id = t.id AND e.event_type NOT IN ('user_message', 'assistant_message')
      AND e.actions::text LIKE '%"rewindBeforeInvocationId"%') AS r
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = ANY ($3::text[]) AND NOT t.memory_only
ORDER BY t.session_id, r.sequence_num DESC
