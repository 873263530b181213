-- What a new connection runs.

-- name: prepare_session
-- the schema of pgvector; no row where it is not installed. Also makes the server notice a lost client within half a
-- minute; by default it would hold the client's locks for two hours
SELECT n.nspname, set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '20000', false)
FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'

-- name: set_session_limit
-- setting, value
SELECT set_config($1, $2, false)
