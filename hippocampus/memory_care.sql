-- The statements of looking after memories: pins, the archive, explanations, comparisons, where things come from.

-- name: pin_memory
-- app, user, memory, pinned
SELECT pin_memory($1, $2, $3, $4)

-- name: restore_memories
-- app, user, ids or null, limit
SELECT r AS id FROM restore_memories($1, $2, $3, $4) AS r

-- name: list_archive
-- app, user, after this id, limit
SELECT a.id, a.memory_type, a.content, a.score, a.archive_reason, a.archived_at, a.occurred_at, a.created_at,
       a.archived_at + make_interval(secs => 86400 * p.archive_days) AS purged_after
FROM app_policy($1) AS p, memories_archive AS a
WHERE a.app_name = $1 AND a.user_id = $2 AND a.id > $3 ORDER BY a.id LIMIT $4

-- name: purge_archive
-- app or null, limit
SELECT purge_archive($1, $2)

-- name: retention_inputs
-- app, user, memory: all that its score depends on, and the score now by the database's own function
SELECT m.id, m.memory_type, m.content, m.initial_score, m.access_count, m.last_accessed_at, m.created_at, m.pinned,
       p.retention_curve AS curve, p.decay_rate, p.cleanup_threshold AS threshold, p.min_age_days,
       p.app_name AS policy, n AS now, retention_score(m, p, n) AS score
FROM app_policy($1) AS p, engine_now() AS n, memories AS m
WHERE m.app_name = $1 AND m.user_id = $2 AND m.id = $3

-- name: score_at
-- app, memory, moments: its score at each, if nobody uses it
SELECT retention_score(m, p, w.at) FROM app_policy($1) AS p, memories AS m,
       unnest($3::timestamptz[]) WITH ORDINALITY AS w (at, place)
WHERE m.id = $2 ORDER BY w.place

-- name: policy_of
-- app, fields in place of its policy's own (jsonb)
SELECT q.* FROM app_policy($1) AS p CROSS JOIN LATERAL jsonb_populate_record(p, $2) AS q WHERE p.app_name IS NOT NULL

-- name: compare_policies
-- app, user or null, fields of the one policy, fields of the other, days from now
SELECT c.* FROM app_policy($1) AS p
CROSS JOIN LATERAL compare_policies($1, $2, jsonb_populate_record(p, $3), jsonb_populate_record(p, $4), $5) AS c

-- name: differing_verdicts
-- as compare_policies, then limit and the id to begin after: memories that the two treat differently
SELECT v.* FROM app_policy($1) AS p
CROSS JOIN LATERAL policy_verdicts($1, $2, jsonb_populate_record(p, $3), jsonb_populate_record(p, $4), $5) AS v
WHERE v.one <> v.other AND v.id > $7 ORDER BY v.id LIMIT $6

-- name: origin_of
-- app, user, id of a memory or a fact: where it comes from; of a fact every version
SELECT d.source, d.id, d.row_id, d.kind, d.content, d.from_seq, d.upto_seq, d.source_seqs, d.job_id, d.prompt_hash,
       d.model, d.recorded_at, coalesce(d.thread_id, o.thread_id) AS thread_id,
       coalesce(t.session_id, o.session_id) AS session_id
FROM drawn AS d
LEFT JOIN threads AS t ON t.id = d.thread_id
LEFT JOIN imported_origins AS o ON o.row_id = d.row_id
WHERE d.app_name = $1 AND d.user_id = $2 AND d.id = $3
ORDER BY d.source, d.recorded_at DESC, d.row_id

-- name: source_events
-- threads, first and last numbers, cited numbers (JSON arrays as text), pairwise; events of each row at most
-- The events that each row cites; where it cites none, those of its slice.
SELECT w.place - 1 AS place, e.*
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) WITH ORDINALITY
     AS w (thread_id, from_seq, upto_seq, cites, place)
CROSS JOIN LATERAL (SELECT w.cites::jsonb) AS c (cited)
CROSS JOIN LATERAL (
    SELECT e.id, e.sequence_num, e.event_type, e.author, m.content AS text, e.occurred_at, e.erased_at
    FROM events AS e LEFT JOIN messages AS m ON m.thread_id = e.thread_id AND m.sequence_num = e.sequence_num
    WHERE e.thread_id = w.thread_id
      AND CASE WHEN jsonb_array_length(c.cited) > 0
               THEN e.sequence_num IN (SELECT value::bigint FROM jsonb_array_elements_text(c.cited))
               ELSE e.sequence_num BETWEEN w.from_seq AND w.upto_seq END
    ORDER BY e.sequence_num LIMIT $5) AS e
ORDER BY w.place, e.sequence_num

-- name: find_event
-- app, user, session id, number or null, event id or null
SELECT t.id AS thread_id, e.id, e.sequence_num, e.event_type, e.author, m.content AS text, e.occurred_at, e.erased_at
FROM threads AS t
JOIN events AS e ON e.thread_id = t.id AND (e.sequence_num = $4 OR e.id = $5)
LEFT JOIN messages AS m ON m.thread_id = e.thread_id AND m.sequence_num = e.sequence_num
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3

-- name: drawn_from
-- app, user, thread, number, limit: everything that cites the event, or was drawn from a slice that holds it
SELECT d.source, d.id, d.row_id, d.kind, d.content, d.from_seq, d.upto_seq, d.source_seqs, d.job_id, d.prompt_hash,
       d.model, d.recorded_at, d.thread_id, t.session_id, $4 = ANY (d.source_seqs) AS cites
FROM drawn AS d JOIN threads AS t ON t.id = d.thread_id
WHERE d.app_name = $1 AND d.user_id = $2 AND d.thread_id = $3
  AND ($4 = ANY (d.source_seqs) OR $4 BETWEEN d.from_seq AND d.upto_seq)
ORDER BY cites DESC, d.source, d.recorded_at, d.row_id LIMIT $5

-- name: export_kinds
-- The kinds of lines, in their order.
SELECT export_kind FROM data_catalogue WHERE export_kind IS NOT NULL ORDER BY place

-- name: export_lines
-- app, user, kind, with vectors, after this id, limit
SELECT x.id, x.line FROM export_lines($1, $2, $3, $4, $5, $6) AS x

-- name: begin_import
-- app, user
SELECT begin_import($1, $2)

-- name: import_lines
-- app, user, kind, lines as they are written; returns how many were stored
SELECT import_lines($1, $2, $3, $4::text[]::jsonb[])

-- name: standing_though_forgotten
-- app, user, after this id, at most this many
SELECT id FROM standing_though_forgotten($1, $2, $3, $4) AS x (id)

-- name: forget_as_of_tombstone
-- app, user, id
SELECT forget_as_of_tombstone($1, $2, $3)

-- name: backfill_after_import
SELECT enqueue_embedding_backfill()
