-- What the memory service lists: memories, facts and the history of a fact; and whether a session exists.

-- name: list_memories
-- app, user, memory type, session id, since, until (each null: any), limit, and of the last row of the page
-- before (null: from the first): when that page's scores were computed, its score, when it was recorded, its id
SELECT m.id, m.thread_id, m.user_id, m.app_name, m.memory_type, m.content, m.metadata, m.access_count, m.pinned,
       m.from_seq, m.upto_seq, m.created_at, m.occurred_at, retention_score(m, p, n) AS retention_score,
       n AS scored_at
FROM memories AS m
CROSS JOIN app_policy($1) AS p
CROSS JOIN coalesce($8::timestamptz, engine_now()) AS n
LEFT JOIN threads AS t ON t.id = m.thread_id
WHERE m.app_name = $1 AND m.user_id = $2 AND ($3::text IS NULL OR m.memory_type = $3)
  AND ($4::text IS NULL OR t.session_id = $4)
  AND ($5::timestamptz IS NULL OR m.occurred_at >= $5) AND ($6::timestamptz IS NULL OR m.occurred_at < $6)
  AND ($8::timestamptz IS NULL OR (retention_score(m, p, n), m.created_at, m.id) < ($9, $10, $11::uuid))
ORDER BY retention_score DESC, m.created_at DESC, m.id DESC
LIMIT $7

-- name: list_facts
-- app, user, fact type, key (each null: any), true at, known at (null: now), limit, normal form of the key, after this type
-- and this key (null: from the first)
-- A key also finds the facts that it is another spelling of, and the elements of the collection that it names.
SELECT f.id, f.thread_id, $2::text AS user_id, $1::text AS app_name, f.fact_type, f.key, f.value, f.confidence,
       f.source_seqs, f.valid_from, f.valid_until, f.recorded_at
FROM (
    SELECT id, thread_id, fact_type, key, value, confidence, source_seqs, valid_from, valid_until, recorded_at
    FROM facts
    WHERE app_name = $1 AND user_id = $2 AND $5::timestamptz IS NULL AND $6::timestamptz IS NULL
      AND (valid_until IS NULL OR valid_until > engine_now())
    UNION ALL
    SELECT a.*
    FROM (SELECT $5::timestamptz IS NOT NULL OR $6::timestamptz IS NOT NULL AS past) AS asked
    CROSS JOIN LATERAL facts_as_of($1, $2, coalesce($5, engine_now()), coalesce($6, engine_now())) AS a
    WHERE asked.past) AS f
WHERE ($3::text IS NULL OR f.fact_type = $3)
  AND ($4::text IS NULL OR f.key = $4 OR EXISTS (
      SELECT FROM facts AS k
      WHERE k.id = f.id AND (k.collection = $8 OR k.id = known_fact($1, $2, k.fact_type, $4))))
  AND ($9::text IS NULL OR (f.fact_type, f.key) > ($9, $10))
ORDER BY f.fact_type, f.key
LIMIT $7

-- name: fact_history
-- app, user, fact type, key, limit, the last one's rank and times (null: from the first), how many of that position to skip
SELECT h.*, hand.written_by, hand.confirmed_by, hand.confirmed_at, ending.written_by AS superseded_by
FROM fact_history($1, $2, $3, $4) AS h
-- What people wrote of this value while it held: the first statement, and the last of the others.
LEFT JOIN LATERAL (
    SELECT min(v.written_by) FILTER (WHERE v.valid_from = h.valid_from) AS written_by,
           (array_agg(v.written_by ORDER BY v.valid_from DESC) FILTER (WHERE v.valid_from > h.valid_from))[1] AS confirmed_by,
           max(v.valid_from) FILTER (WHERE v.valid_from > h.valid_from) AS confirmed_at
    FROM fact_versions AS v
    WHERE v.fact_id = h.fact_id AND v.written_by IS NOT NULL AND v.value = h.value AND v.retracted_at IS NULL
      AND v.valid_from >= h.valid_from AND (h.valid_until IS NULL OR v.valid_from < h.valid_until)) AS hand
  ON h.outcome NOT IN ('candidate', 'retracted')
LEFT JOIN LATERAL (
    SELECT v.written_by FROM fact_versions AS v
    WHERE v.fact_id = h.fact_id AND v.valid_from = h.valid_until AND v.value IS DISTINCT FROM h.value
      AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL
    ORDER BY v.recorded_at DESC, v.id DESC LIMIT 1) AS ending ON true
CROSS JOIN LATERAL (SELECT CASE h.outcome WHEN 'current' THEN 0 WHEN 'retracted' THEN 2 ELSE 1 END) AS part (rank)
WHERE $6::integer IS NULL OR part.rank > $6
   OR (part.rank = $6 AND (h.valid_from, h.recorded_at) <= ($7::timestamptz, $8::timestamptz))
ORDER BY part.rank, h.valid_from DESC, h.recorded_at DESC, md5(h::text)
OFFSET $9 LIMIT $5

-- name: session_exists
-- app or null, user or null, session
SELECT EXISTS (SELECT FROM threads AS t WHERE ($1::text IS NULL OR app_name = $1) AND ($2::text IS NULL OR user_id = $2)
               AND session_id = $3 AND NOT has_expired(t))
