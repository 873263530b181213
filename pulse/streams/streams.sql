-- Every statement of the live streams: runs and threads that are followed, texts of open messages.

-- name: push_live_text
-- thread, run, message, kind, offset in characters, piece, fields of the event that the message becomes
SELECT push_live_text($1, $2, $3, $4, $5, $6, $7)

-- name: drop_live_texts
-- thread, run, messages
DELETE FROM live_messages WHERE thread_id = $1 AND run_id = $2 AND message_id = ANY ($3::text[])

-- name: live_texts
-- threads and runs that are watched; threads, runs, messages and offsets in characters that are known
SELECT m.thread_id, m.run_id, m.message_id, m.kind, m.after_seq, m.meta, coalesce(k.known, 0) AS known,
       substr(m.body, coalesce(k.known, 0) + 1) AS text
FROM unnest($1::uuid[], $2::text[]) AS w (thread_id, run_id)
JOIN live_messages AS m USING (thread_id, run_id)
LEFT JOIN unnest($3::uuid[], $4::text[], $5::text[], $6::integer[]) AS k (thread_id, run_id, message_id, known)
    USING (thread_id, run_id, message_id)
WHERE k.known IS NULL OR char_length(m.body) > k.known
ORDER BY m.opened_at, m.message_id

-- name: run_events
-- thread, after this sequence number, at most this many and, except the last, at most this many bytes of content
WITH RECURSIVE page AS (
    SELECT e.*, 1 AS rank, octet_length(e.body)::bigint AS bytes
    FROM (SELECT o.*, o.content::text AS body FROM events AS o
          WHERE o.thread_id = $1 AND o.sequence_num > $2 ORDER BY o.sequence_num LIMIT 1) AS e
    UNION ALL
    SELECT e.*, p.rank + 1, p.bytes + octet_length(e.body)
    FROM page AS p CROSS JOIN LATERAL (
        SELECT o.*, o.content::text AS body FROM events AS o
        WHERE o.thread_id = $1 AND o.sequence_num > p.sequence_num ORDER BY o.sequence_num LIMIT 1) AS e
    WHERE p.rank < $3 AND p.bytes < $4)
SELECT e.id, e.sequence_num, e.author, e.event_type, e.invocation_id, e.body, e.actions::text,
       e.occurred_at, e.created_at, e.user_version, e.app_version
FROM page AS e ORDER BY e.rank

-- name: conversation
-- thread, up to this sequence number, types, a run and its first number, at most this many and, but for the newest, so
-- many bytes of content, the newest first, and whether there are older ones; messages of concurrent runs are not
-- part of its stream
SELECT e.id, e.sequence_num, e.author, e.event_type, e.invocation_id, e.body, e.actions::text,
       e.occurred_at, e.created_at, e.rank < e.found AND (e.rank = $6 OR e.bytes_with_next > $7) AS is_cut
FROM (
    SELECT m.*, row_number() OVER newest AS rank, count(*) OVER () AS found,
           sum(octet_length(m.body)) OVER newest AS bytes,
           sum(octet_length(m.body)) OVER (newest ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS bytes_with_next
    FROM (SELECT o.*, o.content::text AS body FROM events AS o
          WHERE o.thread_id = $1 AND o.sequence_num <= $2 AND o.event_type = ANY ($3::text[])
            AND (o.sequence_num < $5 OR o.invocation_id = $4)
          ORDER BY o.sequence_num DESC LIMIT $6 + 1) AS m
    WINDOW newest AS (ORDER BY m.sequence_num DESC)) AS e
WHERE e.rank <= $6 AND (e.bytes <= $7 OR e.rank = 1)
ORDER BY e.sequence_num DESC

-- name: thread_state
-- thread; its scopes as they are stored, the newest event in them, the last one that changed the session's, and the
-- versions of the shared ones
SELECT t.state, coalesce(u.state, '{}') AS user_state, coalesce(a.state, '{}') AS app_state, t.last_seq, t.state_seq,
       coalesce(u.version, 0) AS user_version, coalesce(a.version, 0) AS app_version
FROM threads AS t
LEFT JOIN user_states AS u ON u.app_name = t.app_name AND u.user_id = t.user_id
LEFT JOIN app_states AS a ON a.app_name = t.app_name
WHERE t.id = $1

-- name: shared_states
-- apps, users, and the versions of the user's and the app's state that are known
SELECT w.app_name, w.user_id, coalesce(u.state, '{}') AS user_state, coalesce(a.state, '{}') AS app_state,
       coalesce(u.version, 0) AS user_version, coalesce(a.version, 0) AS app_version
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS w (app_name, user_id, user_known, app_known)
LEFT JOIN user_states AS u ON u.app_name = w.app_name AND u.user_id = w.user_id
LEFT JOIN app_states AS a ON a.app_name = w.app_name
WHERE coalesce(u.version, 0) > w.user_known OR coalesce(a.version, 0) > w.app_known

-- name: gone_threads
-- threads
SELECT w.id AS thread_id FROM unnest($1::uuid[]) AS w (id)
WHERE NOT EXISTS (SELECT FROM threads AS t WHERE t.id = w.id AND is_open(t))

-- name: current_run
-- thread, whether to begin at the newest run where none runs; the number before the first to be sent
SELECT coalesce((SELECT min(r.first_seq) - 1 FROM runs AS r WHERE r.thread_id = $1 AND r.status = 'running'),
                (SELECT max(r.first_seq) - 1 FROM runs AS r WHERE r.thread_id = $1 AND $2),
                (SELECT t.last_seq FROM threads AS t WHERE t.id = $1), 0)

-- name: last_number
-- thread
SELECT t.last_seq FROM threads AS t WHERE t.id = $1

-- name: next_run
-- thread, began after this number
SELECT r AS run FROM runs AS r WHERE r.thread_id = $1 AND r.first_seq > $2 ORDER BY r.first_seq LIMIT 1

-- name: next_lone_event
-- thread, after this number, before this one or null: the first event of no run
SELECT e.id, e.sequence_num, e.author, e.event_type, e.invocation_id, e.content::text, e.actions::text,
       e.occurred_at, e.created_at, e.user_version, e.app_version
FROM events AS e
WHERE e.thread_id = $1 AND e.sequence_num > $2 AND ($3::bigint IS NULL OR e.sequence_num < $3)
  AND e.erased_at IS NULL
  AND NOT EXISTS (SELECT FROM runs AS r WHERE r.thread_id = e.thread_id AND r.run_id = e.invocation_id)
ORDER BY e.sequence_num LIMIT 1

-- name: notify_test
-- channel, payload
SELECT pg_notify($1, $2)

-- name: send_transient
-- channel, payload
SELECT pg_notify($1, $2)
