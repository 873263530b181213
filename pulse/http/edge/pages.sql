-- name: cursor_key
-- Hex.
SELECT value #>> '{}' FROM engine_settings WHERE name = 'cursor_key'
