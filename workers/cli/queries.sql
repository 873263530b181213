-- What the command line reads beyond what the services return.

-- name: list_owners
-- app and user (each null: any), limit
-- Every app and user that has a session, or a memory of another program, the latest first.
SELECT app_name, user_id, max(created_at) AS latest FROM (
    SELECT app_name, user_id, created_at FROM threads
    UNION ALL SELECT app_name, user_id, created_at FROM memories WHERE thread_id IS NULL) AS o
WHERE ($1::text IS NULL OR app_name = $1) AND ($2::text IS NULL OR user_id = $2)
GROUP BY app_name, user_id ORDER BY latest DESC LIMIT $3

-- name: users
-- app and user (each null: any), limit, app and user of the last row of the page before (null: from the first)
SELECT o.app_name AS app, o.user_id AS "user", o.sessions, o.events, o.last_event,
       (SELECT count(*) FROM memories AS m WHERE m.app_name = o.app_name AND m.user_id = o.user_id) AS memories,
       (SELECT count(*) FROM facts AS f WHERE f.app_name = o.app_name AND f.user_id = o.user_id) AS facts
FROM (
    SELECT app_name, user_id, count(session_id) AS sessions, coalesce(sum(last_seq), 0)::bigint AS events,
           max(last_event_at) AS last_event
    FROM (SELECT app_name, user_id, session_id, last_seq, last_event_at FROM threads
          UNION ALL SELECT DISTINCT app_name, user_id, NULL, NULL::bigint, NULL::timestamptz
          FROM memories WHERE thread_id IS NULL) AS t
    WHERE ($1::text IS NULL OR app_name = $1) AND ($2::text IS NULL OR user_id = $2)
      AND ($4::text IS NULL OR (app_name, user_id) > ($4, $5))
    GROUP BY app_name, user_id ORDER BY app_name, user_id LIMIT $3) AS o
ORDER BY o.app_name, o.user_id

-- name: has_app
-- app
SELECT $1 = '*' OR EXISTS (SELECT FROM threads WHERE app_name = $1) OR EXISTS (SELECT FROM memories WHERE app_name = $1)
    OR EXISTS (SELECT FROM facts WHERE app_name = $1) OR EXISTS (SELECT FROM app_policies WHERE app_name = $1)
    OR EXISTS (SELECT FROM erasures WHERE app_name = $1)

-- name: has_user
-- app, user
SELECT EXISTS (SELECT FROM threads WHERE app_name = $1 AND user_id = $2)
    OR EXISTS (SELECT FROM memories WHERE app_name = $1 AND user_id = $2)
    OR EXISTS (SELECT FROM facts WHERE app_name = $1 AND user_id = $2)
    OR EXISTS (SELECT FROM erasures WHERE app_name = $1 AND user_id = $2)

-- name: is_set_up
-- app; apart from has_app, since the roles of readers may not see these tables
SELECT EXISTS (SELECT FROM api_keys WHERE app_name = $1) OR EXISTS (SELECT FROM webhook_endpoints WHERE app_name = $1)
    OR EXISTS (SELECT FROM tools WHERE app_name = $1)
    OR EXISTS (SELECT FROM instructions WHERE app_name = $1) OR EXISTS (SELECT FROM corpus WHERE app_name = $1)
    OR EXISTS (SELECT FROM fact_styles WHERE app_name = $1)

-- name: is_logged
-- app
SELECT EXISTS (SELECT FROM audit_log WHERE app_name = $1)

-- name: apps
SELECT DISTINCT app_name FROM (
    SELECT app_name FROM threads UNION ALL SELECT app_name FROM memories WHERE thread_id IS NULL
    UNION ALL SELECT app_name FROM app_policies) AS a WHERE app_name <> '*' ORDER BY app_name

-- name: policies
-- limit, app of the last row of the page before (null: from the first)
SELECT p.* FROM app_policies AS p WHERE $2::text IS NULL OR p.app_name > $2 ORDER BY p.app_name LIMIT $1

-- name: erasures
-- app and user (each null: any), limit, id of the last row of the page before (null: from the newest)
SELECT id, scope, app_name, user_id, thread_id, sequence_nums, target_id, counts, requested_at, finished_at
FROM erasures
WHERE ($1::text IS NULL OR app_name = $1) AND ($2::text IS NULL OR user_id = $2)
  AND ($4::uuid IS NULL OR id < $4)
ORDER BY id DESC LIMIT $3

-- name: turns
-- threads, sequence numbers, pairwise
SELECT m.thread_id, t.session_id, m.sequence_num, m.author, m.content AS text, m.occurred_at
FROM unnest($1::uuid[], $2::bigint[]) AS w (thread_id, sequence_num)
JOIN messages AS m ON m.thread_id = w.thread_id AND m.sequence_num = w.sequence_num
JOIN threads AS t ON t.id = m.thread_id
ORDER BY m.occurred_at, m.sequence_num

-- name: changed_facts
-- app, user, limit: values of facts and what replaced each, those that were replaced last, by fact and time
SELECT c.* FROM (
    SELECT s.fact_id, s.value AS before, s.valid_from, s.valid_until, n.value AS now,
           least(s.confidence, n.confidence) AS confidence
    FROM fact_stretches($1, $2, NULL, NULL) AS s JOIN fact_versions AS n ON n.id = s.superseded_by
    WHERE s.value <> n.value AND s.learned_at <= s.superseded_at
    ORDER BY s.valid_until DESC, s.fact_id LIMIT $3) AS c
ORDER BY c.fact_id, c.valid_until

-- name: job_history
-- job: when it was enqueued, started, given back and ended; for as long as the queue keeps it
SELECT e.type::text AS type, e.at FROM procrastinate_events AS e
WHERE e.job_id = (SELECT procrastinate_job_id FROM consolidation_jobs WHERE id = $1)
ORDER BY e.at, e.id

-- name: session_names
-- threads
SELECT id, session_id FROM threads WHERE id = ANY ($1::uuid[])

-- name: session_counts
-- threads
SELECT t.id, t.last_seq AS events, t.fast_upto_seq, t.deep_upto_seq,
       (SELECT count(*) FROM memories AS m WHERE m.thread_id = t.id) AS memories
FROM threads AS t WHERE t.id = ANY ($1::uuid[])

-- name: job_counts
-- app, since: jobs that were made or ended since then, by status, with an error of those that failed and one of the
-- last attempts of those that wait
SELECT count(*) FILTER (WHERE j.status IN ('pending', 'running')) AS waiting,
       count(*) FILTER (WHERE j.status = 'completed') AS completed,
       count(*) FILTER (WHERE j.status = 'failed') AS failed,
       count(*) FILTER (WHERE j.status = 'cancelled') AS cancelled,
       min(j.error) FILTER (WHERE j.status = 'failed') AS error,
       min(j.error) FILTER (WHERE j.status = 'pending') AS waiting_error
FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
WHERE t.app_name = $1
  AND (j.status IN ('pending', 'running') OR j.created_at >= $2 OR j.completed_at >= $2)

-- name: now
SELECT engine_now()

-- name: forecast
-- app or null, user or null, days from now: how many memories there are, and how many would be archived then if none
-- were used
SELECT d.days,
       count(m.id) AS memories,
       count(m.id) FILTER (WHERE s.score < s.threshold AND NOT m.pinned
           AND m.created_at <= n + make_interval(secs => 86400 * (d.days - s.min_age_days))) AS weak
FROM unnest($3::double precision[]) AS d (days)
CROSS JOIN engine_now() AS n
LEFT JOIN memories AS m ON ($1::text IS NULL OR m.app_name = $1) AND ($2::text IS NULL OR m.user_id = $2)
LEFT JOIN app_policies AS rest ON rest.app_name = '*'
LEFT JOIN app_policies AS own ON own.app_name = m.app_name
CROSS JOIN LATERAL (SELECT
    retention_score(coalesce(own.retention_curve, rest.retention_curve), m.initial_score, m.access_count,
                    CASE WHEN NOT m.pinned THEN m.last_accessed_at END, coalesce(own.decay_rate, rest.decay_rate),
                    n + make_interval(secs => 86400 * d.days)) AS score,
    coalesce(own.cleanup_threshold, rest.cleanup_threshold) AS threshold,
    coalesce(own.min_age_days, rest.min_age_days) AS min_age_days) AS s
GROUP BY d.days ORDER BY d.days
