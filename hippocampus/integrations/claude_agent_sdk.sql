-- Transcripts of the Claude Agent SDK: one session each, with those of its subagents.

-- name: read_known
-- app, user, session id, event ids; no row where there is no such session
SELECT t.version,
       (SELECT jsonb_object_agg(s.key, s.value) FROM jsonb_each(t.state) AS s
        WHERE starts_with(s.key, 'claude_agent_sdk:')) AS summary,
       (SELECT coalesce(array_agg(g.id), '{}') FROM unnest($4::text[]) AS g (id)
        WHERE EXISTS (SELECT FROM events AS e WHERE e.thread_id = t.id AND e.id = g.id AND e.id <> '')) AS known
FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)

-- name: load
-- app, user, session id, subpath ('' for the main transcript), type of the entries that are not turns
SELECT e.actions::text
FROM threads AS t JOIN events AS e ON e.thread_id = t.id
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t) AND e.invocation_id = $4
      AND e.event_type IN ($5, 'user_message', 'assistant_message')
ORDER BY e.sequence_num

-- name: list_sessions
-- app, user, beginning of the session ids, type of the entries that are not turns
SELECT t.session_id, (extract(epoch FROM t.updated_at) * 1000)::bigint AS mtime,
       (SELECT jsonb_object_agg(s.key, s.value) FROM jsonb_each(t.state) AS s
        WHERE starts_with(s.key, 'claude_agent_sdk:')) AS summary
FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND starts_with(t.session_id, $3) AND is_open(t)
      AND EXISTS (SELECT FROM events AS e
                  WHERE e.thread_id = t.id AND e.invocation_id = ''
                        AND e.event_type IN ($4, 'user_message', 'assistant_message'))
ORDER BY t.id

-- name: list_subpaths
-- app, user, session id, type of the entries
SELECT e.invocation_id AS subpath
FROM threads AS t JOIN events AS e ON e.thread_id = t.id
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)
      AND e.invocation_id <> '' AND e.event_type = $4
GROUP BY e.invocation_id
ORDER BY min(e.sequence_num)

-- name: entries_of_subpath
-- app, user, session id, subpath, type of the entries, at most this many
SELECT e.sequence_num
FROM threads AS t JOIN events AS e ON e.thread_id = t.id
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t) AND e.invocation_id = $4
      AND e.event_type = $5
ORDER BY e.sequence_num
LIMIT $6
