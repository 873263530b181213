-- The statements of what people write.

-- name: target
-- app, user, id: the fact or memory of this id, archived memories included; no row if there is none
SELECT 'fact' AS kind, fact_type, key, value FROM facts WHERE id = $3 AND app_name = $1 AND user_id = $2
UNION ALL
SELECT 'memory', memory_type, NULL, NULL FROM memories WHERE id = $3 AND app_name = $1 AND user_id = $2
UNION ALL
SELECT 'memory', memory_type, NULL, NULL FROM memories_archive WHERE id = $3 AND app_name = $1 AND user_id = $2
LIMIT 1

-- name: write_facts
-- app, user, by, fact to end first or null, facts, the fact that was read and its key or nulls
-- redacts: $5 of app $1
SELECT fact_id, outcome FROM write_facts_by_hand($1, $2, $3, $4, $5::fact_input[], false, $6, $7)

-- name: write_memory
-- app, user, by, memory, whose id is null if it has no name; the id of the memory that holds it, and whether it is new
-- redacts: $4 of app $1
SELECT memory_id, is_changed FROM write_memory_by_hand($1, $2, $3, $4::given_memory)

-- name: correct_memory
-- app, user, by, id, new words; the id of the memory that holds them
-- redacts: $5 of app $1
SELECT correct_memory_by_hand($1, $2, $3, $4, $5)

-- name: retire_memory
-- app, user, by, id; whether that changed anything
SELECT retire_memory_by_hand($1, $2, $3, $4)

-- name: confirm
-- app, user, by, id; whether it is a fact or a memory
SELECT confirm_by_hand($1, $2, $3, $4)
