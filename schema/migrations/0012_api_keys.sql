-- API keys of the HTTP API: each belongs to one app or to every app, and has roles.
--
-- Only the SHA-256 of a key's 256-bit random secret is stored, so nothing that leaks from here opens the API. A plain
-- hash is enough for a secret that cannot be guessed. Rows stay when a key is revoked or expires, as a record.

CREATE TABLE api_keys (
    id            text PRIMARY KEY CHECK (id ~ '^[a-z0-9]{12}$'),
    app_name      varchar(255) CHECK (app_name <> ''),      -- NULL: every app
    name          varchar(255) NOT NULL DEFAULT '',         -- for display
    roles         text[] NOT NULL CHECK (cardinality(roles) > 0 AND roles <@ ARRAY['append', 'read', 'admin']),
    secret_hash   bytea NOT NULL CHECK (octet_length(secret_hash) = 32),
    created_at    timestamptz NOT NULL DEFAULT engine_now(),
    last_used_at  timestamptz,                              -- to the minute
    expires_at    timestamptz,                              -- NULL: never
    revoked_at    timestamptz
);
COMMENT ON TABLE api_keys IS 'Keys of the HTTP API, by the hashes of their secrets.';
