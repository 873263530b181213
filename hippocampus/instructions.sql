-- Instructions under version control, and proposals for them.

-- name: put_instruction
-- app, key, content, metadata, expected version or null
-- redacts: $3, $4 of app $1
SELECT * FROM put_instruction($1, $2, $3, $4, $5)

-- name: get_instruction
-- app, key, version (null: the newest)
SELECT * FROM instructions
WHERE app_name = $1 AND instruction_key = $2 AND ($3::integer IS NULL OR version = $3)
ORDER BY version DESC LIMIT 1

-- name: instruction_history
-- app, key, limit, before this version (null: from the newest)
SELECT * FROM instructions
WHERE app_name = $1 AND instruction_key = $2 AND ($4::bigint IS NULL OR version < $4)
ORDER BY version DESC LIMIT $3

-- name: active_instructions
-- app, limit, after this key (null: from the first); the newest version of each, by key; one without content is out of
-- force
SELECT i.* FROM active_instructions($1) AS i
WHERE $3::text IS NULL OR i.instruction_key > $3
ORDER BY i.instruction_key LIMIT $2

-- name: list_proposals
-- app, status (null: any), before this proposal (null: from the newest), limit
SELECT * FROM instruction_proposals
WHERE app_name = $1 AND ($2::text IS NULL OR status = $2) AND ($3::uuid IS NULL OR id < $3)
ORDER BY id DESC LIMIT $4

-- name: approve_proposal
-- app, proposal, who decides, whether to approve even if the instruction has changed
SELECT p.* FROM approve_proposal($1, $2, $3, $4) AS p

-- name: reject_proposal
-- app, proposal, who decides
SELECT p.* FROM reject_proposal($1, $2, $3) AS p
