-- Every statement that the memory runs.

-- name: read_slice
-- job, stage ('fast', 'deep'; null: the job's next), tokens at most, turns at most
-- One row per message of the slice, ascending; one row without a message where there is none; none without the job.
WITH asked AS (
    SELECT j.id AS job_id, j.thread_id, j.job_type, j.status, j.attempts, j.result, j.started_at, j.created_at,
           t.last_seq, t.erasures, s.stage,
           CASE s.stage WHEN 'fast' THEN t.fast_upto_seq ELSE t.deep_upto_seq END AS after_seq,
           j.job_type = 'full_consolidation' AND s.stage = 'deep' AND t.fast_upto_seq < j.upto_seq AS is_behind,
           EXISTS (SELECT FROM consolidation_jobs AS f
                   WHERE f.thread_id = j.thread_id AND f.status = 'failed'
                     AND f.job_type IN (CASE s.stage WHEN 'fast' THEN 'fast_replay' ELSE 'deep_reflection' END,
                                        'full_consolidation')
                     AND f.upto_seq > CASE s.stage WHEN 'fast' THEN t.fast_upto_seq ELSE t.deep_upto_seq END) AS is_stuck
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
SELECT asked.*, f.sequence_num, f.author, f.role, f.content AS text, f.occurred_at, f.following,
       r.input_hash AS kept_hash, CASE WHEN f.place = 1 THEN r.reply END AS kept_reply
FROM asked LEFT JOIN fits AS f ON f.within
LEFT JOIN model_replies AS r ON r.thread_id = asked.thread_id AND r.stage = asked.stage
ORDER BY f.sequence_num

-- name: lock_slice
-- thread, stage, watermark and erasures as they were read
SELECT lock_slice($1, $2, $3, $4)

-- name: store_slice
-- thread, stage, new watermark, origin, memories, vectors of messages, facts, follow-up's type or null, backfill,
-- generate calls, embed calls, prompt tokens, output tokens, reused replies
WITH stored AS MATERIALIZED (
    SELECT *
    FROM store_slice($1, $2, $3, $4::slice_origin, $5::memory_input[], $6::message_vector[], $7::fact_input[], $8, $9)
)
SELECT memory_ids, fact_ids, fact_outcomes, follow_up, record_cost($1, $2, $10, $11, $12, $13, $14) AS booked
FROM stored

-- name: save_reply
-- thread, stage, erasures as they were read, hash of the input, reply
SELECT save_model_reply($1, $2, $3, $4, $5)

-- name: keep_job_result
-- job, result so far
UPDATE consolidation_jobs SET result = $2 WHERE id = $1

-- name: enqueue_consolidation
-- thread, job type
SELECT job_id FROM enqueue_consolidation($1, $2)

-- name: get_job
-- job
SELECT * FROM consolidation_jobs WHERE id = $1

-- name: enqueue_session
-- app, user, session id, job type; no row where there is no such session
SELECT q.job_id
FROM (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2 AND session_id = $3) AS t
CROSS JOIN LATERAL enqueue_consolidation(t.id, $4) AS q

-- name: find_job
-- job, app or null, user or null; also where it is archived, unless a user is asked for: the archive keeps none
SELECT j.id, j.thread_id, j.job_type, j.status, j.attempts, j.result, j.error, j.error_code, j.raw_reply, j.started_at,
       j.completed_at, j.created_at
FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
WHERE j.id = $1 AND ($2::text IS NULL OR t.app_name = $2) AND ($3::text IS NULL OR t.user_id = $3)
UNION ALL
SELECT a.id, a.thread_id, a.job_type, a.status, a.attempts, a.result, a.error, a.error_code, a.raw_reply, a.started_at,
       a.completed_at, a.created_at
FROM consolidation_jobs_archive AS a
WHERE a.id = $1 AND ($2::text IS NULL OR a.app_name = $2) AND $3::text IS NULL
LIMIT 1

-- name: list_jobs
-- app, user, session id, status, job type, error code (each null: any), before this job (null: from the newest), limit
SELECT j.id, j.thread_id, j.job_type, j.status, j.attempts, j.result, j.error, j.error_code, j.raw_reply, j.started_at,
       j.completed_at, j.created_at
FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
WHERE ($1::text IS NULL OR t.app_name = $1) AND ($2::text IS NULL OR t.user_id = $2)
  AND ($3::text IS NULL OR t.session_id = $3) AND ($4::text IS NULL OR j.status = $4)
  AND ($5::text IS NULL OR j.job_type = $5) AND ($6::text IS NULL OR j.error_code = $6)
  AND ($7::uuid IS NULL OR j.id < $7)
ORDER BY j.id DESC
LIMIT $8

-- name: cancel_job
-- job
SELECT cancel_job($1)

-- name: retry_job
-- job
SELECT retry_failed_job($1)

-- name: session_exists
-- app or null, user or null, session
SELECT EXISTS (SELECT FROM threads WHERE ($1::text IS NULL OR app_name = $1) AND ($2::text IS NULL OR user_id = $2)
               AND session_id = $3)

-- name: list_memories
-- app, user, memory type, session id, said since, said until (each null: any), limit, offset
SELECT m.id, m.thread_id, m.user_id, m.app_name, m.memory_type, m.content, m.metadata, m.access_count, m.pinned,
       m.from_seq, m.upto_seq, m.created_at, m.occurred_at, retention_score(m, p, n) AS retention_score
FROM memories AS m
CROSS JOIN app_policy($1) AS p
CROSS JOIN engine_now() AS n
LEFT JOIN threads AS t ON t.id = m.thread_id
WHERE m.app_name = $1 AND m.user_id = $2 AND ($3::text IS NULL OR m.memory_type = $3)
  AND ($4::text IS NULL OR t.session_id = $4)
  AND ($5::timestamptz IS NULL OR m.occurred_at >= $5) AND ($6::timestamptz IS NULL OR m.occurred_at < $6)
ORDER BY retention_score DESC, m.created_at DESC, m.id DESC
LIMIT $7 OFFSET $8

-- name: list_facts
-- app, user, fact type, key (each null: any), true at, known at (null: now), limit, offset
SELECT f.id, f.thread_id, $2::text AS user_id, $1::text AS app_name, f.fact_type, f.key, f.value, f.confidence,
       f.source_seqs, f.valid_from, f.valid_until, f.recorded_at
FROM facts_as_of($1, $2, coalesce($5, engine_now()), coalesce($6, engine_now())) AS f
WHERE ($3::text IS NULL OR f.fact_type = $3) AND ($4::text IS NULL OR f.key = $4)
ORDER BY f.fact_type, f.key
LIMIT $7 OFFSET $8

-- name: fact_history
-- app, user, fact type, key; the current version first, then by when they stood
SELECT * FROM (
    SELECT id AS fact_id, thread_id, value, confidence, valid_from, valid_until, recorded_at,
           NULL::timestamptz AS superseded_at, 'current' AS outcome, source_seqs, job_id, prompt_hash, model
    FROM facts WHERE app_name = $1 AND user_id = $2 AND fact_type = $3 AND key = $4
    UNION ALL
    SELECT fact_id, thread_id, value, confidence, valid_from, valid_until, recorded_at, superseded_at, outcome,
           source_seqs, job_id, prompt_hash, model
    FROM fact_versions WHERE app_name = $1 AND user_id = $2 AND fact_type = $3 AND key = $4) AS h
ORDER BY superseded_at DESC NULLS FIRST, valid_from DESC, recorded_at DESC

-- name: put_instruction
-- app, key, content, metadata, expected version or null
SELECT * FROM put_instruction($1, $2, $3, $4, $5)

-- name: get_instruction
-- app, key, version (null: the newest)
SELECT * FROM instructions
WHERE app_name = $1 AND instruction_key = $2 AND ($3::integer IS NULL OR version = $3)
ORDER BY version DESC LIMIT 1

-- name: instruction_history
-- app, key, limit
SELECT * FROM instructions WHERE app_name = $1 AND instruction_key = $2 ORDER BY version DESC LIMIT $3

-- name: list_vectorless
-- model, limit; texts that may have a vector of this model and have none
SELECT source, id, content, former_model FROM list_vectorless($1, $2)

-- name: give_memory_vectors
-- rows as they were read, with their vectors; model; how many took it. What somebody holds is skipped, not waited for.
WITH given AS (
    SELECT r.id, v.embedding FROM unnest($1::vector_input[]) AS v JOIN memories AS r ON r.id = v.id
    WHERE r.content = v.content AND r.embedding_model IS NOT DISTINCT FROM v.former_model
    FOR UPDATE OF r SKIP LOCKED
), done AS (
    UPDATE memories AS r SET embedding = given.embedding, embedding_model = $2 FROM given WHERE r.id = given.id
    RETURNING 1
)
SELECT count(*) FROM done

-- name: give_fact_vectors
-- rows as they were read, with their vectors; model; how many took it. What somebody holds is skipped, not waited for.
WITH given AS (
    SELECT r.id, v.embedding FROM unnest($1::vector_input[]) AS v JOIN facts AS r ON r.id = v.id
    WHERE r.content = v.content AND r.embedding_model IS NOT DISTINCT FROM v.former_model
    FOR UPDATE OF r SKIP LOCKED
), done AS (
    UPDATE facts AS r SET embedding = given.embedding, embedding_model = $2 FROM given WHERE r.id = given.id
    RETURNING 1
)
SELECT count(*) FROM done

-- name: give_message_vectors
-- rows as they were read, with their vectors; model; how many took it. What somebody holds is skipped, not waited for.
WITH given AS (
    SELECT r.id, v.embedding FROM unnest($1::vector_input[]) AS v JOIN messages AS r ON r.id = v.id
    WHERE r.content = v.content AND r.embedding_model IS NOT DISTINCT FROM v.former_model
    FOR UPDATE OF r SKIP LOCKED
), done AS (
    UPDATE messages AS r SET embedding = given.embedding, embedding_model = $2 FROM given WHERE r.id = given.id
    RETURNING 1
)
SELECT count(*) FROM done

-- name: refuse_texts
-- source, rows as they were read, model, error codes
SELECT refuse_texts($1, $2::vector_input[], $3, $4)

-- name: prune_refusals
-- (nothing)
SELECT prune_refusals()

-- name: choose_embedding_model
-- model
SELECT choose_embedding_model($1)
