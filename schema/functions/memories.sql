-- Memories: accesses, pins, and memories that callers write themselves.

-- Counts an access of each of these memories once, however often it is listed. Ordered, so that two calls cannot
-- deadlock. Memories of other apps and users are skipped; NULL, as earlier releases call it: of any. Returns how many
-- rows there were.
CREATE OR REPLACE FUNCTION record_memory_access(
    p_ids uuid[], p_app_name text DEFAULT NULL, p_user_id text DEFAULT NULL) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    WITH locked AS MATERIALIZED (
        SELECT id FROM memories
        WHERE id = ANY (p_ids) AND (p_app_name IS NULL OR app_name = p_app_name)
          AND (p_user_id IS NULL OR user_id = p_user_id)
        ORDER BY id FOR NO KEY UPDATE
    ), touched AS (
        UPDATE memories AS m SET access_count = least(m.access_count, 2147483646) + 1, last_accessed_at = engine_now()
        FROM locked WHERE m.id = locked.id
        RETURNING 1
    )
    SELECT count(*)::integer FROM touched
$$;

-- The names of the thread that holds what the memory is given of a session kept elsewhere: one that contains the
-- session's id, and one for an id that is too long for that, or if a real session has the first name.
CREATE OR REPLACE FUNCTION memory_thread_names(p_session_id text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY['memory:' || p_session_id, 'memory#' || encode(sha256(convert_to(p_session_id, 'UTF8')), 'hex')];

-- The session whose turns such a thread holds.
CREATE OR REPLACE FUNCTION remembered_session(t threads) RETURNS text
LANGUAGE sql STABLE
RETURN coalesce(t.metadata ->> 'session_id', substr(t.session_id, length('memory:') + 1));

-- Returns the name of the thread that holds what the memory is given of a session, and creates it if it is missing.
-- Errors: HP006 sessions have both of its names.
CREATE OR REPLACE FUNCTION memory_thread(p_app_name text, p_user_id text, p_session_id text) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_name text;
BEGIN
    FOREACH v_name IN ARRAY memory_thread_names(p_session_id) LOOP
        CONTINUE WHEN char_length(v_name) > 512;
        INSERT INTO threads (app_name, user_id, session_id, memory_only, metadata)
        VALUES (p_app_name, p_user_id, v_name, true,
                CASE WHEN starts_with(v_name, 'memory#') THEN jsonb_build_object('session_id', p_session_id)
                     ELSE '{}' END)
        ON CONFLICT (app_name, user_id, session_id) DO NOTHING;
        IF EXISTS (SELECT FROM threads WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = v_name
                                             AND memory_only) THEN
            RETURN v_name;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'session % exists already: the memory needs this name for the turns it is given', v_name
        USING ERRCODE = 'HP006';
END
$$;

-- Stores memories that a caller wrote; the backfill makes their vectors. An id that is stored already is updated; one
-- of another user is skipped, as is one that a person retired or corrected since it was given in the same words.
-- Returns how many were stored or changed.
CREATE OR REPLACE FUNCTION give_memories(p_app_name text, p_user_id text, p_memories given_memory[]) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    -- By id, as accesses lock them.
    INSERT INTO memories AS m (id, user_id, app_name, memory_type, content, metadata, initial_score, occurred_at)
    SELECT g.id, p_user_id, p_app_name, 'semantic', g.content, g.metadata, g.initial_score,
           coalesce(g.occurred_at, engine_now())
    FROM unnest(p_memories) AS g
    WHERE NOT EXISTS (
        SELECT FROM memories_archive AS a
        WHERE a.id = g.id AND a.app_name = p_app_name AND a.user_id = p_user_id AND is_by_hand(a.archive_reason)
          AND a.content = g.content)
    ORDER BY g.id
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

-- Pins or unpins a memory: a pinned one never decays and is never cleaned up. An archived one is restored first.
-- Returns whether anything changed. Errors: HP046.
CREATE OR REPLACE FUNCTION pin_memory(p_app_name text, p_user_id text, p_id uuid, p_pinned boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_pinned THEN
        PERFORM restore_memories(p_app_name, p_user_id, ARRAY[p_id]);
    END IF;
    UPDATE memories SET pinned = p_pinned
    WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id AND pinned <> p_pinned;
    IF FOUND THEN
        RETURN true;
    ELSIF NOT EXISTS (SELECT FROM memories WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id) THEN
        RAISE EXCEPTION 'there is no memory % of app % and user %',
            p_id, quote_nullable(p_app_name), quote_nullable(p_user_id) USING ERRCODE = 'HP046';
    END IF;
    RETURN false;
END
$$;

-- Everything that was extracted from events, stored or archived, in force or not.
CREATE OR REPLACE VIEW drawn AS
    SELECT 'memory' AS source, m.id, m.id AS row_id, m.memory_type AS kind, m.content, m.app_name, m.user_id, m.thread_id,
           m.from_seq, m.upto_seq, m.source_seqs, m.job_id, m.prompt_hash, m.model, m.created_at AS recorded_at
    FROM memories AS m
    UNION ALL
    SELECT 'archived_memory', a.id, a.id, a.memory_type, a.content, a.app_name, a.user_id, a.thread_id,
           a.from_seq, a.upto_seq, a.source_seqs, a.job_id, a.prompt_hash, a.model, a.created_at
    FROM memories_archive AS a
    UNION ALL
    SELECT 'fact', f.id, f.id, f.fact_type, f.content, f.app_name, f.user_id, f.thread_id,
           f.from_seq, f.upto_seq, f.source_seqs, f.job_id, f.prompt_hash, f.model, f.recorded_at
    FROM facts AS f
    UNION ALL
    SELECT 'fact_version', v.fact_id, v.id, v.fact_type, coalesce(fact_text(v.key, v.value), v.key), v.app_name, v.user_id, v.thread_id,
           v.from_seq, v.upto_seq, v.source_seqs, v.job_id, v.prompt_hash, v.model, v.recorded_at
    FROM fact_versions AS v
    UNION ALL
    SELECT 'proposal', p.id, p.id, p.instruction_key, p.content, p.app_name, p.user_id, p.thread_id,
           NULL, NULL, p.source_seqs, p.job_id, p.prompt_hash, p.model, p.proposed_at
    FROM instruction_proposals AS p;
