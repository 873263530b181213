-- Every statement about the keys of the HTTP API.

-- name: create_api_key
-- audited
-- id, app or null for every app, name, roles, SHA-256 of the secret, seconds until it expires or null for never, user or
-- null for every user, the user's roles that it may name or null
INSERT INTO api_keys (id, app_name, name, roles, secret_hash, expires_at, user_id, user_roles)
VALUES ($1, $2, $3, $4, $5, engine_now() + make_interval(secs => $6), $7, $8)
RETURNING id, app_name, user_id, name, roles, user_roles, created_at, last_used_at, expires_at, revoked_at

-- name: list_api_keys
-- app or null for all, limit, when the last key of the previous page was created, its id (null: from the newest); a key
-- of every app is listed with each
SELECT id, app_name, user_id, name, roles, user_roles, created_at, last_used_at, expires_at, revoked_at
FROM api_keys
WHERE ($1::text IS NULL OR app_name IS NULL OR app_name = $1)
  AND ($3::timestamptz IS NULL OR created_at < $3 OR (created_at = $3 AND id > $4))
ORDER BY created_at DESC, id
LIMIT $2

-- name: get_api_key
-- id; no row where there is none
SELECT id, app_name, user_id, name, roles, user_roles, created_at, last_used_at, expires_at, revoked_at FROM api_keys WHERE id = $1

-- name: revoke_api_key
-- audited
-- id; no row where there is none
UPDATE api_keys SET revoked_at = coalesce(revoked_at, engine_now()) WHERE id = $1
RETURNING id, app_name, user_id, name, roles, user_roles, created_at, last_used_at, expires_at, revoked_at

-- name: find_api_key
-- id; no row where it is unknown, revoked or too old
SELECT id, app_name, user_id, roles, user_roles, secret_hash,
       coalesce(last_used_at < engine_now() - interval '1 minute', true) AS is_use_unseen
FROM api_keys
WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > engine_now())

-- name: touch_api_key
-- id; again within the minute it changes nothing
UPDATE api_keys SET last_used_at = engine_now()
WHERE id = $1 AND coalesce(last_used_at < engine_now() - interval '1 minute', true)
