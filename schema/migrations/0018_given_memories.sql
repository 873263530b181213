-- What is given to the memory from outside: turns of sessions that are kept elsewhere, and memories written by hand.

-- A thread that holds what the memory was given of a session that is kept elsewhere, or of none. It is searched and
-- consolidated as any other; frameworks that list their sessions leave it out.
ALTER TABLE threads ADD COLUMN memory_only boolean NOT NULL DEFAULT false;

-- Returns the thread that holds what the memory is given of a session, and makes it where there is none.
-- Errors: HP006 the id is taken by a session of its own.
CREATE FUNCTION memory_thread(p_app_name text, p_user_id text, p_session_id text) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_thread uuid;
BEGIN
    INSERT INTO threads (app_name, user_id, session_id, memory_only)
    VALUES (p_app_name, p_user_id, p_session_id, true)
    ON CONFLICT (app_name, user_id, session_id) DO NOTHING;
    SELECT id INTO v_thread FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id AND memory_only;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is a session of its own: the memory keeps what it is given of others elsewhere', p_session_id
            USING ERRCODE = 'HP006';
    END IF;
    RETURN v_thread;
END
$$;

-- Asks for what is not yet consolidated of a session, each stage by itself; nothing where there is no such session.
-- Unlike finalize_session it leaves the session open.
CREATE FUNCTION consolidate_session(p_app_name text, p_user_id text, p_session_id text)
RETURNS TABLE (job_id uuid, job_type text, created boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads
    WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id
    FOR NO KEY UPDATE;
    IF t.last_seq > t.fast_upto_seq THEN
        RETURN QUERY SELECT q.job_id, 'fast_replay', q.created FROM enqueue_consolidation(t.id, 'fast_replay') AS q;
    END IF;
    IF t.last_seq > t.deep_upto_seq THEN
        RETURN QUERY SELECT q.job_id, 'deep_reflection', q.created
                     FROM enqueue_consolidation(t.id, 'deep_reflection') AS q;
    END IF;
END
$$;

CREATE TYPE given_memory AS (
    id            uuid,
    content       text,
    metadata      jsonb,
    initial_score double precision,
    occurred_at   timestamptz         -- NULL: now
);

-- Stores memories that somebody wrote, without vectors until the backfill. An id that is stored already gets what is
-- new of its memory; one of another user is passed over. Returns how many were stored or changed.
CREATE FUNCTION give_memories(p_app_name text, p_user_id text, p_memories given_memory[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    -- By id, as accesses lock them.
    INSERT INTO memories AS m (id, user_id, app_name, memory_type, content, metadata, initial_score, occurred_at)
    SELECT g.id, p_user_id, p_app_name, 'semantic', g.content, g.metadata, g.initial_score,
           coalesce(g.occurred_at, engine_now())
    FROM unnest(p_memories) AS g ORDER BY g.id
    ON CONFLICT (id) DO UPDATE SET
        content = EXCLUDED.content, metadata = EXCLUDED.metadata, initial_score = EXCLUDED.initial_score,
        occurred_at = EXCLUDED.occurred_at,
        embedding = CASE WHEN m.content = EXCLUDED.content THEN m.embedding END,
        embedding_model = CASE WHEN m.content = EXCLUDED.content THEN m.embedding_model END
    WHERE m.app_name = EXCLUDED.app_name AND m.user_id = EXCLUDED.user_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    PERFORM enqueue_embedding_backfill();
    RETURN v_count;
END
$$;
