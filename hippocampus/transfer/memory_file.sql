-- A user's memory, exported and imported line by line.

-- name: export_kinds
-- The kinds of lines, in their order.
SELECT export_kind FROM data_catalogue WHERE export_kind IS NOT NULL ORDER BY place

-- name: export_lines
-- app, user, kind, with vectors, after this id, limit
SELECT x.id, x.line FROM export_lines($1, $2, $3, $4, $5, $6) AS x

-- name: begin_import
-- app, user
SELECT begin_import($1, $2)

-- name: import_lines
-- app, user, kind, lines as they are written; returns how many were stored
-- redacts: JSON $4 of app $1
SELECT import_lines($1, $2, $3, $4::text[]::jsonb[])

-- name: standing_though_forgotten
-- app, user, after this id, at most this many
SELECT id FROM standing_though_forgotten($1, $2, $3, $4) AS x (id)

-- name: forget_as_of_tombstone
-- audited
-- app, user, id
SELECT forget_as_of_tombstone($1, $2, $3)

-- name: backfill_after_import
SELECT enqueue_embedding_backfill()
