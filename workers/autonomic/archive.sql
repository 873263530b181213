-- name: list_archive
SELECT name, events, bytes FROM list_pulse_archive()

-- name: archived_events
-- A table of the archive, after this id, how many at most.
SELECT a.id, to_jsonb(a)::text AS event FROM pulse_events_archive AS a
WHERE a.tableoid = to_regclass(quote_ident($1)) AND a.id > $2 ORDER BY a.id LIMIT $3

-- name: may_drop
-- Whether the role has the rights of the archive's owner.
SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'pulse_events_archive'::regclass

-- name: drop_archive
-- A table of the archive, how many events the file has, its name and its SHA-256.
SELECT drop_pulse_archive($1, $2, $3, $4)

-- name: keep_partitions
SELECT keep_pulse_partitions($1)
