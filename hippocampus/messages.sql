-- What of a conversation a session holds.

-- name: read_conversation
-- app, user, session id, the ids that messages were given, the types of messages, at most this many of the newest
-- messages, those with a given id aside; no row where there is no such session
SELECT t.version, t.last_seq,
       (SELECT array_agg(ROW(e.id, e.sequence_num, e.author, e.event_type::text, e.invocation_id, e.content::text,
                             e.actions::text, e.occurred_at, e.created_at) ORDER BY e.sequence_num)
        -- OFFSET 0: the rows come from the index, newest first, and are filtered until there are enough.
        FROM (SELECT *
              FROM (SELECT * FROM events WHERE thread_id = t.id ORDER BY sequence_num DESC OFFSET 0) AS ordered
              WHERE id <> ALL ($4::text[])
                    AND (event_type = ANY ($5::text[]) OR (erased_at IS NOT NULL AND starts_with(id, 'message-')))
              ORDER BY sequence_num DESC LIMIT $6) AS e) AS newest,
       (SELECT array_agg(ROW(e.id, e.sequence_num, e.author, e.event_type::text, e.invocation_id, e.content::text,
                             e.actions::text, e.occurred_at, e.created_at))
        FROM unnest($4::text[]) AS given (id), LATERAL (
            SELECT * FROM events
            WHERE events.thread_id = t.id AND events.id = given.id AND events.id <> '' LIMIT 1) AS e) AS identified
FROM threads AS t
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t)
