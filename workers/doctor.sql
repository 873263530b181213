-- What `hippocampus doctor` reads. No statement needs a privilege of its own.

-- name: clock
SELECT extract(epoch FROM clock_timestamp())::double precision

-- name: extension
SELECT extversion FROM pg_extension WHERE extname = 'vector'

-- name: settings
SELECT name, setting FROM pg_settings WHERE name = ANY ($1::text[])

-- name: identity
-- What identifies the database, wherever it is reached.
SELECT system_identifier, current_database() FROM pg_control_system()

-- name: replay_lag_seconds
-- Null where nothing is replayed; 0 where everything that was received has been.
SELECT CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
            ELSE coalesce(extract(epoch FROM now() - pg_last_xact_replay_timestamp()), 0) END::double precision
WHERE pg_is_in_recovery()

-- name: unlimited
-- Settings without a limit, which a pooler keeps a process from setting for itself.
SELECT name FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'lock_timeout') AND setting = '0' ORDER BY name

-- name: synchronous_standbys
SELECT current_setting('synchronous_standby_names')

-- name: connections
-- How many the server allows ordinary users, how many are in use, how many of them by this user in this database.
SELECT current_setting('max_connections')::integer
       - current_setting('superuser_reserved_connections')::integer
       - coalesce(current_setting('reserved_connections', true)::integer, 0) AS usable,
       (SELECT count(*)::integer FROM pg_stat_activity WHERE backend_type = 'client backend') AS taken,
       (SELECT count(*)::integer FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND datname = current_database() AND usename = current_user) AS ours

-- name: lacking_privileges
-- Tables of the schema that this user may not read and write.
SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')
  AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
           AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
  -- A process under one of the roles of grant_roles() has what it needs.
  AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname IN ('hippocampus_writer', 'hippocampus_worker')
                                              AND pg_has_role(r.oid, 'MEMBER'))
ORDER BY c.relname

-- name: roles
-- Live processes by role, seen within this many seconds.
SELECT role, count(*)::integer AS processes FROM metrics_targets
WHERE seen_at > now() - make_interval(secs => $1) GROUP BY role

-- name: oldest_transaction
-- The age of the oldest transaction in this database, in seconds; it keeps dead rows from being removed.
SELECT max(extract(epoch FROM now() - xact_start))::double precision FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'

-- name: probe_disk
-- Writes a megabyte, which is gone with the transaction.
CREATE TEMPORARY TABLE hippocampus_probe ON COMMIT DROP AS
SELECT repeat(md5(number::text), 32) AS filler FROM generate_series(1, 1000) AS number

-- name: size
SELECT pg_database_size(current_database())

-- name: collation
-- Whether the operating system's collations changed under the database.
SELECT datcollversion IS NOT NULL AND datcollversion <> pg_database_collation_actual_version(oid)
FROM pg_database WHERE datname = current_database()

-- name: backlog
SELECT (SELECT count(*)::integer FROM consolidation_jobs WHERE status = 'failed') AS failed,
       (SELECT max(oldest_seconds) FROM queue_ages()) AS oldest_seconds

-- name: clocks
-- Live processes whose clock is off by more than this many seconds, and that were seen within this many: the worst first.
SELECT role, host, clock_ahead_seconds FROM metrics_targets
WHERE abs(clock_ahead_seconds) > $1 AND seen_at > now() - make_interval(secs => $2)
ORDER BY abs(clock_ahead_seconds) DESC LIMIT 5
