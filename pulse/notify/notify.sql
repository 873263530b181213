-- Every statement of notifications: what is sent, and the session that listens.

-- name: notify
-- payloads; threads whose events changed the user's or the app's state, and whether they changed the app's
SELECT pg_notify('agent_events', payload) FROM unnest($1::text[]) AS payload
UNION ALL
SELECT pg_notify('agent_shared', json_build_object('app_name', t.app_name,
                                                   'user_id', CASE WHEN NOT w.is_app THEN t.user_id END)::text)
FROM unnest($2::uuid[], $3::boolean[]) AS w (thread_id, is_app) JOIN threads AS t ON t.id = w.thread_id

-- name: keep_listener_alive
SELECT set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false)

-- name: listening_channels
SELECT channel FROM pg_listening_channels() AS channel
