-- What a stable window holds of the user's other sessions.

-- name: earlier_turns
-- app, user, session or null, how many
-- The newest turns of the user's other sessions that were said before the session began, the newest first: they stay the
-- same while the session continues. changed: what holds instead now ('' if nothing does), since changed_at.
SELECT 'memory' AS context_type, 'message' AS source, m.id, m.role::text AS kind, m.author,
       left(m.content, 500001) AS content, 1::double precision AS relevance, m.thread_id, m.sequence_num AS from_seq,
       m.sequence_num AS upto_seq, m.occurred_at, m.session_id::text AS session_id, ARRAY[m.sequence_num] AS source_seqs,
       NULL::uuid AS beside, o.holds AS changed, o.since AS changed_at
FROM (
    SELECT g.*, t.session_id
    FROM (SELECT s.* FROM threads AS s
          WHERE s.app_name = $1 AND s.user_id = $2 AND s.session_id IS DISTINCT FROM $3 AND NOT has_expired(s)
          ORDER BY s.last_event_at DESC NULLS LAST, s.id LIMIT 500) AS t
    CROSS JOIN LATERAL (
        SELECT * FROM messages AS x
        WHERE x.thread_id = t.id
          AND x.occurred_at < coalesce((SELECT b.created_at FROM threads AS b
                                        WHERE b.app_name = $1 AND b.user_id = $2 AND b.session_id = $3), engine_now())
        ORDER BY x.sequence_num DESC LIMIT $4) AS g
    ORDER BY g.occurred_at DESC, g.thread_id, g.sequence_num DESC LIMIT $4) AS m
LEFT JOIN LATERAL (
    SELECT o.holds, o.since FROM (SELECT coalesce(x.holds, '') AS holds, x.since, x.thread_id, x.sequence_num
                                  FROM outdated_turns($1, $2) AS x) AS o
    WHERE o.thread_id = m.thread_id AND o.sequence_num = m.sequence_num
    ORDER BY o.since DESC LIMIT 1) AS o ON true
ORDER BY m.occurred_at DESC, m.thread_id, m.sequence_num DESC
