-- What a new connection runs.

-- name: begin_session
-- the process id that the handshake announced. Returns whether it is the backend's: if not, a pooler is between; the
-- schema of pgvector and its types, null where it is not installed. A server that is reached directly is made to notice
-- a lost client within half a minute; by default it would hold the client's locks for two hours
SELECT pg_backend_pid() = $1::integer AS is_direct, current_schema() AS current_schema,
       current_user AS "user", current_database() AS database, n.nspname AS vector_schema,
       -- Read from the catalogue: to_regtype fails for a login without USAGE on the schema.
       (SELECT oid FROM pg_type WHERE typnamespace = n.oid AND typname = 'vector') AS vector,
       (SELECT oid FROM pg_type WHERE typnamespace = n.oid AND typname = 'halfvec') AS halfvec,
       (SELECT oid FROM pg_type WHERE typnamespace = n.oid AND typname = 'sparsevec') AS sparsevec,
       CASE WHEN pg_backend_pid() = $1 THEN (
           SELECT min(set_config(name, setting, false))
           FROM (VALUES ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'),
                        ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '20000')) AS k (name, setting)
       ) END
FROM (VALUES ('vector')) AS wanted (name)
LEFT JOIN (pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace) ON e.extname = wanted.name

-- name: backend
SELECT pg_backend_pid()

-- name: set_session_limit
-- setting, value
SELECT set_config($1, $2, false)

-- name: is_standby
SELECT pg_is_in_recovery()

-- name: log_position
-- up to which the primary's log is on its disk: every commit that was acknowledged is before it
SELECT pg_current_wal_flush_lsn()::text AS position

-- name: own_log_position
-- the same, and whose log it is
SELECT pg_current_wal_flush_lsn()::text AS position, system_identifier, current_database() AS database
FROM pg_control_system()

-- name: replayed
-- position. Whether this replica shows everything up to it
SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= $1::text::pg_lsn AS has_replayed

-- name: own_replayed
-- the same, and whose log it replays
SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= $1::text::pg_lsn AS has_replayed, system_identifier,
       current_database() AS database
FROM pg_control_system()
