-- What search and context windows run.

-- name: search_memory
-- app, user, query, embedding or null, its model, limit, sources, messages, memory types or null, session or null,
-- since or null, until or null, metadata or null, least relevance, weights, as of or null,
-- known at or null; the times that the query names: since, until, words, weights; whether the parts of each score are wanted
SELECT * FROM search_memory($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                            $18, $19, $20, $21, $22)

-- name: record_memory_access
-- ids of memories, app, user. The answer does not wait for the disk: a crash of the server loses some uses, and no memory.
SELECT record_memory_access($1, $2, $3) FROM set_config('synchronous_commit', 'off', true)

-- name: context_candidates
-- app, user, session or null, query, embedding or null, its model, memories, facts, turns of the session, turns that match, times
-- that the query names: from, until, words, weights
-- Beside each row, and in a row of its own where there is none, the app's instructions that are meant for contexts.
SELECT c.*, engine_now() AS now, i.instructions
FROM (SELECT array_agg(x.content ORDER BY x.instruction_key) AS instructions FROM active_instructions($1) AS x
      WHERE NOT x.metadata @> '{"context": false}') AS i
LEFT JOIN context_candidates($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) AS c ON true
ORDER BY c.context_type, c.place
