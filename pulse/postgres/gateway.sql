-- What the statement gateway reads for itself.

-- name: redaction_mode
-- app: off, mask or refuse
SELECT redaction FROM app_policy($1)

-- name: act_as
-- who acts, until the end of the transaction
SELECT set_config('hippocampus.actor', $1, true)
