-- Where memories, facts and proposals come from, and what was extracted from an event.

-- name: origin_of
-- app, user, id of a memory, a fact, a proposal or a turn: where it comes from; of a fact every version, of a turn itself
SELECT d.source, d.id, d.row_id, d.kind, d.content, d.from_seq, d.upto_seq, d.source_seqs, d.job_id, d.prompt_hash,
       d.model, d.recorded_at, coalesce(d.thread_id, o.thread_id) AS thread_id,
       coalesce(t.session_id, o.session_id) AS session_id
FROM (
    SELECT * FROM drawn WHERE app_name = $1 AND user_id = $2 AND id = $3
    UNION ALL
    SELECT 'turn', id, id, role::text, content, app_name, user_id, thread_id, sequence_num, sequence_num,
           ARRAY[sequence_num], NULL, NULL, NULL, created_at
    FROM messages WHERE app_name = $1 AND user_id = $2 AND id = $3) AS d
LEFT JOIN threads AS t ON t.id = d.thread_id
LEFT JOIN imported_origins AS o ON o.row_id = d.row_id
ORDER BY d.source, d.recorded_at DESC, d.row_id

-- name: source_events
-- app, user; threads, first and last numbers, cited numbers (JSON arrays as text), pairwise; events of each row at most
-- The events that each row cites; where it cites none, those of its slice.
SELECT w.position - 1 AS position, e.*
FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::text[]) WITH ORDINALITY
     AS w (thread_id, from_seq, upto_seq, cites, position)
-- An imported row names its thread itself, and may name another user's.
JOIN threads AS t ON t.id = w.thread_id AND t.app_name = $1 AND t.user_id = $2
CROSS JOIN LATERAL (SELECT w.cites::jsonb) AS c (cited)
CROSS JOIN LATERAL (
    SELECT e.id, e.sequence_num, e.event_type, e.author, m.content AS text, e.occurred_at, e.erased_at
    FROM events AS e LEFT JOIN messages AS m ON m.thread_id = e.thread_id AND m.sequence_num = e.sequence_num
    WHERE e.thread_id = w.thread_id
      AND CASE WHEN jsonb_array_length(c.cited) > 0
               THEN e.sequence_num IN (SELECT value::bigint FROM jsonb_array_elements_text(c.cited))
               ELSE e.sequence_num BETWEEN w.from_seq AND w.upto_seq END
    ORDER BY e.sequence_num LIMIT $7) AS e
ORDER BY w.position, e.sequence_num

-- name: find_event
-- app, user, session id, number or null, event id or null
SELECT t.id AS thread_id, e.id, e.sequence_num, e.event_type, e.author, m.content AS text, e.occurred_at, e.erased_at
FROM threads AS t
JOIN events AS e ON e.thread_id = t.id AND (e.sequence_num = $4 OR e.id = $5)
LEFT JOIN messages AS m ON m.thread_id = e.thread_id AND m.sequence_num = e.sequence_num
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3

-- name: drawn_from
-- app, user, thread, number, limit: everything that cites the event, or was extracted from a slice that holds it
SELECT d.source, d.id, d.row_id, d.kind, d.content, d.from_seq, d.upto_seq, d.source_seqs, d.job_id, d.prompt_hash,
       d.model, d.recorded_at, d.thread_id, t.session_id, $4 = ANY (d.source_seqs) AS cites
FROM drawn AS d JOIN threads AS t ON t.id = d.thread_id
WHERE d.app_name = $1 AND d.user_id = $2 AND d.thread_id = $3
  AND ($4 = ANY (d.source_seqs) OR $4 BETWEEN d.from_seq AND d.upto_seq)
ORDER BY cites DESC, d.source, d.recorded_at, d.row_id LIMIT $5
