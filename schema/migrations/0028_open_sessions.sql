-- Which sessions are there, as one rule for every reader, and word to who follows one that goes.

-- Whether a session is there for who asks by its names: its time to live is not over, and it is no mere place of what
-- the memory was given of sessions that are kept elsewhere.
CREATE FUNCTION is_open(t threads) RETURNS boolean
LANGUAGE sql STABLE
RETURN NOT t.memory_only AND NOT has_expired(t);

-- The row of a session, locked as every writer locks it. Errors: HP001.
CREATE OR REPLACE FUNCTION lock_session(p_app_name text, p_user_id text, p_session_id text) RETURNS threads
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR NO KEY UPDATE;
    IF NOT FOUND OR NOT is_open(t) THEN
        RAISE EXCEPTION 'there is no session % for app % and user %, or no longer: create it first',
            quote_nullable(p_session_id), quote_nullable(p_app_name), quote_nullable(p_user_id)
            USING ERRCODE = 'HP001';
    END IF;
    RETURN t;
END
$$;

-- Locks a session for the rest of the transaction, to be changed only if it is at this version; returns its id, so that
-- what changes it in the same statement is called with that, and after this.
-- Errors: HP001 no such session, HP002 it is at another version.
CREATE OR REPLACE FUNCTION lock_session_at(p_app_name text, p_user_id text, p_session_id text, p_version integer)
RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR UPDATE;
    IF NOT FOUND OR NOT is_open(t) THEN
        RAISE EXCEPTION 'there is no session % for app % and user %',
            quote_nullable(p_session_id), quote_nullable(p_app_name), quote_nullable(p_user_id)
            USING ERRCODE = 'HP001';
    ELSIF t.version <> p_version THEN
        RAISE EXCEPTION 'the session is at version %, not at %', t.version, p_version USING ERRCODE = 'HP002';
    END IF;
    RETURN p_session_id;
END
$$;

-- Streams of a deleted session end at once; who misses it looks again a few seconds later.
CREATE FUNCTION notify_thread_gone() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM pg_notify('agent_gone', json_build_object('thread_id', gone.id)::text) FROM gone;
    RETURN NULL;
END
$$;
CREATE TRIGGER threads_gone AFTER DELETE ON threads
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION notify_thread_gone();
