-- The statements of artifacts.

-- name: save_artifact
-- app, user, session id (null: the user's), filename, part, bytes or null, mime type, custom metadata
SELECT version, created_at FROM save_artifact($1, $2, $3, $4, $5, $6, $7, $8)

-- name: read_artifact
-- app, user, session id (null: the user's), filename, version (null: all; -1: the last), whether with bytes
SELECT version, part, data, mime_type, custom_metadata, created_at FROM read_artifact($1, $2, $3, $4, $5, $6)

-- name: list_artifact_keys
-- app, user, session id or null: the session's and the user's
SELECT filename FROM artifacts
WHERE app_name = $1 AND user_id = $2 AND (session_id IS NULL OR session_id = $3)
GROUP BY filename ORDER BY filename COLLATE "C"

-- name: delete_artifact
-- app, user, session id (null: the user's), filename
DELETE FROM artifacts
WHERE app_name = $1 AND user_id = $2 AND session_id IS NOT DISTINCT FROM $3 AND filename = $4
