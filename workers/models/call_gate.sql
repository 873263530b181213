-- name: admit_call
-- Limit, breaker, calls a second, burst, the longest wait, the longest time of a probe.
SELECT wait_seconds, refusal, probe, failures FROM admit_call($1, $2, $3, $4, $5, $6)

-- name: blocked_seconds
-- A limit.
SELECT blocked_seconds($1)

-- name: penalise_limit
-- A limit, seconds, why.
SELECT penalise_limit($1, $2, $3)

-- name: report_success
-- A breaker, the probe's number or NULL.
SELECT report_success($1, $2)

-- name: report_failure
-- A breaker, the probe's number or NULL, how it failed, failures that open, within seconds, seconds open.
SELECT report_failure($1, $2, $3, $4, $5, $6)

-- name: release_probe
-- A breaker, the probe's number.
SELECT release_probe($1, $2)
