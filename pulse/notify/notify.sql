-- Every statement of notifications: what is sent, and the session that listens.

-- name: notify
-- payloads; threads whose events changed the user's or the app's state, and whether they changed the app's. Its commit
-- does not wait for the disk: what it announces is stored, and a crash ends the listeners' sessions too
SELECT pg_notify('agent_events', payload)
FROM unnest($1::text[]) AS payload, set_config('synchronous_commit', 'off', true)
UNION ALL
SELECT pg_notify('agent_shared', json_build_object('app_name', t.app_name,
                                                   'user_id', CASE WHEN NOT w.is_app THEN t.user_id END)::text)
FROM unnest($2::uuid[], $3::boolean[]) AS w (thread_id, is_app) JOIN threads AS t ON t.id = w.thread_id

-- name: keep_listener_alive
SELECT set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false)

-- name: session
-- what it listens on, and whether its server is a standby or read-only
SELECT ARRAY(SELECT pg_listening_channels()) AS channels,
       current_setting('transaction_read_only')::boolean AS is_read_only
