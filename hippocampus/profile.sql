-- A user's profile.

-- name: read_profile
-- app, user, true at or null (now), facts, insights and instructions at most
-- What holds of a user: facts, standing ones and the most certain first; the strongest insights; the instructions in
-- force that follow from the user's feedback. total: how many of this source there are.
(SELECT 'fact' AS source, f.id, f.fact_type AS kind, f.key, f.value, NULL AS content, f.valid_from AS since,
        is_standing(f.fact_type, f.key) AS is_standing, k.collection, count(*) OVER () AS total
 FROM (
     SELECT id, fact_type, key, value, confidence, valid_from, recorded_at FROM facts
     WHERE app_name = $1 AND user_id = $2 AND $3::timestamptz IS NULL
       AND (valid_until IS NULL OR valid_until > engine_now())
     UNION ALL
     SELECT a.id, a.fact_type, a.key, a.value, a.confidence, a.valid_from, a.recorded_at
     FROM facts_as_of($1, $2, $3, engine_now()) AS a WHERE $3::timestamptz IS NOT NULL) AS f
 JOIN facts AS k ON k.id = f.id
 ORDER BY is_standing DESC, f.confidence DESC, f.recorded_at DESC, f.key LIMIT $4)
UNION ALL
(SELECT 'insight', m.id, 'insight', NULL, NULL, m.content, m.occurred_at, false, NULL, count(*) OVER ()
 FROM (
     -- Bounded, since the strength of each is computed; what is weak is archived, so a user rarely has more.
     SELECT id FROM memories
     WHERE app_name = $1 AND user_id = $2 AND memory_type = 'semantic'
       AND ($3::timestamptz IS NULL OR occurred_at <= $3)
     ORDER BY created_at DESC LIMIT 5000) AS newest
 JOIN memories AS m ON m.id = newest.id
 CROSS JOIN app_policy($1) AS p CROSS JOIN engine_now() AS n
 ORDER BY retention_score(m, p, n) DESC, m.created_at DESC, m.id LIMIT $5)
UNION ALL
(SELECT 'instruction', o.id, 'instruction', i.instruction_key, NULL, i.content, i.created_at, true, NULL,
        count(*) OVER ()
 FROM active_instructions($1) AS i
 JOIN LATERAL (
     SELECT o.id FROM instruction_proposals AS o
     WHERE o.app_name = $1 AND o.user_id = $2 AND o.instruction_key = i.instruction_key AND o.version = i.version
     ORDER BY o.id LIMIT 1) AS o ON true
 WHERE $3::timestamptz IS NULL OR i.created_at <= $3
 ORDER BY i.instruction_key LIMIT $6)
