-- name: list_set_aside
-- The functions in the schema $1 whose names start with $2.
SELECT p.oid::regprocedure::text FROM pg_proc AS p
WHERE p.pronamespace = to_regnamespace(quote_ident($1)) AND starts_with(p.proname, $2)

-- name: other_transactions
-- The transactions that may be in one of our functions. A user who may not see what kind a process of the server is sees
-- NULL: then all count.
SELECT l.virtualtransaction FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.pid <> pg_backend_pid()
  AND a.datname = current_database() AND coalesce(a.backend_type, 'client backend') = 'client backend'
