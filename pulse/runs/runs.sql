-- Every statement of runs.

-- name: start_run
-- app, user, session id, run id, holder, seconds of lease, first events, whether to refuse while another run is active,
-- the session's expected version or null; the notifier wakes the listeners afterwards
-- redacts: $7 of app $1; as $10
SELECT run, created, stored FROM start_run($1, $2, $3, $4, $5, $6, $7::event_input[], false, $8, $9, $10)

-- name: write_run
-- app, run id, holder, seconds of lease, events, calls of tools and their results among them
-- redacts: $5 of app $1; as $7
SELECT run, stored FROM write_run($1, $2, $3, $4, $5::event_input[], $6, false, $7)

-- name: end_run
-- app, run id, holder, status, last events, error or null, its code or null
-- redacts: $5, $6 of app $1; as $8
SELECT run, stored FROM end_run($1, $2, $3, $4, $5::event_input[], $6, $7, false, $8)

-- name: start_run_traced
-- as start_run; then the context of a span, which the jobs carry
-- redacts: $7 of app $1; as $11
SELECT run, created, stored
FROM start_run(with_traceparent($10, $1), $2, $3, $4, $5, $6, $7::event_input[], false, $8, $9, $11)

-- name: write_run_traced
-- as write_run; then as above
-- redacts: $5 of app $1; as $8
SELECT run, stored FROM write_run(with_traceparent($7, $1), $2, $3, $4, $5::event_input[], $6, false, $8)

-- name: end_run_traced
-- as end_run; then as above
-- redacts: $5, $6 of app $1; as $9
SELECT run, stored FROM end_run(with_traceparent($8, $1), $2, $3, $4, $5::event_input[], $6, $7, false, $9)

-- name: get_run
-- app, user, run id
SELECT r AS run, t.session_id FROM runs AS r JOIN threads AS t ON t.id = r.thread_id
WHERE r.app_name = $1 AND t.user_id = $2 AND r.run_id = $3 AND is_open(t)

-- name: list_runs
-- app, user, session id, before this one of ours or null, limit
SELECT r AS run, t.session_id FROM threads AS t JOIN runs AS r ON r.thread_id = t.id
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t) AND ($4::uuid IS NULL OR r.id < $4)
ORDER BY r.id DESC
LIMIT $5

-- name: request_cancel
-- app, user, run id
SELECT r AS run, t.session_id
FROM request_cancel($1, $2, $3) AS r JOIN threads AS t ON t.id = r.thread_id

-- name: renew_runs
-- holder, runs, seconds of lease
SELECT id, status, cancel_requested FROM renew_runs($1, $2, $3)

-- name: reap_runs
-- how many at most
SELECT reap_runs($1)

-- name: run_is_taken
-- app, run id
SELECT EXISTS (SELECT FROM runs WHERE app_name = $1 AND run_id = $2)

-- name: live_run
-- thread
SELECT run_id, cancel_requested_at IS NOT NULL AS is_cancelled
FROM runs WHERE thread_id = $1 AND status = 'running' AND lease_until >= engine_now() ORDER BY id LIMIT 1

-- name: last_event_of_run
-- thread; of the run that began last
SELECT e.content::text AS content FROM runs AS r
JOIN events AS e ON e.thread_id = r.thread_id AND e.sequence_num = r.last_seq
WHERE r.thread_id = $1 AND r.status = 'completed'
  AND r.first_seq = (SELECT max(o.first_seq) FROM runs AS o WHERE o.thread_id = $1)

-- name: client_position
-- thread, ids of a client's messages; those that are stored, the newest of them, up to where the client has the session
-- (in a session without messages: to its end), up to where it certainly has it, and what it lacks
WITH known AS MATERIALIZED (
    SELECT e.id, e.sequence_num, e.run_id, e.is_user
    FROM unnest($2::text[]) AS g (id)
    CROSS JOIN LATERAL (SELECT o.id, o.sequence_num, o.invocation_id AS run_id, o.author = 'user' AS is_user
                        FROM events AS o WHERE o.thread_id = $1 AND o.id = g.id AND o.id <> '' LIMIT 1) AS e
), newest AS (
    (SELECT * FROM known ORDER BY sequence_num DESC LIMIT 1)
    UNION
    -- A message of the user without a run may have been appended by a client that had received nothing before it.
    (SELECT * FROM known WHERE NOT is_user OR run_id <> '' ORDER BY sequence_num DESC LIMIT 1)
), positions AS (
    -- A client that lacks a later message of the run left it: it has the run up to its own newest message.
    SELECT n.sequence_num, n.is_user, n.run_id, r.status,
           CASE WHEN r.id IS NULL OR EXISTS (
                    SELECT FROM events AS o LEFT JOIN messages AS m USING (thread_id, sequence_num)
                    WHERE o.thread_id = $1 AND o.sequence_num > n.sequence_num AND o.sequence_num <= r.last_seq
                      AND o.invocation_id = n.run_id AND o.id <> '' AND o.erased_at IS NULL
                      AND (m.id IS NOT NULL OR o.event_type = 'observe')
                      -- Clients have it under this id. As text: `json` may hold escapes that cannot be read.
                      AND (strpos(o.content::text, '"message_id"') = 0
                           OR strpos(o.content::text, to_json(o.id)::text) > 0))
                THEN n.sequence_num ELSE r.last_seq END AS until
    FROM newest AS n
    LEFT JOIN runs AS r ON r.thread_id = $1 AND r.run_id = n.run_id AND r.status <> 'running'
)
SELECT t.last_seq, t.state_seq, k.sequence_num AS sequence, coalesce((SELECT array_agg(id) FROM known), '{}') AS known,
       CASE WHEN k.sequence_num IS NULL AND NOT EXISTS (SELECT FROM messages AS m WHERE m.thread_id = t.id)
            THEN t.last_seq ELSE (SELECT max(until) FROM positions) END AS until,
       CASE WHEN NOT k.is_user THEN k.until WHEN k.run_id <> '' THEN k.sequence_num
            ELSE coalesce((SELECT until FROM positions ORDER BY sequence_num DESC OFFSET 1), 0) END AS certain,
       (SELECT count(*) FROM messages AS m
        WHERE m.thread_id = t.id AND m.sequence_num > k.sequence_num AND m.role = 'user') AS later_turns,
       k.status IS NOT DISTINCT FROM 'completed' AND EXISTS (
           SELECT FROM messages AS m
           WHERE m.thread_id = t.id AND m.sequence_num > k.sequence_num AND m.role = 'assistant') AS is_answered
FROM threads AS t
LEFT JOIN LATERAL (SELECT * FROM positions ORDER BY sequence_num DESC LIMIT 1) AS k ON true
WHERE t.id = $1 AND is_open(t)

-- name: differing_messages
-- thread, ids of a client's messages, MD5 of their texts and identities of their images and files (null: not compared),
-- bytes of the newest messages whose files and results are compared, after this one of the session's events, at most this
-- many; what is stored of those that differ
SELECT c.id, c.sequence_num, c.event_type::text, coalesce(m.content, '') AS content,
       coalesce(m.role::text, 'user') AS role, p.outline::text AS outline,
       CASE WHEN c.event_type = 'observe' AND c.digest IS NOT NULL THEN c.content::text END AS result
FROM (SELECT g.id, g.digest, g.media, e.sequence_num, e.event_type, e.content,
             sum(octet_length(e.content::text))
                 FILTER (WHERE g.media IS NOT NULL OR e.event_type = 'observe' AND g.digest IS NOT NULL)
                 OVER (ORDER BY e.sequence_num DESC) AS bytes
      FROM unnest($2::text[], $3::text[], $4::text[]) AS g (id, digest, media)
      CROSS JOIN LATERAL (SELECT o.sequence_num, o.event_type, o.content FROM events AS o
                          WHERE o.thread_id = $1 AND o.id = g.id AND o.id <> '' AND o.erased_at IS NULL LIMIT 1) AS e
      WHERE e.event_type IN ('user_message', 'assistant_message', 'message', 'observe')) AS c
LEFT JOIN messages AS m ON m.thread_id = $1 AND m.sequence_num = c.sequence_num
-- OFFSET 0: each content is read once, however often the outline is used.
CROSS JOIN LATERAL (
    SELECT CASE WHEN c.media IS NULL OR c.bytes > $5 THEN NULL
                WHEN c.event_type = 'observe' THEN media_outline(c.content, 'observation')
                WHEN strpos(c.content::text, '"parts"') > 0 THEN media_outline(c.content, 'parts')
                ELSE '{"media": "", "parts": []}' END AS outline
    OFFSET 0) AS p
WHERE c.sequence_num > $6
  AND CASE WHEN c.event_type = 'observe' AND c.digest IS NOT NULL
           THEN c.bytes <= $5 AND md5(shown_result(c.content)) IS DISTINCT FROM c.digest
           ELSE md5(coalesce(m.content, '')) <> c.digest OR p.outline ->> 'media' <> c.media END
ORDER BY c.sequence_num
LIMIT $7

-- name: differing_calls
-- thread, ids of a client's messages and of the calls of tools in them, MD5 of the calls' arguments, how many calls each
-- message has, bytes of the newest calls that are compared; what is stored of those that differ
WITH sent AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::integer[]) AS g (id, call_id, digest, calls)
), stored AS MATERIALIZED (
    -- The calls of a message are stored together, after its text. Each event is read once, however many calls are sent.
    SELECT g.id, shown_call_id(a.content, a.id) AS call_id, a.sequence_num, a.content
    FROM (SELECT s.id, max(s.calls) AS calls FROM sent AS s GROUP BY s.id) AS g
    CROSS JOIN LATERAL (SELECT o.sequence_num FROM events AS o
                        WHERE o.thread_id = $1 AND o.id = g.id AND o.id <> '' LIMIT 1) AS m
    CROSS JOIN LATERAL (SELECT o.sequence_num, o.id, o.content FROM events AS o
                        WHERE o.thread_id = $1 AND o.event_type = 'act' AND o.erased_at IS NULL
                          AND o.sequence_num BETWEEN m.sequence_num AND m.sequence_num + g.calls) AS a
)
SELECT c.id, c.call_id, c.content::text
FROM (SELECT g.id, g.call_id, g.digest, f.sequence_num, f.content,
             sum(octet_length(f.content::text)) OVER (ORDER BY f.sequence_num DESC) AS bytes
      FROM sent AS g
      JOIN (SELECT DISTINCT ON (s.id, s.call_id) s.* FROM stored AS s ORDER BY s.id, s.call_id, s.sequence_num) AS f
          ON f.id = g.id AND f.call_id = g.call_id) AS c
WHERE c.bytes <= $6 AND md5(shown_arguments(c.content)) IS DISTINCT FROM c.digest
ORDER BY c.sequence_num

-- name: history
-- thread, types, at most this many, the newest first
SELECT e.id, e.sequence_num, e.author, e.event_type, e.invocation_id, e.content::text, e.actions::text,
       e.occurred_at, e.created_at
FROM events AS e WHERE e.thread_id = $1 AND e.event_type = ANY ($2::text[]) ORDER BY e.sequence_num DESC LIMIT $3

-- name: ending
-- thread, run; its last answer and its end
SELECT DISTINCT ON (e.event_type) e.id, e.sequence_num, e.author, e.event_type, e.invocation_id, e.content::text,
       e.actions::text, e.occurred_at, e.created_at
FROM runs AS r JOIN events AS e ON e.thread_id = r.thread_id AND e.sequence_num BETWEEN r.first_seq AND r.last_seq
WHERE r.thread_id = $1 AND r.run_id = $2 AND e.invocation_id = $2
  AND e.event_type IN ('assistant_message', 'complete')
ORDER BY e.event_type, e.sequence_num DESC
