-- name: changed_tools
-- An app, a revision: the tools that changed since, inactive ones too.
SELECT t.id, t.app_name, t.name, t.display_name, t.description, t.permissions, t.is_active AND NOT t.is_gone AS is_active,
       t.call_count, t.avg_latency_ms, s.name AS source, t.kind, t.input_schema, t.output_schema, t.operation, t.nature,
       t.timeout_seconds, t.version, t.created_at, t.updated_at, t.source_id, t.revision,
       s.version AS source_version
FROM tools AS t LEFT JOIN tool_sources AS s ON s.id = t.source_id
WHERE t.app_name = $1 AND t.revision > $2 ORDER BY t.revision

-- name: list_tools
-- An app, whether inactive ones too, a name after which to begin, rows at most.
SELECT t.id, t.app_name, t.name, t.display_name, t.description, t.permissions, t.is_active AND NOT t.is_gone AS is_active,
       t.call_count, t.avg_latency_ms, s.name AS source, t.kind, t.input_schema, t.output_schema, t.operation, t.nature,
       t.timeout_seconds, t.version, t.created_at, t.updated_at, t.source_id, t.revision,
       s.version AS source_version
FROM tools AS t LEFT JOIN tool_sources AS s ON s.id = t.source_id
WHERE t.app_name = $1 AND (t.is_active AND NOT t.is_gone OR $2) AND ($3::text IS NULL OR t.name > $3)
ORDER BY t.name LIMIT $4

-- name: get_tool
-- An app, a name.
SELECT t.id, t.app_name, t.name, t.display_name, t.description, t.permissions, t.is_active AND NOT t.is_gone AS is_active,
       t.call_count, t.avg_latency_ms, s.name AS source, t.kind, t.input_schema, t.output_schema, t.operation, t.nature,
       t.timeout_seconds, t.version, t.created_at, t.updated_at, t.source_id, t.revision,
       s.version AS source_version
FROM tools AS t LEFT JOIN tool_sources AS s ON s.id = t.source_id
WHERE t.app_name = $1 AND t.name = $2

-- name: get_source
-- An id.
SELECT id, name, kind, base_url, options, version FROM tool_sources WHERE id = $1

-- name: put_tool
-- An app, a name, a source or NULL, the definition.
SELECT id, version FROM put_tool($1, $2, $3, $4)

-- name: put_tool_source
-- An app, a name, a kind, the document, its hash, the URL, options, the tools.
SELECT source_id, added, changed, gone FROM put_tool_source($1, $2, $3, $4, $5, $6, $7, $8)

-- name: set_active
-- An app, a name, whether it is active.
UPDATE tools SET is_active = $3 WHERE app_name = $1 AND name = $2 RETURNING id

-- name: set_permissions
-- An app, a name, permissions: a version of its own.
SELECT p.id, p.version FROM tools AS t, LATERAL put_tool(
    $1, $2, t.source_id, tool_definition(t) || jsonb_build_object('permissions', $3::jsonb)) AS p
WHERE t.app_name = $1 AND t.name = $2

-- name: roll_tool_back
-- An app, a name, a version.
SELECT id, version FROM roll_tool_back($1, $2, $3)

-- name: tool_versions
-- An app, a name: the versions, the newest first.
SELECT v.version, v.definition, v.created_at
FROM tool_versions AS v JOIN tools AS t ON t.id = v.tool_id
WHERE t.app_name = $1 AND t.name = $2 ORDER BY v.version DESC LIMIT 1000

-- name: find_run
-- An app, a run by the caller's id or the engine's.
SELECT r.id, t.user_id FROM runs AS r JOIN threads AS t ON t.id = r.thread_id
WHERE r.app_name = $1 AND (r.run_id = $2 OR r.id = $3)
ORDER BY r.id = $3 DESC NULLS LAST LIMIT 1

-- name: live_run
-- An app, a user, a session: its newest run that is running.
SELECT r.id FROM runs AS r JOIN threads AS t ON t.id = r.thread_id
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND r.status = 'running' ORDER BY r.id DESC LIMIT 1

-- name: begin_tool_call
-- See the function.
SELECT id, refusal, wait_seconds, attempt FROM begin_tool_call(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)

-- name: end_tool_call
-- See the function.
SELECT end_tool_call($1, $2, $3, $4, $5, $6, $7, $8)

-- name: decide_tool_call
-- An app, a user, a call that waits, whether it is confirmed, how long it may then run, whether it is answered.
SELECT outcome, tool_name, params, tool_call_id, run_id FROM decide_tool_call($1, $2, $3, $4, $5, $6)

-- name: waiting_tool
-- An app, a user, a call that waits: its tool, as it is now.
SELECT t.name, t.kind FROM tool_executions AS e JOIN tools AS t ON t.id = e.tool_id
WHERE e.id = $3 AND e.app_name = $1 AND e.user_id = $2 AND e.status = 'waiting'
  AND e.expires_at > clock_timestamp()

-- name: last_execution
-- An app, a user, a call, a session, the time of the event that asks for the call or NULL, whether the session has no
-- runs: the call's last attempt. Its event is found by its time, and compared by the database's clock.
SELECT e.id, e.tool_name, e.tool_version, e.user_id, e.run_id, e.tool_call_id, e.attempt, e.status, e.input_params,
       e.output_result, e.error_code, e.error, e.latency_ms, e.output_bytes, e.trace_id, e.span_id, e.created_at,
       e.ended_at
FROM tool_executions AS e JOIN threads AS t ON (t.app_name, t.user_id, t.session_id) = ($1, $2, $4)
WHERE e.app_name = $1 AND e.user_id = $2 AND e.tool_call_id = $3
  AND CASE WHEN e.run_id IS NULL THEN $6::boolean
           ELSE EXISTS (SELECT FROM runs AS r WHERE r.id = e.run_id AND r.thread_id = t.id) END
  AND e.created_at >= coalesce((
      SELECT min(v.created_at) FROM events AS v
      WHERE v.thread_id = t.id AND v.occurred_at = $5::timestamptz AND v.occurred_at > '-infinity'), '-infinity')
ORDER BY e.id DESC LIMIT 1

-- name: list_executions
-- An app, a tool's name, a user, a status, a run, each or NULL, an id before which to begin, rows at most.
SELECT id, tool_name, tool_version, user_id, run_id, tool_call_id, attempt, status, input_params, output_result,
       error_code, error, latency_ms, output_bytes, trace_id, span_id, created_at, ended_at
FROM tool_executions
WHERE app_name = $1 AND ($2::text IS NULL OR tool_name = $2) AND ($3::text IS NULL OR user_id = $3)
  AND ($4::text IS NULL OR status = $4) AND ($5::uuid IS NULL OR run_id = $5) AND ($6::uuid IS NULL OR id < $6)
ORDER BY id DESC LIMIT $7
