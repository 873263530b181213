-- The statement that reads new events for the listener.

-- name: new_events
-- threads, the sequence number after which to read in each, at most this many of each
SELECT w.thread_id, extract(epoch FROM engine_now() - e.created_at)::double precision AS age_seconds, e.id, e.sequence_num, e.author, e.event_type, e.invocation_id, e.content::text, e.actions::text,
       e.occurred_at, e.created_at, e.user_version, e.app_version
FROM unnest($1::uuid[], $2::bigint[]) AS w (thread_id, after_seq)
CROSS JOIN LATERAL (
    SELECT * FROM events WHERE thread_id = w.thread_id AND sequence_num > w.after_seq
    ORDER BY sequence_num LIMIT $3) AS e
ORDER BY w.thread_id, e.sequence_num
