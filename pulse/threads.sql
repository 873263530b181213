-- Every statement of the list of threads.

-- name: list_threads
-- app, user, limit, when the last thread of the previous page changed, its id (null: from the newest), text that the
-- session id contains in any case, session id (null: any); each with the run that began last
SELECT t.id, t.session_id, t.version, t.last_seq, t.created_at, t.updated_at, t.finalized_at,
       r.run_id, r.status, r.error, r.started_at, r.completed_at
FROM (SELECT * FROM threads AS each
      WHERE app_name = $1 AND user_id = $2 AND is_open(each) AND ($4::timestamptz IS NULL OR (updated_at, id) < ($4, $5::uuid))
        AND strpos(lower(session_id), lower($6)) > 0 AND ($7::text IS NULL OR session_id = $7)
      ORDER BY updated_at DESC, id DESC LIMIT $3) AS t
LEFT JOIN LATERAL (SELECT * FROM runs WHERE thread_id = t.id ORDER BY id DESC LIMIT 1) AS r ON true
ORDER BY t.updated_at DESC, t.id DESC
