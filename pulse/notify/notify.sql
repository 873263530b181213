-- Every statement of notifications: what is sent, and the session that listens.

-- name: notify
-- payloads
SELECT pg_notify('agent_events', payload) FROM unnest($1::text[]) AS payload

-- name: keep_listener_alive
SELECT set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false)

-- name: listening_channels
SELECT channel FROM pg_listening_channels() AS channel
