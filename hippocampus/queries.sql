-- Every statement that the memory runs.

-- name: read_slice
-- job, stage ('fast', 'deep'; null: the job's next), tokens at most, turns at most
-- One row per message of the slice, ascending; one row without a message where there is none; none without the job.
WITH asked AS (
    SELECT j.id AS job_id, j.thread_id, j.job_type, j.status, j.attempts, j.result, j.started_at, j.created_at,
           t.last_seq, s.stage, CASE s.stage WHEN 'fast' THEN t.fast_upto_seq ELSE t.deep_upto_seq END AS after_seq,
           j.job_type = 'full_consolidation' AND s.stage = 'deep' AND t.fast_upto_seq < j.upto_seq AS is_behind
    FROM consolidation_jobs AS j
    JOIN threads AS t ON t.id = j.thread_id
    CROSS JOIN LATERAL (SELECT coalesce($2::text, CASE
        WHEN j.job_type = 'deep_reflection' OR j.result ? 'summary' THEN 'deep' ELSE 'fast' END) AS stage) AS s
    WHERE j.id = $1
), ahead AS (
    SELECT m.sequence_num, m.author, m.role, m.content, m.occurred_at,
           row_number() OVER (ORDER BY m.sequence_num) AS place,
           sum(m.token_estimate) OVER (ORDER BY m.sequence_num) AS tokens
    FROM asked CROSS JOIN LATERAL (
        SELECT * FROM messages WHERE thread_id = asked.thread_id AND sequence_num > asked.after_seq
        ORDER BY sequence_num LIMIT $4::integer + 1) AS m
), fits AS (
    SELECT *, lead(sequence_num) OVER (ORDER BY sequence_num) AS following,
           place = 1 OR (tokens <= $3 AND place <= $4) AS within
    FROM ahead
)
SELECT asked.*, f.sequence_num, f.author, f.role, f.content AS text, f.occurred_at, f.following
FROM asked LEFT JOIN fits AS f ON f.within
ORDER BY f.sequence_num

-- name: lock_slice
-- thread, stage, watermark as it was read
SELECT lock_slice($1, $2, $3)

-- name: store_slice
-- thread, stage, new watermark, origin, memories, vectors of messages, facts, follow-up's type or null, backfill
SELECT memory_ids, fact_ids, fact_outcomes, follow_up
FROM store_slice($1, $2, $3, $4::slice_origin, $5::memory_input[], $6::message_vector[], $7::fact_input[], $8, $9)

-- name: keep_job_result
-- job, result so far
UPDATE consolidation_jobs SET result = $2 WHERE id = $1

-- name: enqueue_consolidation
-- thread, job type
SELECT job_id FROM enqueue_consolidation($1, $2)

-- name: get_job
-- job
SELECT * FROM consolidation_jobs WHERE id = $1
