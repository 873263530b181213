-- The audit log.

-- name: note_act
-- action, app or null, user or null, target, outcome
-- audited
SELECT note_act($1, $2, $3, $4, $5)

-- name: list_acts
-- app (null: every app), action (null: any), actor (null: any), before this entry (null: from the newest), limit; an app's
-- entries include those of every app
SELECT id, at, actor, action, app_name, user_id, target, outcome FROM audit_log
WHERE ($1::text IS NULL OR app_name = $1 OR app_name IS NULL OR app_name = '*')
  AND ($2::text IS NULL OR action = $2) AND ($3::text IS NULL OR actor = $3) AND ($4::uuid IS NULL OR id < $4)
ORDER BY id DESC LIMIT $5
