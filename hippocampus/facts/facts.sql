-- What is kept beside the facts that hold: candidates, merged keys, and which keys hold many values.

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
-- app, or null for that of a thread; thread; the app's own before those of every app
SELECT DISTINCT ON (fact_type, normal_key) fact_type, normal_key, style FROM fact_styles
WHERE app_name IN (coalesce($1, (SELECT t.app_name FROM threads AS t WHERE t.id = $2)), '*')
ORDER BY fact_type, normal_key, app_name = '*'
