-- What people write, correct, retire and confirm. A statement by hand is made now and with certainty: what turns said
-- before is older, in whatever order it is extracted; a newer turn may change it.

-- Begins a change by hand of a user's memory: every statement of this transaction is written by p_by, until it ends.
CREATE OR REPLACE FUNCTION begin_by_hand(p_app_name text, p_user_id text, p_by text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM lock_user_memory(p_app_name, p_user_id);
    PERFORM set_config('hippocampus.written_by', '=' || coalesce(p_by, ''), true);
END
$$;

-- Who writes by hand in this transaction: '' if no name was given, NULL if nothing is written by hand.
CREATE OR REPLACE FUNCTION writing_by_hand() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN substr(nullif(current_setting('hippocampus.written_by', true), ''), 2);

CREATE OR REPLACE FUNCTION end_by_hand() RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ SELECT set_config('hippocampus.written_by', '', true) $$;

-- Ends the fact p_ended (NULL: none), then states facts, all by hand; p_facts.valid_from is since when they are true,
-- NULL: from now on. One that a person stated last, with this value, is 'unchanged' unless p_again. A key that was erased
-- may be written again; what earlier turns said of it stays erased. p_target, p_key: a fact of the user that was read
-- before, and must still be there under its key. Errors: HP046 the user has no fact p_ended or p_target.
CREATE OR REPLACE FUNCTION write_facts_by_hand(
    p_app_name text, p_user_id text, p_by text, p_ended uuid, p_facts fact_input[], p_again boolean,
    p_target uuid DEFAULT NULL, p_key text DEFAULT NULL)
RETURNS TABLE (fact_id uuid, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    t       threads;
    o       slice_origin;
    f       fact_input;
    v_old   facts;
    v_since timestamptz;
BEGIN
    PERFORM begin_by_hand(p_app_name, p_user_id, p_by);
    t.app_name := p_app_name;
    t.user_id := p_user_id;
    IF p_target IS NOT NULL AND NOT EXISTS (
        SELECT FROM facts WHERE id = p_target AND app_name = p_app_name AND user_id = p_user_id AND key = p_key) THEN
        RAISE EXCEPTION 'there is no memory and no fact % of app % and user %', p_target,
            quote_nullable(p_app_name), quote_nullable(p_user_id) USING ERRCODE = 'HP046';
    END IF;
    IF p_ended IS NOT NULL THEN
        SELECT * INTO v_old FROM facts WHERE id = p_ended AND app_name = p_app_name AND user_id = p_user_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no memory and no fact % of app % and user %', p_ended,
                quote_nullable(p_app_name), quote_nullable(p_user_id) USING ERRCODE = 'HP046';
        END IF;
        RETURN QUERY SELECT p_ended, CASE e.outcome WHEN 'unknown' THEN 'unchanged' ELSE e.outcome END
                     FROM end_fact(t, o, ROW(v_old.fact_type, v_old.key, NULL, '', NULL, 1, '{}', recording_time(),
                                             v_old.normal_key, NULL, v_old.contrast)::fact_input) AS e;
    END IF;
    FOREACH f IN ARRAY p_facts LOOP
        v_since := f.valid_from;
        f.valid_from := recording_time();
        IF NOT p_again AND v_since IS NULL THEN
            SELECT x.* INTO v_old FROM resolve_fact(p_app_name, p_user_id, f, NULL) AS r JOIN facts AS x ON x.id = r.fact_id
            WHERE x.value = f.value AND x.valid_until IS NULL
              AND (SELECT v.written_by FROM fact_versions AS v
                   WHERE v.fact_id = x.id AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL
                   ORDER BY v.valid_from DESC, v.recorded_at DESC, v.id DESC LIMIT 1) IS NOT NULL;
            IF FOUND THEN
                RETURN QUERY SELECT v_old.id, 'unchanged';
                CONTINUE;
            END IF;
        ELSIF v_since < f.valid_from THEN
            -- Stated twice: what was said in between does not outlive it.
            PERFORM record_fact(t, o, ROW(f.fact_type, f.key, f.value, f.content, NULL, f.confidence, f.source_seqs, v_since,
                                          f.normal_key, f.collection, f.contrast)::fact_input);
        END IF;
        RETURN QUERY SELECT * FROM record_fact(t, o, f);
    END LOOP;
    PERFORM enqueue_embedding_backfill();
    PERFORM end_by_hand();
END
$$;

-- A memory of a user, locked. Errors: HP046 there is none that is stored.
CREATE OR REPLACE FUNCTION hold_memory(p_app_name text, p_user_id text, p_id uuid) RETURNS memories
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    m memories;
BEGIN
    SELECT * INTO m FROM memories WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no memory and no fact % of app % and user %', p_id,
            quote_nullable(p_app_name), quote_nullable(p_user_id) USING ERRCODE = 'HP046';
    END IF;
    RETURN m;
END
$$;

-- Moves a memory to the archive for what a person did with it; it stays there as history, see purge_archive.
CREATE OR REPLACE FUNCTION put_away(m memories, p_reason text, p_by text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM memories_archive AS a WHERE a.id = m.id;
    INSERT INTO memories_archive (
        id, thread_id, user_id, app_name, memory_type, content, embedding, embedding_model, metadata, initial_score, pinned,
        access_count, last_accessed_at, from_seq, upto_seq, source_seqs, job_id, prompt_hash, model, occurred_at,
        created_at, archive_reason, archived_at)
    VALUES (m.id, m.thread_id, m.user_id, m.app_name, m.memory_type, m.content, m.embedding, m.embedding_model,
            m.metadata || jsonb_build_object('put_away_by', coalesce(p_by, '')), m.initial_score, m.pinned,
            m.access_count, m.last_accessed_at, m.from_seq, m.upto_seq, m.source_seqs, m.job_id, m.prompt_hash, m.model,
            m.occurred_at, m.created_at, p_reason, recording_time());
    DELETE FROM memories WHERE id = m.id;
END
$$;

-- The archive_reason of what a person retired or corrected.
CREATE OR REPLACE FUNCTION is_by_hand(p_reason text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_reason IN ('retired by hand', 'corrected by hand');

-- The memory that a person retired or corrected and that this one would bring back: an insight in the same words, or of
-- the same meaning, from turns of before; a summary or a slice of the same turns. NULL: none.
CREATE OR REPLACE FUNCTION retired_memory(
    p_thread threads, p_memory memory_input, p_from_seq bigint, p_embedding_model text) RETURNS uuid
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT a.id FROM memories_archive AS a
    LEFT JOIN merge_thresholds AS h ON h.embedding_model = p_embedding_model AND h.kind = 'insight'
    WHERE a.app_name = p_thread.app_name AND a.user_id = p_thread.user_id AND a.memory_type = p_memory.memory_type
      AND is_by_hand(a.archive_reason)
      AND CASE p_memory.memory_type WHEN 'semantic' THEN
              p_memory.occurred_at <= a.archived_at
              AND (plain_key(a.content) = plain_key(p_memory.content)
                   OR model_similarity(a.embedding, a.embedding_model, p_memory.embedding, p_embedding_model)
                      >= h.threshold)
          ELSE a.thread_id = p_thread.id AND a.from_seq = p_from_seq END
    ORDER BY a.id LIMIT 1
$$;

-- Replaces a memory by a person's words, and returns the id of the new one; the former stays in the archive. It keeps
-- type, strength, pin and sources, so that erasing a turn reaches it. With the same words it is unchanged.
-- Errors: HP046; HP007 a slice holds the turns' own words.
CREATE OR REPLACE FUNCTION correct_memory_by_hand(p_app_name text, p_user_id text, p_by text, p_id uuid, p_content text)
RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    m    memories;
    v_id uuid := new_id();
BEGIN
    PERFORM lock_user_memory(p_app_name, p_user_id);
    m := hold_memory(p_app_name, p_user_id, p_id);
    IF m.memory_type = 'episodic' THEN
        RAISE EXCEPTION 'memory % holds what was said, word for word: retire it, or erase the turn', p_id
            USING ERRCODE = 'HP007';
    ELSIF m.content = p_content THEN
        RETURN p_id;
    END IF;
    PERFORM put_away(m, 'corrected by hand', p_by);
    INSERT INTO memories (id, thread_id, user_id, app_name, memory_type, content, metadata, initial_score, pinned,
                          access_count, from_seq, upto_seq, source_seqs, occurred_at)
    VALUES (v_id, m.thread_id, m.user_id, m.app_name, m.memory_type, p_content,
            m.metadata - 'support' || jsonb_build_object('source', 'by hand', 'by', coalesce(p_by, ''), 'corrects', p_id),
            m.initial_score, m.pinned, m.access_count, m.from_seq, m.upto_seq, m.source_seqs, m.occurred_at);
    PERFORM enqueue_embedding_backfill();
    RETURN v_id;
END
$$;

-- Retires a memory: it is no longer found, and stays in the archive as history. Returns whether that changed anything.
-- Errors: HP046.
CREATE OR REPLACE FUNCTION retire_memory_by_hand(p_app_name text, p_user_id text, p_by text, p_id uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_reason text;
BEGIN
    PERFORM lock_user_memory(p_app_name, p_user_id);
    SELECT archive_reason INTO v_reason FROM memories_archive
    WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id FOR UPDATE;
    IF FOUND AND NOT EXISTS (SELECT FROM memories WHERE id = p_id) THEN
        UPDATE memories_archive SET
            archive_reason = 'retired by hand', archived_at = recording_time(),
            metadata = metadata || jsonb_build_object('put_away_by', coalesce(p_by, ''))
        WHERE id = p_id AND NOT is_by_hand(v_reason);
        RETURN FOUND;
    END IF;
    PERFORM put_away(hold_memory(p_app_name, p_user_id, p_id), 'retired by hand', p_by);
    RETURN true;
END
$$;

-- Confirms a fact, with the value that it has now, or a memory; returns which it is. A fact is certain from now on, and
-- holds again if it had ended. A memory is as strong as if it had been used now, and remembers who confirmed it when; an
-- archived one is restored first. Errors: HP046.
CREATE OR REPLACE FUNCTION confirm_by_hand(p_app_name text, p_user_id text, p_by text, p_id uuid) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    f facts;
BEGIN
    PERFORM lock_user_memory(p_app_name, p_user_id);
    SELECT * INTO f FROM facts WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id;
    IF FOUND THEN
        PERFORM write_facts_by_hand(
            p_app_name, p_user_id, p_by, NULL,
            ARRAY[ROW(f.fact_type, f.key, f.value, f.content, NULL, 1, '{}', NULL, f.normal_key, f.collection,
                      f.contrast)::fact_input], true);
        RETURN 'fact';
    END IF;
    PERFORM restore_memories(p_app_name, p_user_id, ARRAY[p_id]);
    PERFORM hold_memory(p_app_name, p_user_id, p_id);
    PERFORM record_memory_access(ARRAY[p_id], p_app_name, p_user_id);
    UPDATE memories SET metadata = metadata - 'put_away_by' || jsonb_build_object(
        'confirmed_by', coalesce(p_by, ''), 'confirmed_at', recording_time())
    WHERE id = p_id;
    RETURN 'memory';
END
$$;

-- Whether a memory is, by hand and word for word, what is given; who wrote, corrected or confirmed it does not matter.
CREATE OR REPLACE FUNCTION is_as_given(m memories, p_memory given_memory) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT m.memory_type = 'semantic' AND m.content = p_memory.content AND m.initial_score = p_memory.initial_score
           AND coalesce(m.occurred_at = p_memory.occurred_at, true)
           AND m.metadata - c.others = p_memory.metadata - c.others
    FROM (SELECT '{by,corrects,confirmed_by,confirmed_at,put_away_by}'::text[] AS others) AS c
$$;

-- Stores a memory that a person wrote. One of the same name is replaced: if it was corrected, the correction is, and its
-- history stays; if it was archived, it is restored first. Its name may have been erased: it is written again. One without
-- a name has the id NULL. is_changed: false if the user has this memory already, which is then as it was.
CREATE OR REPLACE FUNCTION write_memory_by_hand(p_app_name text, p_user_id text, p_by text, p_memory given_memory)
RETURNS TABLE (memory_id uuid, is_changed boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_held      uuid;
    v_corrected uuid;
BEGIN
    PERFORM lock_user_memory(p_app_name, p_user_id);
    IF p_memory.id IS NULL THEN
        SELECT m.id INTO v_held FROM memories AS m
        WHERE m.app_name = p_app_name AND m.user_id = p_user_id AND m.content = p_memory.content
          AND is_as_given(m, p_memory)
        ORDER BY m.id LIMIT 1;
        IF FOUND THEN
            RETURN QUERY SELECT v_held, false;
            RETURN;
        END IF;
        p_memory.id := new_id();
    END IF;
    DELETE FROM memory_tombstones WHERE id = p_memory.id AND app_name = p_app_name AND user_id = p_user_id;
    IF EXISTS (SELECT FROM memories_archive AS a
               WHERE a.id = p_memory.id AND a.app_name = p_app_name AND a.user_id = p_user_id) THEN
        WITH RECURSIVE written AS MATERIALIZED (
            SELECT m.id, (m.metadata ->> 'corrects')::uuid AS corrects, true AS is_stored FROM memories AS m
            WHERE m.app_name = p_app_name AND m.user_id = p_user_id AND m.metadata ? 'corrects'
            UNION ALL
            SELECT a.id, (a.metadata ->> 'corrects')::uuid, false FROM memories_archive AS a
            WHERE a.app_name = p_app_name AND a.user_id = p_user_id AND a.metadata ? 'corrects'
        ), corrections (id, is_stored) AS (
            SELECT p_memory.id, false
            UNION
            SELECT w.id, w.is_stored FROM corrections AS c JOIN written AS w ON w.corrects = c.id
        )
        SELECT c.id INTO v_corrected FROM corrections AS c WHERE c.is_stored ORDER BY c.id DESC LIMIT 1;
    END IF;
    v_held := coalesce(v_corrected, p_memory.id);
    IF EXISTS (SELECT FROM memories AS m
               WHERE m.id = v_held AND m.app_name = p_app_name AND m.user_id = p_user_id AND is_as_given(m, p_memory)) THEN
        RETURN QUERY SELECT v_held, false;
        RETURN;
    ELSIF v_corrected IS NULL THEN
        PERFORM restore_memories(p_app_name, p_user_id, ARRAY[p_memory.id]);
        PERFORM give_memories(p_app_name, p_user_id, ARRAY[p_memory]);
    ELSE
        v_held := correct_memory_by_hand(p_app_name, p_user_id, p_by, v_corrected, p_memory.content);
        UPDATE memories SET
            metadata = p_memory.metadata || jsonb_build_object('corrects', metadata -> 'corrects'),
            initial_score = p_memory.initial_score, occurred_at = coalesce(p_memory.occurred_at, engine_now())
        WHERE id = v_held;
    END IF;
    RETURN QUERY SELECT v_held, true;
END
$$;
