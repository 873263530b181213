-- The statements of the import from ADK's own database.

-- name: import_session
-- app, user, session id, state, made at
SELECT import_session($1, $2, $3, $4, $5)

-- name: finish_session_import
-- app, user, session id, last changed at
SELECT finish_session_import($1, $2, $3, $4)

-- name: import_state
-- app, user or null, state, whether it wins over what is here
SELECT import_state($1, $2, $3, $4)
