-- Proposals: what users' feedback asks an app's instructions to become. Replay: drawing memories anew, then swapping.

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
