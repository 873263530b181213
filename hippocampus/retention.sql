-- The statements of the retention: policies, accesses, scores, clean-up.

-- name: get_policy
-- What stands for the app $1. No row: somebody deleted the policy '*'.
SELECT p.* FROM app_policy($1) AS p WHERE p.app_name IS NOT NULL

-- name: set_policy
-- Changes the fields $2 (jsonb) of the policy of the app $1 and returns it.
SELECT p.* FROM set_app_policy($1, $2) AS p

-- name: reset_policy
-- Deletes the app's own policy.
DELETE FROM app_policies WHERE app_name = $1 RETURNING app_name

-- name: record_access
-- Counts one access to each memory of $1 (uuid[]). Returns how many there were.
SELECT record_memory_access($1)

-- name: archive_batch
-- One batch of the clean-up, in its own transaction: app $1 or NULL, limit $2, after the id $3; $4 threshold,
-- $5 minimum age in days, $6 decay rate, each NULL for the app's own. Returns where to go on, NULL at the end.
SELECT b.last_id, b.archived, b.by_app FROM archive_weak_memories($1, $2, $3, $4, $5, $6) AS b

-- name: weak_page
-- What a clean-up would archive now, and why. Arguments as archive_batch.
SELECT w.* FROM weak_memories($1, $2, $3, $4, $5, $6) AS w

-- name: stats
-- One snapshot, one row per app: app $1 or NULL, user $2 or NULL, $3 threshold, $4 minimum age, $5 decay rate.
SELECT s.* FROM retention_stats($1, $2, $3, $4, $5) AS s

-- name: time_slice
-- Slices of conversation of app $1 and user $2 that were said from $3 to $4, both included; newest first; at most $5.
-- $6: the decay rate, NULL for the app's own.
SELECT m.id, m.thread_id, m.user_id, m.app_name, m.memory_type, m.content, m.metadata, m.access_count, m.from_seq,
       m.upto_seq, m.created_at, m.occurred_at,
       retention_score(p.retention_curve, m.initial_score, m.access_count,
                       CASE WHEN NOT m.pinned THEN m.last_accessed_at END, coalesce($6, p.decay_rate), n) AS retention_score
FROM app_policy($1) AS p, engine_now() AS n, memories AS m
WHERE m.app_name = $1 AND m.user_id = $2 AND m.memory_type = 'episodic' AND m.occurred_at BETWEEN $3 AND $4
ORDER BY m.occurred_at DESC, m.id DESC LIMIT $5
