-- Roles of PostgreSQL.

-- name: grant_roles
-- audited
-- how many tables have policies
SELECT grant_roles() FROM note_act('roles_granted') AS noted WHERE noted IS NOT NULL

-- name: bind_reader
-- audited
-- login, app, user or null
SELECT bind_reader($1, $2, $3)
FROM note_act('reader_bound', $2, $3, jsonb_build_object('role', $1::text)) AS noted
WHERE noted IS NOT NULL
