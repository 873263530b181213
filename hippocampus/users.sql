-- Every statement of the lists of apps and users.

-- name: list_apps
-- after this app (null: from the first), text that the name contains in any case, limit, names to examine at most,
-- rows to count at most; is_edge: the last name that was examined, which need not match. Each name costs three
-- index probes, however many rows it has.
WITH RECURSIVE names (app_name, number) AS (
    SELECT least((SELECT t.app_name FROM threads AS t WHERE $1::text IS NULL OR t.app_name > $1 ORDER BY 1 LIMIT 1),
                 (SELECT m.app_name FROM memories AS m WHERE $1::text IS NULL OR m.app_name > $1 ORDER BY 1 LIMIT 1),
                 (SELECT f.app_name FROM facts AS f WHERE $1::text IS NULL OR f.app_name > $1 ORDER BY 1 LIMIT 1)), 1
    UNION ALL
    SELECT least((SELECT t.app_name FROM threads AS t WHERE t.app_name > n.app_name ORDER BY 1 LIMIT 1),
                 (SELECT m.app_name FROM memories AS m WHERE m.app_name > n.app_name ORDER BY 1 LIMIT 1),
                 (SELECT f.app_name FROM facts AS f WHERE f.app_name > n.app_name ORDER BY 1 LIMIT 1)), n.number + 1
    FROM names AS n WHERE n.app_name IS NOT NULL AND n.number < $4
), found AS (
    SELECT n.app_name, strpos(lower(n.app_name), lower($2)) > 0 AS is_match, n.number = $4 AS is_edge
    FROM names AS n
    WHERE n.app_name IS NOT NULL AND (strpos(lower(n.app_name), lower($2)) > 0 OR n.number = $4)
    LIMIT $3
)
SELECT f.app_name, f.is_match, f.is_edge,
       (SELECT count(*) FILTER (WHERE s.is_open)
        FROM (SELECT is_open(t) AS is_open FROM threads AS t WHERE t.app_name = f.app_name AND f.is_match LIMIT $5) AS s)
           AS sessions,
       (SELECT count(*) FROM (SELECT FROM memories AS m WHERE m.app_name = f.app_name AND f.is_match LIMIT $5) AS m)
           AS memories,
       (SELECT count(*) FROM (SELECT FROM facts AS k WHERE k.app_name = f.app_name AND f.is_match LIMIT $5) AS k)
           AS facts
FROM found AS f ORDER BY f.app_name

-- name: list_users
-- app, after this user (null: from the first), text that the name contains in any case, limit, names to examine at
-- most, rows to count at most; is_edge: the last name that was examined, which need not match
WITH RECURSIVE names (user_id, number) AS (
    SELECT least((SELECT t.user_id FROM threads AS t WHERE t.app_name = $1 AND ($2::text IS NULL OR t.user_id > $2)
                  ORDER BY 1 LIMIT 1),
                 (SELECT m.user_id FROM memories AS m WHERE m.app_name = $1 AND ($2::text IS NULL OR m.user_id > $2)
                  ORDER BY 1 LIMIT 1),
                 (SELECT f.user_id FROM facts AS f WHERE f.app_name = $1 AND ($2::text IS NULL OR f.user_id > $2)
                  ORDER BY 1 LIMIT 1)), 1
    UNION ALL
    SELECT least((SELECT t.user_id FROM threads AS t WHERE t.app_name = $1 AND t.user_id > n.user_id
                  ORDER BY 1 LIMIT 1),
                 (SELECT m.user_id FROM memories AS m WHERE m.app_name = $1 AND m.user_id > n.user_id
                  ORDER BY 1 LIMIT 1),
                 (SELECT f.user_id FROM facts AS f WHERE f.app_name = $1 AND f.user_id > n.user_id
                  ORDER BY 1 LIMIT 1)), n.number + 1
    FROM names AS n WHERE n.user_id IS NOT NULL AND n.number < $5
), found AS (
    SELECT n.user_id, strpos(lower(n.user_id), lower($3)) > 0 AS is_match, n.number = $5 AS is_edge
    FROM names AS n
    WHERE n.user_id IS NOT NULL AND (strpos(lower(n.user_id), lower($3)) > 0 OR n.number = $5)
    LIMIT $4
)
SELECT f.user_id, f.is_match, f.is_edge, t.sessions, t.waiting_events, t.last_active_at, said.session_id AS last_session_id,
       said.role::text AS last_role, said.content AS last_text, said.occurred_at AS last_said_at,
       (SELECT count(*) FROM (SELECT FROM memories AS m
                              WHERE m.app_name = $1 AND m.user_id = f.user_id AND f.is_match LIMIT $6) AS m) AS memories,
       (SELECT count(*) FROM (SELECT FROM facts AS k
                              WHERE k.app_name = $1 AND k.user_id = f.user_id AND f.is_match LIMIT $6) AS k) AS facts
FROM found AS f
-- The newest sessions by their ids, which rise with time. An expired one, or one of the memory alone, is not a session.
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE n.is_open) AS sessions,
           coalesce(sum(n.last_seq - n.fast_upto_seq) FILTER (WHERE NOT n.has_expired), 0)::bigint AS waiting_events,
           max(n.updated_at) FILTER (WHERE n.is_open AND n.last_seq > 0) AS last_active_at,
           (array_agg(n.id ORDER BY n.updated_at DESC) FILTER (WHERE n.is_open AND n.last_seq > 0))[1] AS newest_id
    FROM (SELECT each.id, each.last_seq, each.fast_upto_seq, each.updated_at, is_open(each) AS is_open,
                 has_expired(each) AS has_expired
          FROM threads AS each
          WHERE each.app_name = $1 AND each.user_id = f.user_id AND each.session_id <> '' AND f.is_match
          ORDER BY each.id DESC LIMIT $6) AS n
) AS t
LEFT JOIN LATERAL (
    SELECT h.session_id, m.role, left(m.content, 280) AS content, m.occurred_at
    FROM threads AS h JOIN messages AS m ON m.thread_id = h.id
    WHERE h.id = t.newest_id ORDER BY m.sequence_num DESC LIMIT 1
) AS said ON true
ORDER BY f.user_id
