-- Every statement of runs.

-- name: start_run
-- app, user, session id, run id, holder, seconds of lease, first events, whether to refuse while another run is active,
-- the session's expected version or null; the notifier wakes the listeners afterwards
SELECT run, created, stored FROM start_run($1, $2, $3, $4, $5, $6, $7::event_input[], false, $8, $9)

-- name: write_run
-- app, run id, holder, seconds of lease, events, calls of tools and their results among them
SELECT run, stored FROM write_run($1, $2, $3, $4, $5::event_input[], $6, false)

-- name: end_run
-- app, run id, holder, status, last events, error or null, its code or null
SELECT run, stored FROM end_run($1, $2, $3, $4, $5::event_input[], $6, $7, false)

-- name: get_run
-- app, user, run id
SELECT r AS run, t.session_id FROM runs AS r JOIN threads AS t ON t.id = r.thread_id
WHERE r.app_name = $1 AND t.user_id = $2 AND r.run_id = $3 AND is_open(t)

-- name: list_runs
-- app, user, session id, before this one of ours or null, limit
SELECT r AS run, t.session_id FROM threads AS t JOIN runs AS r ON r.thread_id = t.id
WHERE t.app_name = $1 AND t.user_id = $2 AND t.session_id = $3 AND is_open(t) AND ($4::uuid IS NULL OR r.id < $4)
ORDER BY r.id DESC
LIMIT $5

-- name: request_cancel
-- app, user, run id
SELECT r AS run, t.session_id
FROM request_cancel($1, $2, $3) AS r JOIN threads AS t ON t.id = r.thread_id

-- name: renew_runs
-- holder, runs, seconds of lease
SELECT id, status, cancel_requested FROM renew_runs($1, $2, $3)

-- name: reap_runs
-- how many at most
SELECT reap_runs($1)

-- name: run_is_taken
-- app, run id
SELECT EXISTS (SELECT FROM runs WHERE app_name = $1 AND run_id = $2)

-- name: live_run
-- thread
SELECT run_id FROM runs WHERE thread_id = $1 AND status = 'running' AND lease_until >= engine_now() LIMIT 1

-- name: last_event_of_run
-- thread; of the run that began last
SELECT e.content::text AS content FROM runs AS r
JOIN events AS e ON e.thread_id = r.thread_id AND e.sequence_num = r.last_seq
WHERE r.thread_id = $1 AND r.status = 'completed'
  AND r.first_seq = (SELECT max(o.first_seq) FROM runs AS o WHERE o.thread_id = $1)

-- name: known_events
-- thread, ids
SELECT e.id FROM events AS e WHERE e.thread_id = $1 AND e.id = ANY ($2::text[]) AND e.id <> ''
