-- Instructions: versions, and proposals to change them.

-- Adds a version of an instruction and returns it; returns the newest one if nothing changed.
-- p_expected_version: the newest version that the caller read, 0 for none; NULL: any.
-- Errors: HP016 it was changed by another caller.
CREATE OR REPLACE FUNCTION put_instruction(
    p_app_name text, p_instruction_key text, p_content text, p_metadata jsonb, p_expected_version integer)
RETURNS instructions
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    newest instructions;
BEGIN
    -- Versions of one instruction are added one at a time; there may be no row yet to lock.
    PERFORM pg_advisory_xact_lock(hashtextextended(
        concat_ws(' ', 'instruction of', current_schema(), p_app_name, p_instruction_key), 0));
    SELECT * INTO newest FROM instructions AS i
    WHERE i.app_name = p_app_name AND i.instruction_key = p_instruction_key
    ORDER BY i.version DESC LIMIT 1;
    IF coalesce(newest.version, 0) <> p_expected_version THEN
        RAISE EXCEPTION 'instruction % is at version %, not %: read it again and redo the change',
            quote_literal(p_instruction_key), coalesce(newest.version, 0), p_expected_version USING ERRCODE = 'HP016';
    END IF;
    IF newest.content IS DISTINCT FROM p_content OR newest.metadata IS DISTINCT FROM p_metadata THEN
        INSERT INTO instructions (app_name, instruction_key, content, version, metadata)
        VALUES (p_app_name, p_instruction_key, p_content, coalesce(newest.version, 0) + 1, p_metadata)
        RETURNING * INTO newest;
    END IF;
    RETURN newest;
END
$$;

-- The instructions in force: the newest version of each, unless that is empty.
CREATE OR REPLACE FUNCTION active_instructions(p_app_name text) RETURNS SETOF instructions
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT i.* FROM (
        SELECT DISTINCT ON (x.instruction_key) x.* FROM instructions AS x WHERE x.app_name = p_app_name
        ORDER BY x.instruction_key, x.version DESC) AS i
    WHERE i.content <> ''
$$;

-- Stores what a slice proposes, under the thread's app and user; returns the new proposals. What is in force already,
-- or was proposed before, is skipped.
CREATE OR REPLACE FUNCTION propose_instructions(p_thread_id uuid, p_origin slice_origin, p_proposals proposal_input[])
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

-- Makes a proposal a version of its instruction; if the instruction has changed since it was proposed, only if p_force.
-- Errors: HP042 no such open proposal of this app; HP016 the instruction has changed.
CREATE OR REPLACE FUNCTION approve_proposal(p_app_name text, p_id uuid, p_decided_by text, p_force boolean)
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
CREATE OR REPLACE FUNCTION reject_proposal(p_app_name text, p_id uuid, p_decided_by text) RETURNS instruction_proposals
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

-- An open proposal, locked until the transaction ends. Errors: HP042.
CREATE OR REPLACE FUNCTION open_proposal(p_app_name text, p_id uuid) RETURNS instruction_proposals
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    p instruction_proposals;
BEGIN
    SELECT * INTO p FROM instruction_proposals
    WHERE id = p_id AND app_name = p_app_name AND status = 'proposed' FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'app % has no open proposal %', quote_nullable(p_app_name), p_id
            USING ERRCODE = 'HP042';
    END IF;
    RETURN p;
END
$$;
