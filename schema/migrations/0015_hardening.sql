-- How far the clock of each process is off, and a secret of the installation.

ALTER TABLE metrics_targets ADD COLUMN clock_ahead_seconds double precision;
COMMENT ON COLUMN metrics_targets.clock_ahead_seconds IS 'How far the clock of the process was ahead of the database''s, when it was last seen.';

-- The key of the checksums of the API's cursors: the same for every writer.
INSERT INTO engine_settings (name, value)
VALUES ('cursor_key', to_jsonb(encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex')));
