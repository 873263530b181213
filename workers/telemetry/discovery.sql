-- name: put_metrics_target
-- host, port, role, pid, the time by the clock of the process in Unix seconds, its machine, its errors since it began.
INSERT INTO metrics_targets (host, port, role, pid, clock_ahead_seconds, machine, errors)
VALUES ($1, $2, $3, $4, $5 - extract(epoch FROM clock_timestamp())::double precision, $6, $7)
ON CONFLICT (host, port) DO UPDATE SET
    machine = EXCLUDED.machine, errors = EXCLUDED.errors,
    role = EXCLUDED.role, pid = EXCLUDED.pid, seen_at = now(), clock_ahead_seconds = EXCLUDED.clock_ahead_seconds,
    started_at = CASE WHEN metrics_targets.pid = EXCLUDED.pid THEN metrics_targets.started_at ELSE now() END

-- name: delete_metrics_target
-- host, port, pid. Also deletes targets that have not been refreshed for a day.
DELETE FROM metrics_targets
WHERE (host = $1 AND port = $2 AND pid = $3) OR seen_at < now() - interval '1 day'

-- name: list_metrics_targets
-- Targets refreshed within this many seconds.
SELECT host, port, role FROM metrics_targets
WHERE seen_at > now() - make_interval(secs => $1)
ORDER BY role, host, port
