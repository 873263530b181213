-- Which sessions are there, as one rule for every reader, and word to who follows one that goes.

-- Whether a session is there for who asks by its names: its time to live is not over, and it is no mere place of what
-- the memory was given of sessions that are kept elsewhere.
CREATE FUNCTION is_open(t threads) RETURNS boolean
LANGUAGE sql STABLE
RETURN NOT t.memory_only AND NOT has_expired(t);

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
