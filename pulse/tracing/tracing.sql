-- Every statement of the traces.

-- name: store_spans
-- spans as a JSON array; returns how many were stored
SELECT store_spans($1::text::jsonb)

-- name: list_traces
-- app or null, user or null, session or null, only failed ones, at least this many nanoseconds, before this time and
-- this span (null: from the newest), limit
SELECT trace_id, span_id, operation_name, span_kind, service_name, start_time, duration_ns, status_code, status_message,
       app_name, user_id, session_id, run_id, parent_span_id, linked_trace_id, attributes, events
FROM traces
WHERE is_root AND ($1::text IS NULL OR app_name = $1) AND ($2::text IS NULL OR user_id = $2)
      AND ($3::text IS NULL OR session_id = $3) AND (NOT $4 OR status_code = 'error') AND duration_ns >= $5
      AND ($6::timestamptz IS NULL OR (start_time, span_id) < ($6, $7))
ORDER BY start_time DESC, span_id DESC
LIMIT $8

-- name: read_trace
-- trace id, app or null, user or null, limit: the spans of the trace, and of those that link to it or that it links to,
-- in the order of their start. A trace with a span of another app or user is not returned to these.
WITH related AS (
    SELECT $1::text AS trace_id
    UNION SELECT linked_trace_id FROM traces WHERE trace_id = $1 AND linked_trace_id IS NOT NULL
    UNION SELECT trace_id FROM traces WHERE linked_trace_id = $1
), allowed AS (
    SELECT r.trace_id FROM related AS r
    WHERE EXISTS (SELECT FROM traces AS t WHERE t.trace_id = r.trace_id
                  AND ($2::text IS NULL OR t.app_name = $2) AND ($3::text IS NULL OR t.user_id = $3))
      AND NOT EXISTS (SELECT FROM traces AS t WHERE t.trace_id = r.trace_id
                      AND (t.app_name <> $2 OR t.user_id <> $3))
)
SELECT trace_id, span_id, operation_name, span_kind, service_name, start_time, duration_ns, status_code, status_message,
       app_name, user_id, session_id, run_id, parent_span_id, linked_trace_id, attributes, events
FROM traces
WHERE trace_id IN (SELECT trace_id FROM allowed) AND $1 IN (SELECT trace_id FROM allowed)
ORDER BY start_time, span_id
LIMIT $4
