-- The statements of the import from ADK's own database.

-- name: import_session
-- app, user, session id, state, created at
-- redacts: $4 of app $1
SELECT import_session($1, $2, $3, $4, $5)

-- name: append_past_events
-- app, user, session id, events, whether they change the session's state: how many are stored, and how many of those are
-- new. Shared states are copied separately, and no listener is notified of past events.
-- redacts: $4 of app $1; as $6
SELECT count(*) AS stored, count(*) FILTER (WHERE appended) AS new
FROM append_events($1, $2, $3, NULL, ARRAY(
    SELECT ROW(i.id, i.author, i.event_type, i.invocation_id, i.content, i.actions,
               CASE WHEN $5 THEN i.session_delta END, NULL, NULL, i.role, i.message, i.occurred_at)::event_input
    FROM unnest($4::event_input[]) WITH ORDINALITY AS i (id, author, event_type, invocation_id, content, actions,
         session_delta, user_delta, app_delta, role, message, occurred_at, place)
    ORDER BY i.place), false, p_redaction => $6)

-- name: finish_session_import
-- app, user, session id, state, updated at; the keys that differ, null if none do
-- redacts: $4 of app $1
SELECT finish_session_import($1, $2, $3, $4, $5)

-- name: import_state
-- app, user or null, state, whether it replaces existing keys
-- redacts: $3 of app $1
SELECT kept, erased FROM import_state($1, $2, $3, $4)
