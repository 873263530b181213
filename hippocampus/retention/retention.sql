-- Retention: policies, accesses, scores, the clean-up, pins and the archive.

-- name: get_policy
-- The policy of the app $1. No row if the policy '*' was deleted.
SELECT p.* FROM app_policy($1) AS p WHERE p.app_name IS NOT NULL

-- name: set_policy
-- audited
-- Changes the fields $2 (jsonb) of the policy of the app $1 and returns it.
SELECT p.* FROM set_app_policy($1, $2) AS p

-- name: reset_policy
-- audited
-- Deletes the app's own policy.
DELETE FROM app_policies WHERE app_name = $1 RETURNING app_name

-- name: record_access
-- Counts one access to each memory of $1 (uuid[]), of the app $2 and the user $3, each NULL for any. Returns how many
-- there were.
SELECT record_memory_access($1, $2, $3)

-- name: archive_batch
-- One batch of the clean-up, in its own transaction: app $1 or NULL, limit $2, after the id $3; $4 threshold,
-- $5 minimum age in days, $6 decay rate, each NULL for the app's own. Returns where to continue, NULL at the end.
SELECT b.last_id, b.archived, b.by_app FROM archive_weak_memories($1, $2, $3, $4, $5, $6) AS b

-- name: weak_page
-- What a clean-up would archive now, and why. Arguments as archive_batch.
SELECT w.* FROM weak_memories($1, $2, $3, $4, $5, $6) AS w

-- name: stats
-- One snapshot, one row per app: app $1 or NULL, user $2 or NULL, $3 threshold, $4 minimum age, $5 decay rate.
SELECT s.* FROM retention_stats($1, $2, $3, $4, $5) AS s

-- name: time_slice
-- Slices of conversation of app $1 and user $2 from $3 to $4, both included; newest first; at most $5.
-- $6: the decay rate, NULL for the app's own.
SELECT m.id, m.thread_id, m.user_id, m.app_name, m.memory_type, m.content, m.metadata, m.access_count, m.from_seq,
       m.upto_seq, m.created_at, m.occurred_at,
       retention_score(p.retention_curve, m.initial_score, m.access_count,
                       CASE WHEN NOT m.pinned THEN m.last_accessed_at END, coalesce($6, p.decay_rate), n) AS retention_score
FROM app_policy($1) AS p, engine_now() AS n, memories AS m
WHERE m.app_name = $1 AND m.user_id = $2 AND m.memory_type = 'episodic' AND m.occurred_at BETWEEN $3 AND $4
ORDER BY m.occurred_at DESC, m.id DESC LIMIT $5

-- name: pin_memory
-- app, user, memory, pinned
SELECT pin_memory($1, $2, $3, $4)

-- name: restore_memories
-- app, user, ids or null, limit
SELECT r AS id FROM restore_memories($1, $2, $3, $4) AS r

-- name: list_archive
-- app, user, after this id, limit
SELECT a.id, a.memory_type, a.content, a.score, a.archive_reason, a.archived_at, a.occurred_at, a.created_at,
       CASE WHEN NOT is_by_hand(a.archive_reason)
            THEN a.archived_at + make_interval(secs => 86400 * p.archive_days) END AS purged_after
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
-- app, memory, moments: its score at each, if it is not used
SELECT retention_score(m, p, w.at) AS score FROM app_policy($1) AS p, memories AS m,
       unnest($3::timestamptz[]) WITH ORDINALITY AS w (at, position)
WHERE m.id = $2 ORDER BY w.position

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
