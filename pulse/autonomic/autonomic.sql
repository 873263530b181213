-- name: make_scope
SELECT make_pulse_scope($1)

-- name: lead
-- Whether this session leads now.
SELECT lead_pulse($1)

-- name: limit_idle
-- A leader that was suspended loses its session, and with it the lock, after this many milliseconds.
SELECT set_config('idle_session_timeout', $1, false), set_config('idle_in_transaction_session_timeout', $1, false),
       set_config('statement_timeout', $1, false)

-- name: own_channel
-- What notifications of this scope carry.
SELECT current_schema() || '|' || $1

-- name: ping
SELECT 1

-- name: wake
SELECT wake_pulse($1)

-- name: put_vitals
SELECT put_vitals($1, $2)

-- name: begin_tick
-- Scope, holder, samples, whether tasks are requested.
SELECT begin_pulse_tick($1, $2, $3, $4)

-- name: end_tick
-- Scope, effects, errors, senses that broke or work again, what was decided.
SELECT end_pulse_tick($1, $2, $3, $4, $5)

-- name: last_snapshots
SELECT last_pulse_snapshots($1, $2)

-- name: gc_vitals
SELECT gc_vitals($1)

-- name: reconcile
SELECT reconcile_effects($1)

-- name: put_object
SELECT put_object($1)

-- name: get_object
SELECT body FROM objects WHERE hash = $1

-- name: stage
SELECT stage_release($1, $2)

-- name: check
-- Scope, release, status, checks.
SELECT check_release($1, $2, $3, $4)

-- name: promote
-- Scope, release, expected version.
SELECT promote_release($1, $2, $3)

-- name: rollback
-- Scope, cause, the release that must be in force or NULL.
SELECT is_done, release_id FROM rollback_release($1, $2, $3)

-- name: find_scope
SELECT s.scope, s.release_id, s.version, s.ticks, s.holder, s.last_tick_at FROM find_pulse_scope($1) AS s

-- name: find_release
SELECT id, scope, hash, status, checks, previous, created_at, promoted_at, retired_at
FROM rule_releases WHERE scope = $1 AND id = $2

-- name: list_releases
SELECT id, scope, hash, status, checks, previous, created_at, promoted_at, retired_at
FROM rule_releases WHERE scope = $1 ORDER BY id DESC LIMIT $2

-- name: list_events
-- Scope, kind or NULL, before this id or NULL, how many at most. The newest first.
SELECT id, kind, key, ref, hash, meta, occurred_at FROM list_pulse_events($1, $2, $3, $4)

-- name: status
-- Scope, how many ticks and decisions.
SELECT pulse_status($1, $2)

-- name: task_transition
-- Scope, task, kind, meta, hash.
SELECT task_transition($1, $2, $3, $4, $5)

-- name: task_events
-- Scope, task or NULL for all. The oldest first.
SELECT id, kind, key, hash, meta, occurred_at FROM pulse_events
WHERE scope = $1 AND kind LIKE 'task-%' AND ($2::text IS NULL OR key = $2) ORDER BY id

-- name: list_tasks
SELECT t.id, t.project, t.priority, t.status, t.agent, t.result, t.hash, t.created_at, t.updated_at
FROM pulse_tasks AS t WHERE t.scope = $1 AND ($2::boolean OR t.status NOT IN ('closed', 'given-up'))
ORDER BY t.priority DESC, t.created_at, t.id LIMIT $3

-- name: task_projections
SELECT pulse_task_projections($1)
