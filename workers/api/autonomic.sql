-- name: pulse_status
-- Scope, how many ticks and decisions.
SELECT pulse_status($1, $2)

-- name: events
-- Scope, kind or NULL, before this id or NULL, how many at most. The newest first.
SELECT id, kind, key, ref, hash, meta, occurred_at FROM list_pulse_events($1, $2, $3, $4)
