-- What a consolidation job read and wrote.

-- name: job_scope
-- job, app, user: its session, and the turns that it reads, as far as it has not ended. Also where it is archived;
-- not of an expired session, whose turns nothing else shows.
SELECT t.session_id, t.id AS thread_id,
       CASE j.job_type WHEN 'fast_replay' THEN t.fast_upto_seq WHEN 'deep_reflection' THEN t.deep_upto_seq
                       ELSE least(t.fast_upto_seq, t.deep_upto_seq) END + 1 AS from_seq,
       j.upto_seq, j.status IN ('pending', 'running', 'failed') AS is_open
FROM (SELECT id, thread_id, job_type, status, upto_seq FROM consolidation_jobs WHERE id = $1
      UNION ALL
      SELECT id, thread_id, job_type, status, upto_seq FROM consolidation_jobs_archive WHERE id = $1) AS j
JOIN threads AS t ON t.id = j.thread_id
WHERE t.app_name = $2 AND t.user_id = $3 AND NOT has_expired(t)
LIMIT 1

-- name: job_writes
-- job, its thread, app, user, limit: what is stored of it, in force, archived or superseded
SELECT d.source, d.id, d.row_id, d.kind, d.content, d.thread_id, NULL::text AS session_id, d.from_seq, d.upto_seq,
       d.source_seqs, d.job_id, d.prompt_hash, d.model, d.recorded_at
FROM drawn AS d
WHERE d.app_name = $3 AND d.user_id = $4 AND d.thread_id = $2 AND d.job_id = $1
      -- A fact is its current version.
      AND d.source <> 'fact'
ORDER BY d.source DESC, d.kind, d.recorded_at, d.row_id LIMIT $5

-- name: job_turns
-- thread, from, upto, limit
SELECT m.id, m.sequence_num, m.role::text AS role, m.author, m.content, m.occurred_at, count(*) OVER () AS total
FROM messages AS m WHERE m.thread_id = $1 AND m.sequence_num BETWEEN $2 AND $3
ORDER BY m.sequence_num LIMIT $4
