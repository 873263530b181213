-- Instructions: procedural memory, and proposals to change it.

-- A change adds a version; the newest one is in force.
CREATE TABLE instructions (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    app_name        varchar(255) NOT NULL,
    instruction_key varchar(255) NOT NULL CHECK (instruction_key <> ''),
    content         text NOT NULL,
    version         integer NOT NULL DEFAULT 1 CHECK (version > 0),
    metadata        jsonb NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    CONSTRAINT instructions_app_key_version_unique UNIQUE (app_name, instruction_key, version)
);

-- A proposal has no effect until `approve_proposal` makes it a version of its instruction.
CREATE TABLE instruction_proposals (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    app_name        varchar(255) NOT NULL,
    user_id         varchar(255) NOT NULL,     -- whose feedback it comes from
    thread_id       uuid REFERENCES threads ON DELETE SET NULL,
    instruction_key varchar(255) NOT NULL CHECK (instruction_key <> ''),
    content         text NOT NULL CHECK (content <> ''),
    status          text NOT NULL DEFAULT 'proposed' CHECK (status IN ('proposed', 'approved', 'rejected')),
    base_version    integer NOT NULL,          -- the newest version when it was proposed; 0: none
    version         integer,                   -- the version that it became
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
-- The same request of the same user is one proposal, even after it was rejected.
CREATE UNIQUE INDEX instruction_proposals_once_idx
    ON instruction_proposals (app_name, user_id, instruction_key, md5(content)) WHERE status <> 'approved';

-- A proposal to store.
CREATE TYPE proposal_input AS (
    instruction_key text,
    content         text,
    source_seqs     bigint[]
);
