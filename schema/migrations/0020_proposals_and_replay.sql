-- Proposals: what users' feedback asks an app's instructions to become. Replay: drawing memories anew, then swapping.

-- What is in force: the newest version of each instruction, unless that is empty.
CREATE FUNCTION active_instructions(p_app_name text) RETURNS SETOF instructions
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT i.* FROM (
        SELECT DISTINCT ON (x.instruction_key) x.* FROM instructions AS x WHERE x.app_name = p_app_name
        ORDER BY x.instruction_key, x.version DESC) AS i
    WHERE i.content <> ''
$$;

-- A proposal acts on nothing by itself: `approve_proposal` makes it a version of its instruction.
CREATE TABLE instruction_proposals (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    app_name        varchar(255) NOT NULL,
    user_id         varchar(255) NOT NULL,     -- whose feedback it follows from
    thread_id       uuid REFERENCES threads ON DELETE SET NULL,
    instruction_key varchar(255) NOT NULL CHECK (instruction_key <> ''),
    content         text NOT NULL CHECK (content <> ''),
    status          text NOT NULL DEFAULT 'proposed' CHECK (status IN ('proposed', 'approved', 'rejected')),
    base_version    integer NOT NULL,          -- the newest when it was proposed; 0: there was none
    version         integer,                   -- what it became
    source_seqs     bigint[] NOT NULL DEFAULT '{}',
    job_id          uuid,
    prompt_hash     text,
    model           text,
    proposed_at     timestamptz NOT NULL DEFAULT engine_now(),
    decided_at      timestamptz,
    decided_by      text,
    CHECK ((status = 'proposed') = (decided_at IS NULL)),
    CHECK ((status = 'approved') = (version IS NOT NULL))
);
CREATE INDEX instruction_proposals_app_idx ON instruction_proposals (app_name, id DESC);
CREATE INDEX instruction_proposals_thread_idx ON instruction_proposals (thread_id);
-- The same wish of the same user is one proposal, also after it was rejected.
CREATE UNIQUE INDEX instruction_proposals_once_idx
    ON instruction_proposals (app_name, user_id, instruction_key, md5(content)) WHERE status <> 'approved';

CREATE TYPE proposal_input AS (
    instruction_key text,
    content         text,
    source_seqs     bigint[]
);

-- Stores what a slice proposes, under the thread's app and user; returns the new proposals. What is in force already, or
-- was proposed before, is not proposed again.
CREATE FUNCTION propose_instructions(p_thread_id uuid, p_origin slice_origin, p_proposals proposal_input[])
RETURNS uuid[]
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    WITH stored AS (
        INSERT INTO instruction_proposals (app_name, user_id, thread_id, instruction_key, content, base_version,
                                           source_seqs, job_id, prompt_hash, model)
        SELECT t.app_name, t.user_id, t.id, p.instruction_key, p.content, coalesce(i.version, 0), p.source_seqs,
               p_origin.job_id, p_origin.prompt_hash, p_origin.model
        FROM threads AS t
        CROSS JOIN unnest(p_proposals) AS p
        LEFT JOIN LATERAL (
            SELECT * FROM instructions AS x
            WHERE x.app_name = t.app_name AND x.instruction_key = p.instruction_key
            ORDER BY x.version DESC LIMIT 1) AS i ON true
        WHERE t.id = p_thread_id AND i.content IS DISTINCT FROM p.content
        ON CONFLICT DO NOTHING
        RETURNING id
    )
    SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM stored
$$;

-- Makes a proposal a version of its instruction; where the instruction moved on since it was proposed, only if p_force.
-- Errors: HP042 no such proposal of this app waits; HP016 the instruction moved on.
CREATE FUNCTION approve_proposal(p_app_name text, p_id uuid, p_decided_by text, p_force boolean)
RETURNS instruction_proposals
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    p instruction_proposals := open_proposal(p_app_name, p_id);
    i instructions;
BEGIN
    i := put_instruction(p.app_name, p.instruction_key, p.content, jsonb_build_object('proposal', p.id),
                         CASE WHEN NOT p_force THEN p.base_version END);
    UPDATE instruction_proposals SET status = 'approved', version = i.version, decided_at = engine_now(),
                                     decided_by = p_decided_by
    WHERE id = p.id RETURNING * INTO p;
    RETURN p;
END
$$;

-- Errors: HP042.
CREATE FUNCTION reject_proposal(p_app_name text, p_id uuid, p_decided_by text) RETURNS instruction_proposals
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    p instruction_proposals := open_proposal(p_app_name, p_id);
BEGIN
    UPDATE instruction_proposals SET status = 'rejected', decided_at = engine_now(), decided_by = p_decided_by
    WHERE id = p.id RETURNING * INTO p;
    RETURN p;
END
$$;

-- A proposal that waits, held until the transaction ends. Errors: HP042.
CREATE FUNCTION open_proposal(p_app_name text, p_id uuid) RETURNS instruction_proposals
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    p instruction_proposals;
BEGIN
    SELECT * INTO p FROM instruction_proposals
    WHERE id = p_id AND app_name = p_app_name AND status = 'proposed' FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no proposal % of app % waits for a decision', p_id, quote_nullable(p_app_name)
            USING ERRCODE = 'HP042';
    END IF;
    RETURN p;
END
$$;

-- Drawing anew. Draws gather in `replay_draws`, one slice at a time and outside any transaction with a model; then
-- `swap_replay` puts them in the place of what is stored, all at once. Nothing is changed before.
CREATE TABLE replays (
    id          uuid PRIMARY KEY DEFAULT new_id(),
    app_name    varchar(255) NOT NULL,
    user_id     varchar(255) NOT NULL,
    thread_id   uuid REFERENCES threads ON DELETE CASCADE,   -- NULL: all of the user's
    fingerprint text NOT NULL,                               -- of the provider, its prompts and its vectors
    created_at  timestamptz NOT NULL DEFAULT engine_now(),
    applied_at  timestamptz                                  -- NULL: draws wait
);
CREATE UNIQUE INDEX replays_open_idx ON replays (app_name, user_id, coalesce(thread_id::text, ''), fingerprint)
    WHERE applied_at IS NULL;
CREATE INDEX replays_thread_idx ON replays (thread_id);

CREATE TABLE replay_draws (
    replay_id  uuid NOT NULL REFERENCES replays ON DELETE CASCADE,
    thread_id  uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    stage      text NOT NULL CHECK (stage IN ('fast', 'deep')),
    from_seq   bigint NOT NULL,
    upto_seq   bigint NOT NULL CHECK (upto_seq >= from_seq),
    said       text NOT NULL,             -- slice_digest() of its turns when they were read
    input_hash text NOT NULL,             -- of everything that the answer depends on
    origin     slice_origin NOT NULL,
    memories   memory_input[] NOT NULL DEFAULT '{}',
    vectors    message_vector[] NOT NULL DEFAULT '{}',
    facts      fact_input[] NOT NULL DEFAULT '{}',
    vectorless boolean NOT NULL DEFAULT false,
    PRIMARY KEY (replay_id, thread_id, stage, from_seq)
);
CREATE INDEX replay_draws_thread_idx ON replay_draws (thread_id);
CREATE INDEX replay_draws_input_idx ON replay_draws (input_hash);

-- A digest of the turns of a slice: another one says that something was erased or changed.
CREATE FUNCTION slice_digest(p_thread_id uuid, p_from_seq bigint, p_upto_seq bigint) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT md5(coalesce(string_agg(concat_ws(E'\x1f', m.sequence_num, m.author, m.role, m.content), E'\x1e'
                                   ORDER BY m.sequence_num), ''))
    FROM messages AS m WHERE m.thread_id = p_thread_id AND m.sequence_num BETWEEN p_from_seq AND p_upto_seq
$$;

-- The open replay of a session (p_session_id) or of a user (NULL) with a provider, begun where there is none. What
-- others began with another provider is dropped. Errors: HP001 no such session.
CREATE FUNCTION begin_replay(p_app_name text, p_user_id text, p_session_id text, p_fingerprint text) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_thread uuid;
    v_id     uuid;
BEGIN
    IF p_session_id IS NOT NULL THEN
        SELECT id INTO v_thread FROM threads
        WHERE app_name = p_app_name AND user_id = p_user_id AND session_id = p_session_id FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no session % for app % and user %', quote_nullable(p_session_id),
                quote_nullable(p_app_name), quote_nullable(p_user_id) USING ERRCODE = 'HP001';
        END IF;
    END IF;
    DELETE FROM replays WHERE app_name = p_app_name AND user_id = p_user_id AND thread_id IS NOT DISTINCT FROM v_thread
                          AND fingerprint <> p_fingerprint AND applied_at IS NULL;
    INSERT INTO replays AS r (app_name, user_id, thread_id, fingerprint)
    VALUES (p_app_name, p_user_id, v_thread, p_fingerprint)
    ON CONFLICT (app_name, user_id, coalesce(thread_id::text, ''), fingerprint) WHERE applied_at IS NULL
    DO UPDATE SET fingerprint = r.fingerprint
    RETURNING r.id INTO v_id;
    -- Turns that were erased since they were read: drawn anew, with all that was drawn after them in their thread.
    DELETE FROM replay_draws AS d USING replay_draws AS b
    WHERE d.replay_id = v_id AND b.replay_id = v_id AND b.thread_id = d.thread_id AND b.stage = d.stage
      AND b.from_seq <= d.from_seq AND b.said <> slice_digest(b.thread_id, b.from_seq, b.upto_seq);
    RETURN v_id;
END
$$;

-- The stages of a replay's sessions with how far they are consolidated, and how far they were drawn anew.
CREATE FUNCTION replay_progress(r replays)
RETURNS TABLE (thread_id uuid, stage text, watermark bigint, drawn_seq bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT t.id, s.stage, s.watermark,
           coalesce((SELECT max(d.upto_seq) FROM replay_draws AS d
                     WHERE d.replay_id = r.id AND d.thread_id = t.id AND d.stage = s.stage), 0)
    FROM threads AS t
    CROSS JOIN LATERAL (VALUES ('fast', t.fast_upto_seq), ('deep', t.deep_upto_seq)) AS s (stage, watermark)
    WHERE t.app_name = r.app_name AND t.user_id = r.user_id AND (r.thread_id IS NULL OR t.id = r.thread_id)
$$;

-- Puts what a replay drew in the place of what is stored, and says what became of each: 'added', 'dropped' or 'kept'.
-- What comes out the same is not touched: it keeps its id, its strength and its age. What was added by hand, archived or
-- forgotten is left as it is. Statements of facts that were not drawn again are retracted: an earlier known_at still
-- sees them. Roll the transaction back to have looked only.
-- Errors: HP043 sessions were consolidated further, or changed, since they were drawn: nothing is changed.
CREATE FUNCTION swap_replay(p_replay_id uuid)
RETURNS TABLE (change text, kind text, thread_id uuid, key text, content text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    r     replays;
    t     threads;
BEGIN
    SELECT * INTO r FROM replays WHERE id = p_replay_id AND applied_at IS NULL;
    -- Whoever consolidates one of these waits, and then goes on: no watermark is moved.
    PERFORM FROM threads AS x
    WHERE x.app_name = r.app_name AND x.user_id = r.user_id AND (r.thread_id IS NULL OR x.id = r.thread_id)
    ORDER BY x.id FOR NO KEY UPDATE;
    PERFORM lock_user_memory(r.app_name, r.user_id);
    SELECT * INTO r FROM replays WHERE id = p_replay_id AND applied_at IS NULL FOR UPDATE;
    IF r.id IS NULL OR EXISTS (SELECT FROM replay_progress(r) AS p WHERE p.drawn_seq <> p.watermark)
       OR EXISTS (SELECT FROM replay_draws AS d
                  WHERE d.replay_id = r.id AND d.said <> slice_digest(d.thread_id, d.from_seq, d.upto_seq)) THEN
        RAISE EXCEPTION 'what replay % drew is not what is stored by now: nothing was changed, replay again', p_replay_id
            USING ERRCODE = 'HP043';
    END IF;
    FOR t IN SELECT x.* FROM threads AS x
             WHERE x.app_name = r.app_name AND x.user_id = r.user_id AND (r.thread_id IS NULL OR x.id = r.thread_id)
             ORDER BY x.id LOOP
        RETURN QUERY SELECT s.change, s.kind, t.id, NULL::text, s.content FROM swap_memories(r, t) AS s;
    END LOOP;
    RETURN QUERY SELECT s.change, 'fact', s.thread_id, s.key, s.content FROM swap_facts(r) AS s;
    UPDATE messages AS m SET embedding = v.embedding, embedding_model = (d.origin).embedding_model
    FROM replay_draws AS d CROSS JOIN LATERAL unnest(d.vectors) AS v
    WHERE d.replay_id = r.id AND m.thread_id = d.thread_id AND m.sequence_num = v.sequence_num
      AND m.embedding_model IS DISTINCT FROM (d.origin).embedding_model;
    IF EXISTS (SELECT FROM replay_draws AS d WHERE d.replay_id = r.id AND d.vectorless) OR EXISTS (
        SELECT FROM facts AS f WHERE f.app_name = r.app_name AND f.user_id = r.user_id AND f.embedding IS NULL) THEN
        PERFORM enqueue_embedding_backfill();
    END IF;
    DELETE FROM replay_draws AS d WHERE d.replay_id = r.id;
    UPDATE replays SET applied_at = engine_now() WHERE id = r.id;
END
$$;

-- The memories of one session. A pinned one is kept, and an insight that came more than once: other sessions may have
-- said it too.
CREATE FUNCTION swap_memories(r replays, t threads)
RETURNS TABLE (change text, kind text, content text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    d         record;
    v_old     uuid[];
    v_kept    uuid[] := '{}';
    v_origins slice_origin[] := '{}';
    v_fresh   memory_input[] := '{}';
    v_id      uuid;
BEGIN
    SELECT array_agg(o.id) INTO v_old FROM (
        SELECT m.id FROM memories AS m WHERE m.thread_id = t.id AND m.from_seq IS NOT NULL ORDER BY m.id FOR UPDATE) AS o;
    FOR d IN
        SELECT x.origin, x.memories[n] AS memory
        FROM replay_draws AS x CROSS JOIN LATERAL generate_subscripts(x.memories, 1) AS n
        WHERE x.replay_id = r.id AND x.thread_id = t.id
        ORDER BY x.stage DESC, x.from_seq, n
    LOOP
        v_id := CASE (d.memory).memory_type
            WHEN 'semantic' THEN find_insight(t, d.memory, (d.origin).embedding_model)
            ELSE (SELECT m.id FROM memories AS m
                  WHERE m.thread_id = t.id AND m.memory_type = (d.memory).memory_type
                    AND m.content = (d.memory).content AND m.from_seq = (d.origin).from_seq
                    AND m.upto_seq = (d.origin).upto_seq LIMIT 1) END;
        IF v_id IS NOT NULL THEN
            v_kept := v_kept || v_id;
        ELSIF NOT EXISTS (
            SELECT FROM memories_archive AS a
            WHERE a.thread_id = t.id AND a.memory_type = (d.memory).memory_type AND a.content = (d.memory).content)
            AND NOT is_forgotten_memory(t.id, (d.memory).memory_type, (d.origin).from_seq, (d.origin).upto_seq,
                                        (d.memory).source_seqs) THEN
            v_origins := array_append(v_origins, d.origin);
            v_fresh := array_append(v_fresh, d.memory);
        END IF;
    END LOOP;
    RETURN QUERY
        SELECT CASE WHEN m.id = ANY (v_kept) OR m.pinned OR coalesce((m.metadata ->> 'support')::integer, 1) > 1
                    THEN 'kept' ELSE 'dropped' END, m.memory_type::text, m.content
        FROM memories AS m WHERE m.id = ANY (v_old) ORDER BY m.from_seq, m.id;
    DELETE FROM memories AS m
    WHERE m.id = ANY (v_old) AND m.id <> ALL (v_kept) AND NOT m.pinned
      AND coalesce((m.metadata ->> 'support')::integer, 1) = 1;
    FOR n IN 1 .. cardinality(v_fresh) LOOP
        v_id := (store_memories(t, v_origins[n], v_fresh[n:n]))[1];
        IF v_id <> ALL (v_kept) THEN
            v_kept := v_kept || v_id;
            RETURN QUERY SELECT 'added', v_fresh[n].memory_type, v_fresh[n].content;
        END IF;
    END LOOP;
END
$$;

-- The statements of all sessions of a replay, in the order in which they were said.
CREATE FUNCTION swap_facts(r replays)
RETURNS TABLE (change text, thread_id uuid, key text, content text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    d         record;
    t         threads;
    v_fact    uuid;
    v_facts   uuid[];
    v_old     uuid[];
    v_kept    uuid[] := '{}';
    v_same    uuid;
    v_threads uuid[] := '{}';
    v_origins slice_origin[] := '{}';
    v_fresh   fact_input[] := '{}';
BEGIN
    SELECT array_agg(v.id), array_agg(DISTINCT v.fact_id) INTO v_old, v_facts
    FROM fact_versions AS v JOIN threads AS x ON x.id = v.thread_id
    WHERE x.app_name = r.app_name AND x.user_id = r.user_id AND (r.thread_id IS NULL OR x.id = r.thread_id)
      AND v.from_seq IS NOT NULL AND v.value IS NOT NULL AND v.retracted_at IS NULL;
    PERFORM FROM facts WHERE id = ANY (v_facts) ORDER BY fact_type, key FOR UPDATE;
    FOR d IN
        SELECT x.thread_id, x.origin, x.facts[n] AS fact
        FROM replay_draws AS x CROSS JOIN LATERAL generate_subscripts(x.facts, 1) AS n
        WHERE x.replay_id = r.id
        ORDER BY x.facts[n].valid_from, x.from_seq, n
    LOOP
        SELECT v.id INTO v_same FROM fact_versions AS v
        WHERE v.id = ANY (v_old) AND v.id <> ALL (v_kept) AND v.thread_id = d.thread_id
          AND v.fact_type = (d.fact).fact_type AND v.key = (d.fact).key AND v.value = (d.fact).value
          AND v.source_seqs = (d.fact).source_seqs AND v.confidence = (d.fact).confidence
        LIMIT 1;
        IF FOUND THEN
            v_kept := v_kept || v_same;
        ELSE
            v_threads := array_append(v_threads, d.thread_id);
            v_origins := array_append(v_origins, d.origin);
            v_fresh := array_append(v_fresh, d.fact);
        END IF;
    END LOOP;
    RETURN QUERY
        SELECT CASE WHEN v.id = ANY (v_kept) THEN 'kept' ELSE 'dropped' END, v.thread_id, v.key::text, v.content
        FROM fact_versions AS v WHERE v.id = ANY (v_old) ORDER BY v.key, v.valid_from, v.id;
    UPDATE fact_versions SET retracted_at = greatest(recording_time(), recorded_at)
    WHERE id = ANY (v_old) AND id <> ALL (v_kept);
    FOR v_fact IN SELECT DISTINCT v.fact_id FROM fact_versions AS v WHERE v.id = ANY (v_old) AND v.id <> ALL (v_kept)
    LOOP
        PERFORM rebuild_fact(v_fact);
    END LOOP;
    FOR n IN 1 .. cardinality(v_fresh) LOOP
        SELECT * INTO STRICT t FROM threads AS x WHERE x.id = v_threads[n];
        IF (SELECT o.fact_id FROM record_fact(t, v_origins[n], v_fresh[n]) AS o) IS NOT NULL THEN
            RETURN QUERY SELECT 'added', t.id, v_fresh[n].key, v_fresh[n].content;
        END IF;
    END LOOP;
END
$$;
