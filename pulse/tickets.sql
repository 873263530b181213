-- Every statement of tickets.

-- name: issue_ticket
-- hash, app, user, session, run or null, seconds, whether it may start runs
SELECT issue_ticket($1, $2, $3, $4, $5, $6, $7)

-- name: redeem_ticket
-- hash
SELECT app_name, user_id, session_id, run_id, may_run FROM redeem_ticket($1)
