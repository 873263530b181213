-- Tickets: how a browser, whose EventSource and WebSocket send no headers, proves what it may watch.
--
-- A backend that holds the key asks for one for its user; it is bound to app, user, session and, where given, run, works
-- once and not for long. Only its SHA-256 is kept.
CREATE TABLE stream_tickets (
    token_hash  bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
    app_name    varchar(255) NOT NULL,
    user_id     varchar(255) NOT NULL,
    session_id  text NOT NULL,
    run_id      text,                   -- NULL: any run of the session
    expires_at  timestamptz NOT NULL
);
CREATE INDEX stream_tickets_expiry_idx ON stream_tickets (expires_at);

-- Makes a ticket for a session. Error: HP001 no such session.
CREATE FUNCTION issue_ticket(p_token_hash bytea, p_app_name text, p_user_id text, p_session_id text, p_run_id text,
                             p_seconds double precision) RETURNS timestamptz
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_expires timestamptz := engine_now() + make_interval(secs => p_seconds);
BEGIN
    IF NOT EXISTS (SELECT FROM threads AS t
                   WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id
                     AND is_open(t)) THEN
        RAISE EXCEPTION 'there is no session % for app % and user %',
            quote_nullable(p_session_id), quote_nullable(p_app_name), quote_nullable(p_user_id)
            USING ERRCODE = 'HP001';
    END IF;
    INSERT INTO stream_tickets (token_hash, app_name, user_id, session_id, run_id, expires_at)
    VALUES (p_token_hash, p_app_name, p_user_id, p_session_id, p_run_id, v_expires);
    RETURN v_expires;
END
$$;

-- Takes a ticket out of the world and returns what it allows; no row where it is unknown, used or too old.
CREATE FUNCTION redeem_ticket(p_token_hash bytea)
RETURNS TABLE (app_name varchar, user_id varchar, session_id text, run_id text)
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    WITH used AS (DELETE FROM stream_tickets AS t WHERE t.token_hash = p_token_hash RETURNING t.*)
    SELECT u.app_name, u.user_id, u.session_id, u.run_id FROM used AS u WHERE u.expires_at > engine_now()
$$;

-- Removes up to p_limit tickets that nobody used in time; returns how many.
CREATE FUNCTION prune_tickets(p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    WITH old AS (
        SELECT t.token_hash FROM stream_tickets AS t WHERE t.expires_at <= engine_now()
        LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM stream_tickets AS t USING old WHERE t.token_hash = old.token_hash RETURNING 1
    )
    SELECT count(*)::integer FROM gone
$$;
