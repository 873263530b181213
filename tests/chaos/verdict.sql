-- The rules. Each statement returns one row per violation.
-- A statement sees one snapshot, so the rules of the first part hold at every moment, whatever is running.

-- name: events_renumbered
-- sessions, event ids, numbers as reported, texts as sent
SELECT l.session_id, l.event_id, l.sequence_num AS answered, e.sequence_num AS stored
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) AS l (session_id, event_id, sequence_num, said)
JOIN threads AS t ON t.session_id = l.session_id
LEFT JOIN events AS e ON e.thread_id = t.id AND e.id = l.event_id
LEFT JOIN messages AS m ON m.thread_id = t.id AND m.sequence_num = e.sequence_num AND m.event_id = e.id
WHERE e.sequence_num IS DISTINCT FROM l.sequence_num OR m.content IS DISTINCT FROM l.said
   OR e.content ->> 'text' IS DISTINCT FROM l.said

-- name: numbers_with_gaps
SELECT t.session_id, t.last_seq, count(e.id) AS events, max(e.sequence_num) AS highest
FROM threads AS t LEFT JOIN events AS e ON e.thread_id = t.id
GROUP BY t.id
HAVING count(DISTINCT e.sequence_num) <> t.last_seq OR count(e.id) <> t.last_seq
    OR coalesce(max(e.sequence_num), 0) <> t.last_seq

-- name: slices_broken
-- Summaries, raw slices and fact versions each tile their session from its first event on.
WITH slices AS (
    SELECT thread_id, memory_type AS kind, from_seq, upto_seq FROM memories WHERE memory_type IN ('summary', 'episodic')
    UNION ALL
    SELECT DISTINCT thread_id, 'fact', from_seq, upto_seq FROM fact_versions
), ordered AS (
    SELECT *, lag(upto_seq, 1, 0::bigint) OVER (PARTITION BY thread_id, kind ORDER BY from_seq, upto_seq) AS before
    FROM slices
)
SELECT t.session_id, o.kind, o.before, o.from_seq, o.upto_seq
FROM ordered AS o LEFT JOIN threads AS t ON t.id = o.thread_id
WHERE o.from_seq IS DISTINCT FROM o.before + 1 OR o.upto_seq IS NULL

-- name: watermarks_jumped
-- A watermark is at the end of the last stored slice, and never past the last event.
WITH reached AS (
    SELECT thread_id, memory_type AS kind, max(upto_seq) AS upto_seq FROM memories
    WHERE memory_type IN ('summary', 'episodic') GROUP BY thread_id, memory_type
    UNION ALL
    SELECT thread_id, 'fact', max(upto_seq)
    FROM fact_versions GROUP BY thread_id
)
SELECT t.session_id, k.kind, k.watermark, r.upto_seq, t.last_seq
FROM threads AS t
CROSS JOIN LATERAL (VALUES ('summary', t.fast_upto_seq), ('episodic', t.fast_upto_seq), ('fact', t.deep_upto_seq))
    AS k (kind, watermark)
LEFT JOIN reached AS r ON r.thread_id = t.id AND r.kind = k.kind
WHERE k.watermark <> coalesce(r.upto_seq, 0) OR k.watermark > t.last_seq

-- name: insights_not_once
-- Each consolidated event is the source of one insight.
SELECT t.session_id, e.sequence_num, count(m.id) AS insights
FROM threads AS t
JOIN events AS e ON e.thread_id = t.id AND e.sequence_num <= t.deep_upto_seq
LEFT JOIN memories AS m
    ON m.thread_id = t.id AND m.memory_type = 'semantic' AND m.source_seqs = ARRAY[e.sequence_num]
GROUP BY t.id, e.sequence_num
HAVING count(m.id) <> 1
UNION ALL
SELECT t.session_id, NULL, count(m.id)
FROM threads AS t LEFT JOIN memories AS m ON m.thread_id = t.id AND m.memory_type = 'semantic'
GROUP BY t.id
HAVING count(m.id) <> t.deep_upto_seq

-- name: facts_not_once
-- Each consolidated event names one word, which appears in one version of a fact.
WITH stated AS (
    SELECT f.thread_id, w.word, count(*) AS times
    FROM fact_versions AS f
    CROSS JOIN LATERAL jsonb_array_elements_text(
        CASE jsonb_typeof(f.value) WHEN 'array' THEN f.value ELSE jsonb_build_array(f.value) END) AS w (word)
    GROUP BY f.thread_id, w.word
), named AS (
    SELECT e.thread_id, 'plum-' || e.id AS word
    FROM threads AS t JOIN events AS e ON e.thread_id = t.id AND e.sequence_num <= t.deep_upto_seq
)
SELECT coalesce(n.thread_id, s.thread_id) AS thread_id, coalesce(n.word, s.word) AS word, coalesce(s.times, 0) AS times
FROM named AS n FULL JOIN stated AS s ON s.thread_id = n.thread_id AND s.word = n.word
WHERE n.word IS NULL OR s.times IS DISTINCT FROM 1

-- name: statuses_disagree
SELECT c.id, c.status, q.status::text AS queue_status
FROM consolidation_jobs AS c LEFT JOIN procrastinate_jobs AS q ON q.id = c.procrastinate_job_id
WHERE c.status IS DISTINCT FROM CASE q.status::text
    WHEN 'todo' THEN 'pending' WHEN 'doing' THEN 'running' WHEN 'succeeded' THEN 'completed'
    WHEN 'failed' THEN 'failed' WHEN 'cancelled' THEN 'cancelled' WHEN 'aborted' THEN 'cancelled' END

-- name: jobs_lost
-- The drill cancels no job.
SELECT q.id, q.task_name, q.status::text AS status
FROM procrastinate_jobs AS q WHERE q.status IN ('cancelled', 'aborted', 'aborting') OR q.abort_requested

-- name: jobs_stuck
-- seconds: running for longer than any fault lasts
SELECT q.id, q.task_name, q.worker_id, q.attempts
FROM procrastinate_jobs AS q
WHERE q.status = 'doing'
  AND (SELECT max(e.at) FROM procrastinate_events AS e WHERE e.job_id = q.id AND e.type = 'started')
      < clock_timestamp() - make_interval(secs => $1)

-- name: effects_not_once
-- An effect of the autonomic layer ends once; one that must not happen twice begins once.
SELECT e.id, e.key, d.kind, count(*) AS times
FROM pulse_events AS e JOIN pulse_events AS d ON d.ref = e.id
WHERE e.kind = 'effect' AND (d.kind IN ('effect-acked', 'effect-failed') OR (d.meta -> 'once') = 'true'::jsonb)
GROUP BY e.id, e.key, d.kind
HAVING count(*) > 1

-- Rules that hold once everything is drained.

-- name: effects_stuck
-- seconds: effects that were decided so long ago, and have not ended
SELECT e.id, e.key
FROM pulse_events AS e
WHERE e.kind = 'effect' AND e.occurred_at < clock_timestamp() - make_interval(secs => $1)
  AND NOT EXISTS (SELECT FROM pulse_events AS d
                  WHERE d.ref = e.id AND d.kind IN ('effect-acked', 'effect-failed'))

-- name: events_unknown
-- sessions, event ids as reported: events that are stored but were never reported
SELECT t.session_id, e.id
FROM events AS e JOIN threads AS t ON t.id = e.thread_id
WHERE NOT EXISTS (SELECT FROM unnest($1::text[], $2::text[]) AS l (session_id, event_id)
                  WHERE l.session_id = t.session_id AND l.event_id = e.id)

-- name: threads_behind
SELECT t.session_id, t.last_seq, t.fast_upto_seq, t.deep_upto_seq
FROM threads AS t WHERE t.fast_upto_seq <> t.last_seq OR t.deep_upto_seq <> t.last_seq

-- name: jobs_unfinished
SELECT c.id, c.job_type, c.status, c.attempts, c.error_code
FROM consolidation_jobs AS c WHERE c.status <> 'completed'

-- name: texts_without_vector
SELECT 'memory' AS kind, id FROM memories WHERE embedding IS NULL
UNION ALL
SELECT 'fact', id FROM facts WHERE embedding IS NULL
UNION ALL
SELECT 'message', m.id FROM messages AS m JOIN threads AS t ON t.id = m.thread_id
WHERE m.embedding IS NULL AND m.sequence_num <= t.fast_upto_seq

-- Queries during a run.

-- name: watermarks
SELECT session_id, fast_upto_seq, deep_upto_seq, last_seq FROM threads

-- name: attempts_of
-- worker: the jobs it runs
SELECT q.id, q.attempts FROM procrastinate_jobs AS q WHERE q.status = 'doing' AND q.worker_id = $1

-- name: still_held
-- worker, the queue's jobs: those that it still owns
SELECT q.id FROM procrastinate_jobs AS q WHERE q.status = 'doing' AND q.worker_id = $1 AND q.id = ANY ($2::bigint[])

-- name: taken_up
-- the queue's jobs, since: those that were started again, or ended, since then
SELECT q.id FROM procrastinate_jobs AS q
WHERE q.id = ANY ($1::bigint[])
  AND (q.status NOT IN ('todo', 'doing')
       OR EXISTS (SELECT FROM procrastinate_events AS e WHERE e.job_id = q.id AND e.type = 'started' AND e.at > $2))

-- name: story_of
-- the queue's jobs, since: their events from a second before on
SELECT e.job_id, e.type::text AS type, extract(epoch FROM e.at - $2)::float AS seconds
FROM procrastinate_events AS e WHERE e.job_id = ANY ($1::bigint[]) AND e.at > $2::timestamptz - interval '1 second'
ORDER BY e.at, e.id

-- name: now
SELECT clock_timestamp()

-- name: failed_jobs
SELECT id, error_code FROM consolidation_jobs WHERE status = 'failed'

-- name: is_backfill_alive
SELECT count(*) > 0 FROM procrastinate_jobs WHERE task_name = 'embedding_backfill' AND status IN ('todo', 'doing')

-- name: ask_backfill
SELECT enqueue_embedding_backfill()

-- name: cut_connection
-- a number: selects a backend among all other clients of this database
WITH clients AS (
    SELECT pid, row_number() OVER (ORDER BY backend_start, pid) - 1 AS place, count(*) OVER () AS clients
    FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
)
SELECT pg_terminate_backend(pid) FROM clients WHERE place = $1::bigint % clients

-- name: totals
SELECT (SELECT count(*) FROM events) AS events,
       (SELECT count(*) FROM memories WHERE memory_type = 'summary') AS summaries,
       (SELECT count(*) FROM memories WHERE memory_type = 'episodic') AS slices,
       (SELECT count(*) FROM memories WHERE memory_type = 'semantic') AS insights,
       (SELECT count(*) FROM fact_versions) AS statements,
       (SELECT count(*) FROM consolidation_jobs) AS jobs,
       (SELECT coalesce(sum(attempts), 0) FROM consolidation_jobs) AS attempts,
       (SELECT count(*) FROM procrastinate_jobs) AS queue_jobs,
       (SELECT count(*) FROM procrastinate_jobs AS q WHERE q.status = 'failed') AS queue_failed,
       (SELECT sum(ticks) FROM pulse_scopes) AS ticks,
       (SELECT count(*) FROM pulse_events WHERE kind = 'effect-acked') AS effects

-- name: set_policy
-- fields
SELECT set_app_policy('*', $1)
