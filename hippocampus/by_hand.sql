-- The statements of what people write.

-- name: target
-- app, user, id: the fact or memory of this id, also an archived memory; none where there is none
SELECT 'fact' AS kind, fact_type, key, value FROM facts WHERE id = $3 AND app_name = $1 AND user_id = $2
UNION ALL
SELECT 'memory', memory_type, NULL, NULL FROM memories WHERE id = $3 AND app_name = $1 AND user_id = $2
UNION ALL
SELECT 'memory', memory_type, NULL, NULL FROM memories_archive WHERE id = $3 AND app_name = $1 AND user_id = $2
LIMIT 1

-- name: write_facts
-- app, user, by, fact to end first or null, facts, whether to state again what was stated by hand
SELECT fact_id, outcome FROM write_facts_by_hand($1, $2, $3, $4, $5::fact_input[], $6)

-- name: write_memory
-- app, user, memory; how many were stored or changed. Its name may have been erased: it is written again.
WITH again AS (
    DELETE FROM memory_tombstones WHERE id = ($3::given_memory).id AND app_name = $1 AND user_id = $2
)
SELECT give_memories($1, $2, ARRAY[$3::given_memory])

-- name: correct_memory
-- app, user, by, id, new words; the id of the memory that holds them
SELECT correct_memory_by_hand($1, $2, $3, $4, $5)

-- name: retire_memory
-- app, user, by, id; whether that changed anything
SELECT retire_memory_by_hand($1, $2, $3, $4)

-- name: confirm_memory
-- app, user, by, id
SELECT confirm_memory_by_hand($1, $2, $3, $4)
