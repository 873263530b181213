-- Slices whose events were erased, extracted again from what is left of them.

-- name: next_redraw
-- The oldest slice to be drawn anew, after those of $1 (uuid[]), with its turns that are left; turns at most $2.
SELECT r.id AS redraw_id, r.stage, r.thread_id, r.from_seq, r.upto_seq, t.erasures,
       m.sequence_num, m.author, m.role, m.content AS text, m.occurred_at
FROM (SELECT * FROM slice_redraws WHERE id <> ALL ($1::uuid[]) ORDER BY id LIMIT 1) AS r
JOIN threads AS t ON t.id = r.thread_id
LEFT JOIN LATERAL (
    SELECT * FROM messages AS g
    WHERE g.thread_id = r.thread_id AND g.sequence_num BETWEEN r.from_seq AND r.upto_seq AND g.content ~ '\S'
    ORDER BY g.sequence_num LIMIT $2) AS m ON true
ORDER BY m.sequence_num

-- name: store_redraw
-- redraw, erasures as they were read, origin, memories, facts, up to where it was drawn, backfill
SELECT store_redraw($1, $2, $3::slice_origin, $4::memory_input[], $5::fact_input[], $6, $7)
