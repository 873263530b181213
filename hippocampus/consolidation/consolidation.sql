-- The statements that derive memories, in the order of the modules that run them.

-- name: read_slice
-- job, stage ('fast', 'deep'; null: the job's next), tokens at most, turns at most
-- One row per message of the slice, ascending; one row without a message where there is none; none without the job.
WITH asked AS (
    SELECT j.id AS job_id, j.thread_id, j.job_type, j.status, j.attempts, j.result, j.started_at, j.created_at,
           t.app_name, t.user_id, t.session_id, t.last_seq, t.erasures, (app_policy(t.app_name)).redaction, s.stage,
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
           row_number() OVER (ORDER BY m.sequence_num) AS rank,
           sum(m.token_estimate) OVER (ORDER BY m.sequence_num) AS tokens
    FROM asked CROSS JOIN LATERAL (
        SELECT * FROM messages WHERE thread_id = asked.thread_id AND sequence_num > asked.after_seq
        ORDER BY sequence_num LIMIT $4::integer + 1) AS m
), fits AS (
    SELECT *, lead(sequence_num) OVER (ORDER BY sequence_num) AS following,
           rank = 1 OR (tokens <= $3 AND rank <= $4) AS within
    FROM ahead
)
SELECT asked.*, f.sequence_num, f.author, f.role, f.content AS text, f.occurred_at, f.following,
       r.input_hash AS kept_hash, CASE WHEN f.rank = 1 THEN r.reply END AS kept_reply,
       r.vectors_hash AS kept_vectors_hash, CASE WHEN f.rank = 1 THEN r.vectors END AS kept_vectors
FROM asked LEFT JOIN fits AS f ON f.within
LEFT JOIN model_replies AS r ON r.thread_id = asked.thread_id AND r.stage = asked.stage
ORDER BY f.sequence_num

-- name: known_facts
-- thread, facts at most; what holds of its user, stated last first. By the clock: the transaction may have waited since
-- it began for one that ended a fact.
SELECT f.fact_type, f.key, f.value, f.confidence
FROM threads AS t JOIN facts AS f ON f.app_name = t.app_name AND f.user_id = t.user_id
WHERE t.id = $1 AND (f.valid_until IS NULL OR f.valid_until > (SELECT recording_time()))
ORDER BY coalesce(f.last_said_at, f.valid_from) DESC, f.id DESC LIMIT $2

-- name: known_facts_as_of
-- thread, facts at most, time; what held of its user then, stated last first
SELECT f.fact_type, f.key, f.value, f.confidence
FROM threads AS t CROSS JOIN LATERAL facts_as_of(t.app_name, t.user_id, $3, NULL) AS f
WHERE t.id = $1
ORDER BY f.valid_from DESC, f.id DESC LIMIT $2

-- name: known_insights
-- thread, limit: the newest insights of its user
SELECT m.id, left(m.content, 300) AS content FROM memories AS m JOIN threads AS t ON t.id = $1
WHERE m.app_name = t.app_name AND m.user_id = t.user_id AND m.memory_type = 'semantic'
ORDER BY m.created_at DESC, m.id DESC LIMIT $2

-- name: lock_slice
-- thread, stage, watermark and erasures as they were read
SELECT lock_slice($1, $2, $3, $4)

-- name: lock_user_memory
-- app, user; until the transaction ends, no other process changes what is known of the user
SELECT lock_user_memory($1, $2)

-- name: store_slice
-- thread, stage, new watermark, origin, memories, vectors of messages, facts, follow-up's type or null, backfill,
-- generate calls, embed calls, prompt tokens, output tokens, reused replies
WITH stored AS MATERIALIZED (
    SELECT *
    FROM store_slice($1, $2, $3, $4::slice_origin, $5::memory_input[], $6::message_vector[], $7::fact_input[], $8, $9)
)
SELECT memory_ids, fact_ids, fact_outcomes, follow_up, record_cost($1, $2, $10, $11, $12, $13, $14) AS booked
FROM stored

-- name: propose_instructions
-- thread, origin, proposals
SELECT propose_instructions($1, $2::slice_origin, $3::proposal_input[])

-- name: keep_job_result
-- job, result so far
UPDATE consolidation_jobs SET result = $2 WHERE id = $1

-- name: save_reply
-- thread, stage, erasures as they were read, hash of the input, reply
SELECT save_model_reply($1, $2, $3, $4, $5)

-- name: save_vectors
-- thread, stage, erasures as they were read, hash of the input, what is known of a reply that is not kept, hash of the
-- texts, their vectors
SELECT save_model_vectors($1, $2, $3, $4, $5, $6, $7)

-- name: list_vectorless
-- model, limit; texts that may have a vector of this model and have none
SELECT source, id, content, former_model FROM list_vectorless($1, $2)

-- name: give_memory_vectors
-- rows as they were read, with their vectors; model; how many took it. Locked rows are skipped, not waited for.
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
-- rows as they were read, with their vectors; model; how many took it. Locked rows are skipped, not waited for.
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
-- rows as they were read, with their vectors; model; how many took it. Locked rows are skipped, not waited for.
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

-- name: begin_replay
-- audited
-- app, user, session id (null: all of the user's), fingerprint
SELECT begin_replay($1, $2, $3, $4)

-- name: next_replay_slice
-- replay, tokens at most, turns at most
-- One row per message of the next slice to derive, ascending; one row without a message if the rest of it is blank; none once
-- everything is derived.
WITH asked AS (
    SELECT p.thread_id, p.stage, p.watermark, p.drawn_seq
    FROM replays AS r CROSS JOIN LATERAL replay_progress(r) AS p
    WHERE r.id = $1 AND p.drawn_seq < p.watermark
    ORDER BY p.thread_id, p.stage DESC LIMIT 1
), ahead AS (
    SELECT m.sequence_num, m.author, m.role, m.content, m.occurred_at,
           row_number() OVER (ORDER BY m.sequence_num) AS rank,
           sum(m.token_estimate) OVER (ORDER BY m.sequence_num) AS tokens
    FROM asked CROSS JOIN LATERAL (
        SELECT * FROM messages
        WHERE thread_id = asked.thread_id AND sequence_num > asked.drawn_seq AND sequence_num <= asked.watermark
        ORDER BY sequence_num LIMIT $3::integer + 1) AS m
), fits AS (
    SELECT *, lead(sequence_num) OVER (ORDER BY sequence_num) AS following,
           rank = 1 OR (tokens <= $2 AND rank <= $3) AS within
    FROM ahead
), cut AS (
    SELECT asked.*, coalesce((SELECT max(sequence_num) FROM fits WHERE within AND following IS NOT NULL
                              AND sequence_num = (SELECT max(sequence_num) FROM fits WHERE within)),
                             asked.watermark) AS upto_seq
    FROM asked
)
SELECT cut.thread_id, cut.stage, cut.drawn_seq + 1 AS from_seq, cut.upto_seq,
       slice_digest(cut.thread_id, cut.drawn_seq + 1, cut.upto_seq) AS digest,
       f.sequence_num, f.author, f.role, f.content AS text, f.occurred_at,
       (SELECT (app_policy(t.app_name)).redaction FROM threads AS t WHERE t.id = cut.thread_id) AS redaction
FROM cut LEFT JOIN fits AS f ON f.within
ORDER BY f.sequence_num

-- name: reuse_answer
-- replay, thread, stage, from, upto, digest of its turns, hash of its input; takes over the answer to the same question about the same user
INSERT INTO replay_draws (replay_id, thread_id, stage, from_seq, upto_seq, said, input_hash, origin, memories, vectors,
                          facts, vectorless)
SELECT $1, $2, $3, $4, $5, $6, $7, d.origin, d.memories, d.vectors, d.facts, d.vectorless
FROM threads AS mine
JOIN threads AS t ON t.app_name = mine.app_name AND t.user_id = mine.user_id
JOIN replay_draws AS d ON d.thread_id = t.id AND d.input_hash = $7 AND NOT d.vectorless
WHERE mine.id = $2 LIMIT 1
ON CONFLICT DO NOTHING
RETURNING true

-- name: keep_answer
-- replay, thread, stage, from, upto, digest of its turns, hash of its input, origin, memories, vectors, facts, vectorless
INSERT INTO replay_draws (replay_id, thread_id, stage, from_seq, upto_seq, said, input_hash, origin, memories, vectors,
                          facts, vectorless)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8::slice_origin, $9::memory_input[], $10::message_vector[], $11::fact_input[], $12)
ON CONFLICT DO NOTHING

-- name: swap_replay
-- audited
-- replay
SELECT * FROM swap_replay($1)

-- name: user_facts
-- app, user; what holds, to compare
SELECT fact_type, key, value FROM facts
WHERE app_name = $1 AND user_id = $2 AND (valid_until IS NULL OR valid_until > engine_now()) ORDER BY fact_type, key

-- name: next_rederivation
-- those to leave out (uuid[]), turns at most; the oldest slice that waits, with its turns that are left
SELECT r.id AS redraw_id, r.stage, r.thread_id, r.from_seq, r.upto_seq, t.erasures,
       m.sequence_num, m.author, m.role, m.content AS text, m.occurred_at, (app_policy(t.app_name)).redaction
FROM (SELECT * FROM slice_redraws WHERE id <> ALL ($1::uuid[]) ORDER BY id LIMIT 1) AS r
JOIN threads AS t ON t.id = r.thread_id
LEFT JOIN LATERAL (
    SELECT * FROM messages AS g
    WHERE g.thread_id = r.thread_id AND g.sequence_num BETWEEN r.from_seq AND r.upto_seq AND g.content ~ '\S'
    ORDER BY g.sequence_num LIMIT $2) AS m ON true
ORDER BY m.sequence_num

-- name: store_rederivation
-- slice, erasures as they were read, origin, memories, facts, last sequence number derived, backfill
SELECT store_redraw($1, $2, $3::slice_origin, $4::memory_input[], $5::fact_input[], $6, $7)

-- name: fill_vectors
-- vectors at most; how many were copied
SELECT fill_vectors($1)

-- name: vector_index_changes
-- vectors of one scope beyond which their model has an index; the statements that are due
SELECT statement FROM vector_index_changes($1)
