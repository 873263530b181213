-- Every statement that the memory runs.

-- name: enqueue_consolidation
-- thread, job type
SELECT job_id FROM enqueue_consolidation($1, $2)

-- name: get_job
-- job
SELECT * FROM consolidation_jobs WHERE id = $1

-- name: enqueue_session
-- app, user, session id, job type; no row where there is no such session
SELECT q.job_id
FROM (SELECT id FROM threads AS each
      WHERE app_name = $1 AND user_id = $2 AND session_id = $3 AND NOT has_expired(each)) AS t
CROSS JOIN LATERAL enqueue_consolidation(t.id, $4) AS q

-- name: find_job
-- job, app or null, user or null; also where it is archived, unless a user is asked for: the archive keeps none
SELECT j.id, j.thread_id, j.job_type, j.status, j.attempts, j.result, j.error, j.error_code, j.raw_reply, j.started_at,
       j.completed_at, j.created_at
FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
WHERE j.id = $1 AND ($2::text IS NULL OR t.app_name = $2) AND ($3::text IS NULL OR t.user_id = $3)
UNION ALL
SELECT a.id, a.thread_id, a.job_type, a.status, a.attempts, a.result, a.error, a.error_code, a.raw_reply, a.started_at,
       a.completed_at, a.created_at
FROM consolidation_jobs_archive AS a
WHERE a.id = $1 AND ($2::text IS NULL OR a.app_name = $2) AND $3::text IS NULL
LIMIT 1

-- name: list_jobs
-- app, user, session id, status, job type, error code (each null: any), before this job (null: from the newest), limit
SELECT j.id, j.thread_id, j.job_type, j.status, j.attempts, j.result, j.error, j.error_code, j.raw_reply, j.started_at,
       j.completed_at, j.created_at
FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
WHERE ($1::text IS NULL OR t.app_name = $1) AND ($2::text IS NULL OR t.user_id = $2)
  AND ($3::text IS NULL OR t.session_id = $3) AND ($4::text IS NULL OR j.status = $4)
  AND ($5::text IS NULL OR j.job_type = $5) AND ($6::text IS NULL OR j.error_code = $6)
  AND ($7::uuid IS NULL OR j.id < $7)
ORDER BY j.id DESC
LIMIT $8

-- name: cancel_job
-- job
SELECT cancel_job($1)

-- name: retry_job
-- job
SELECT retry_failed_job($1)

-- name: session_exists
-- app or null, user or null, session
SELECT EXISTS (SELECT FROM threads AS t WHERE ($1::text IS NULL OR app_name = $1) AND ($2::text IS NULL OR user_id = $2)
               AND session_id = $3 AND NOT has_expired(t))

-- name: list_memories
-- app, user, memory type, session id, said since, said until (each null: any), limit, and of the last row of the page
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
-- app, user, fact type, key, limit, the last one's rank and times (null: from the first), how many of that place to pass
SELECT h.*
FROM fact_history($1, $2, $3, $4) AS h
CROSS JOIN LATERAL (SELECT CASE h.outcome WHEN 'current' THEN 0 WHEN 'retracted' THEN 2 ELSE 1 END) AS part (rank)
WHERE $6::integer IS NULL OR part.rank > $6
   OR (part.rank = $6 AND (h.valid_from, h.recorded_at) <= ($7::timestamptz, $8::timestamptz))
ORDER BY part.rank, h.valid_from DESC, h.recorded_at DESC, md5(h::text)
OFFSET $9 LIMIT $5

-- name: list_candidates
-- app, user, fact type (null: any), limit, after this type, key, time and id (null: from the first)
SELECT v.id, v.fact_id, v.fact_type, f.key, v.value, v.confidence, f.value AS held_value,
       f.confidence AS held_confidence, v.valid_from, v.recorded_at, v.thread_id, v.source_seqs
FROM fact_versions AS v JOIN facts AS f ON f.id = v.fact_id
WHERE v.app_name = $1 AND v.user_id = $2 AND v.accepted_at IS NULL AND v.retracted_at IS NULL
  AND ($3::text IS NULL OR v.fact_type = $3)
  AND ($5::text IS NULL OR (v.fact_type, f.key) > ($5, $6)
       OR ((v.fact_type, f.key) = ($5, $6) AND (v.valid_from < $7::timestamptz OR (v.valid_from = $7 AND v.id > $8::uuid))))
ORDER BY v.fact_type, f.key, v.valid_from DESC, v.id
LIMIT $4

-- name: promote_candidate
-- app, user, candidate
SELECT promote_candidate($1, $2, $3)

-- name: list_merges
-- app, user, fact type (null: any), limit, before this time and id (null: from the newest)
SELECT id, fact_id, fact_type, from_key, to_key, method, similarity, embedding_model, job_id, merged_at, undone_at
FROM fact_aliases
WHERE app_name = $1 AND user_id = $2 AND ($3::text IS NULL OR fact_type = $3)
  AND ($5::timestamptz IS NULL OR (merged_at, id) < ($5, $6::uuid))
ORDER BY merged_at DESC, id DESC
LIMIT $4

-- name: undo_merge
-- app, user, merge
SELECT undo_merge($1, $2, $3)

-- name: set_fact_style
-- app, fact type, normal form of a key, style
INSERT INTO fact_styles (app_name, fact_type, normal_key, style) VALUES ($1, $2, $3, $4)
ON CONFLICT (app_name, fact_type, normal_key) DO UPDATE SET style = EXCLUDED.style
RETURNING app_name, fact_type, normal_key, style

-- name: reset_fact_style
-- app, fact type, normal form of a key; no row where there was none
DELETE FROM fact_styles WHERE app_name = $1 AND fact_type = $2 AND normal_key = $3 RETURNING normal_key

-- name: list_fact_styles
-- app (null: every one), limit, app, type and key of the last row of the page before (null: from the first)
SELECT app_name, fact_type, normal_key, style FROM fact_styles
WHERE ($1::text IS NULL OR app_name IN ($1, '*'))
  AND ($3::text IS NULL OR (app_name, fact_type, normal_key) > ($3, $4, $5))
ORDER BY app_name, fact_type, normal_key LIMIT $2

-- name: fact_styles
-- thread; its app's own before those of every app
SELECT DISTINCT ON (fact_type, normal_key) fact_type, normal_key, style FROM fact_styles
WHERE app_name IN ((SELECT t.app_name FROM threads AS t WHERE t.id = $1), '*')
ORDER BY fact_type, normal_key, app_name = '*'

-- name: put_instruction
-- app, key, content, metadata, expected version or null
SELECT * FROM put_instruction($1, $2, $3, $4, $5)

-- name: get_instruction
-- app, key, version (null: the newest)
SELECT * FROM instructions
WHERE app_name = $1 AND instruction_key = $2 AND ($3::integer IS NULL OR version = $3)
ORDER BY version DESC LIMIT 1

-- name: instruction_history
-- app, key, limit, before this version (null: from the newest)
SELECT * FROM instructions
WHERE app_name = $1 AND instruction_key = $2 AND ($4::bigint IS NULL OR version < $4)
ORDER BY version DESC LIMIT $3

-- name: active_instructions
-- app, limit, after this key (null: from the first); the newest version of each, by key; one without content is out of
-- force
SELECT i.* FROM active_instructions($1) AS i
WHERE $3::text IS NULL OR i.instruction_key > $3
ORDER BY i.instruction_key LIMIT $2

-- name: list_proposals
-- app, status (null: any), before this proposal (null: from the newest), limit
SELECT * FROM instruction_proposals
WHERE app_name = $1 AND ($2::text IS NULL OR status = $2) AND ($3::uuid IS NULL OR id < $3)
ORDER BY id DESC LIMIT $4

-- name: approve_proposal
-- app, proposal, who decides, also where the instruction moved on
SELECT p.* FROM approve_proposal($1, $2, $3, $4) AS p

-- name: reject_proposal
-- app, proposal, who decides
SELECT p.* FROM reject_proposal($1, $2, $3) AS p
