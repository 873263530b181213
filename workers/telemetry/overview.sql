-- The installation as a whole.

-- name: totals
SELECT (SELECT count(*) FROM threads) AS sessions, (SELECT coalesce(sum(last_seq), 0)::bigint FROM threads) AS events,
       (SELECT count(*) FROM memories) AS memories, (SELECT count(*) FROM facts) AS facts

-- name: spend
-- The calls and tokens of models for all sessions that exist.
SELECT coalesce(sum(generate_calls), 0)::bigint AS generate_calls, coalesce(sum(embed_calls), 0)::bigint AS embed_calls,
       coalesce(sum(prompt_tokens), 0)::bigint AS prompt_tokens,
       coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
       coalesce(sum(reused_replies), 0)::bigint AS reused_replies
FROM memory_costs

-- name: lag
-- Events that are not consolidated, of apps that consolidate: sessions, events, the age of the oldest such event
SELECT s.stage, count(*) AS sessions, sum(t.last_seq - s.upto_seq)::bigint AS events,
       extract(epoch FROM engine_now() - min(e.created_at))::double precision AS oldest_seconds
FROM threads AS t
LEFT JOIN app_policies AS rest ON rest.app_name = '*'
LEFT JOIN app_policies AS own ON own.app_name = t.app_name
CROSS JOIN LATERAL (VALUES ('fast_replay', t.fast_upto_seq), ('deep_reflection', t.deep_upto_seq))
    AS s (stage, upto_seq)
LEFT JOIN events AS e ON e.thread_id = t.id AND e.sequence_num = s.upto_seq + 1
WHERE s.upto_seq < t.last_seq AND coalesce(own.consolidate, rest.consolidate)
GROUP BY s.stage ORDER BY s.stage DESC

-- name: failures
-- limit: failed jobs by the code of their last error, the most frequent first
SELECT coalesce(error_code, 'no code') AS error_code, count(*) AS jobs,
       extract(epoch FROM engine_now() - max(completed_at))::double precision AS last_seconds
FROM consolidation_jobs WHERE status = 'failed' GROUP BY 1 ORDER BY jobs DESC, 1 LIMIT $1

-- name: live_processes
-- seconds: processes that reported within this many seconds
SELECT role, host, port, pid, extract(epoch FROM now() - started_at)::double precision AS up_seconds,
       extract(epoch FROM now() - seen_at)::double precision AS seen_seconds
FROM metrics_targets WHERE seen_at > now() - make_interval(secs => $1) ORDER BY role, host, port

-- name: queues
-- The queues: jobs that wait, run and failed, and the age of the oldest that waits.
SELECT d.queue_name AS queue,
       coalesce(sum(d.jobs) FILTER (WHERE d.status = 'todo'), 0)::bigint AS waiting,
       coalesce(sum(d.jobs) FILTER (WHERE d.status = 'doing'), 0)::bigint AS running,
       coalesce(sum(d.jobs) FILTER (WHERE d.status = 'failed'), 0)::bigint AS failed,
       max(a.oldest_seconds) AS oldest_seconds
FROM queue_depths() AS d LEFT JOIN queue_ages() AS a ON a.queue_name = d.queue_name
GROUP BY d.queue_name ORDER BY d.queue_name

-- name: breakers
SELECT name, state, reason, probe_seconds, since_seconds FROM call_breaker_states()

-- name: limits
SELECT name, blocked_seconds, reason FROM call_limit_states()

-- name: texts_without_vector
-- Texts without a vector because a model refused them, by model.
SELECT model, count(*) AS texts FROM embedding_refusals GROUP BY model

-- name: failed_jobs
-- limit: those that failed last
SELECT j.id, t.app_name, t.user_id, t.session_id, j.job_type, j.attempts, j.error_code, j.error, j.completed_at
FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
WHERE j.status = 'failed' ORDER BY j.completed_at DESC LIMIT $1

-- name: hours
-- hours, rows to count at most in an hour, and of archived jobs in all, the newest. Turns are counted by their ids, which begin with the time (`new_id`).
WITH hours AS (
    SELECT s.start, s.start + interval '1 hour' AS finish
    FROM generate_series(date_trunc('hour', engine_now(), 'UTC') - make_interval(hours => $1 - 1), engine_now(),
                         interval '1 hour') AS s (start)
), ids AS (
    SELECT h.*, (SELECT (overlay(lpad(to_hex((extract(epoch FROM b.at) * 4096000)::bigint), 15, '0') PLACING '7' FROM 13 FOR 0)
                         || '0000000000000000')::uuid FROM (VALUES (h.start)) AS b (at)) AS first_id,
           (SELECT (overlay(lpad(to_hex((extract(epoch FROM b.at) * 4096000)::bigint), 15, '0') PLACING '7' FROM 13 FOR 0)
                    || '0000000000000000')::uuid FROM (VALUES (h.finish)) AS b (at)) AS next_id
    FROM hours AS h
), archived AS (
    SELECT date_trunc('hour', a.completed_at, 'UTC') AS start, count(*) FILTER (WHERE a.status = 'completed') AS completed,
           count(*) FILTER (WHERE a.status = 'failed') AS failed
    FROM (SELECT status, completed_at FROM consolidation_jobs_archive
          WHERE archived_at >= (SELECT min(h.start) FROM hours AS h) AND completed_at >= (SELECT min(h.start) FROM hours AS h)
          ORDER BY archived_at DESC LIMIT $2) AS a
    GROUP BY 1
)
SELECT i.start, m.turns, j.completed + coalesce(a.completed, 0) AS jobs_completed,
       j.failed + coalesce(a.failed, 0) AS jobs_failed, x.calls AS tool_calls,
       x.failed AS tool_calls_failed
FROM ids AS i
LEFT JOIN archived AS a ON a.start = i.start
CROSS JOIN LATERAL (
    SELECT count(*) AS turns FROM (SELECT FROM messages WHERE id >= i.first_id AND id < i.next_id LIMIT $2) AS m) AS m
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE u.status = 'completed') AS completed, count(*) FILTER (WHERE u.status = 'failed') AS failed
    FROM (
        (SELECT status FROM consolidation_jobs
         WHERE status IN ('completed', 'cancelled') AND completed_at >= i.start AND completed_at < i.finish LIMIT $2)
        UNION ALL
        (SELECT status FROM consolidation_jobs
         WHERE status = 'failed' AND completed_at >= i.start AND completed_at < i.finish LIMIT $2)) AS u) AS j
CROSS JOIN LATERAL (
    SELECT count(*) AS calls, count(*) FILTER (WHERE e.status IN ('failed', 'timeout', 'unknown')) AS failed
    FROM (SELECT status FROM tool_executions WHERE created_at >= i.start AND created_at < i.finish LIMIT $2) AS e) AS x
ORDER BY i.start

-- name: day_costs
-- days, jobs to read at most: calls and tokens of the jobs that ended, by day and app; usage: the tokens by model
SELECT m.day, m.app_name, sum(m.jobs)::bigint AS jobs, sum(m.generate_calls)::bigint AS generate_calls,
       sum(m.embed_calls)::bigint AS embed_calls, sum(m.prompt_tokens)::bigint AS prompt_tokens,
       sum(m.output_tokens)::bigint AS output_tokens,
       coalesce(jsonb_agg(jsonb_build_object('model', m.model, 'prompt_tokens', m.prompt_tokens,
                                             'output_tokens', m.output_tokens) ORDER BY m.model)
                FILTER (WHERE m.prompt_tokens + m.output_tokens > 0), '[]') AS usage
FROM (SELECT date_trunc('day', j.completed_at, 'UTC') AS day, j.app_name, j.cost ->> 'model' AS model, count(*) AS jobs,
       coalesce(sum((j.cost ->> 'generate_calls')::bigint), 0)::bigint AS generate_calls,
       coalesce(sum((j.cost ->> 'embed_calls')::bigint), 0)::bigint AS embed_calls,
       coalesce(sum((j.cost ->> 'prompt_tokens')::bigint), 0)::bigint AS prompt_tokens,
       coalesce(sum((j.cost ->> 'output_tokens')::bigint), 0)::bigint AS output_tokens
FROM (
    (SELECT c.completed_at, t.app_name, c.result -> 'cost' AS cost
     FROM consolidation_jobs AS c JOIN threads AS t ON t.id = c.thread_id
     WHERE c.status IN ('completed', 'cancelled')
       AND c.completed_at >= date_trunc('day', engine_now(), 'UTC') - make_interval(days => $1 - 1) LIMIT $2)
    UNION ALL
    (SELECT a.completed_at, a.app_name, a.result -> 'cost' FROM consolidation_jobs_archive AS a
     WHERE a.archived_at >= date_trunc('day', engine_now(), 'UTC') - make_interval(days => $1 - 1)
       AND a.completed_at >= date_trunc('day', engine_now(), 'UTC') - make_interval(days => $1 - 1)
       AND a.app_name IS NOT NULL LIMIT $2)) AS j
GROUP BY 1, 2, 3) AS m
GROUP BY m.day, m.app_name ORDER BY m.day DESC, m.app_name

-- name: pulse_scopes
-- The instances of the autonomic layer.
SELECT scope FROM pulse_scopes ORDER BY scope

-- name: oldest_webhook_seconds
SELECT oldest_webhook_seconds()
