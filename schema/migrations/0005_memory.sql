-- What was learned: memories, facts with their history, instructions.

CREATE TABLE memories (
    id               uuid PRIMARY KEY DEFAULT new_id(),
    thread_id        uuid REFERENCES threads ON DELETE SET NULL,
    user_id          varchar(255) NOT NULL,
    app_name         varchar(255) NOT NULL,
    memory_type      varchar(50) NOT NULL DEFAULT 'episodic' CHECK (memory_type IN ('episodic', 'semantic', 'summary')),
    content          text NOT NULL CHECK (content <> ''),
    embedding        vector(1536),
    embedding_model  text,
    metadata         jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    -- 1.0, 0.7, 0.4 for insights of high, medium, low importance; 0.8 for summaries; 0.5 for raw slices.
    initial_score    double precision NOT NULL DEFAULT 0.5 CHECK (initial_score BETWEEN 0 AND 1),
    pinned           boolean NOT NULL DEFAULT false,    -- never fades, never cleaned up
    access_count     integer NOT NULL DEFAULT 0 CHECK (access_count >= 0),
    last_accessed_at timestamptz NOT NULL DEFAULT engine_now(),
    -- Provenance: the turns it was drawn from, the job, the prompt and the model that drew it.
    from_seq         bigint,
    upto_seq         bigint,
    source_seqs      bigint[] NOT NULL DEFAULT '{}',
    job_id           uuid,
    prompt_hash      text,
    model            text,
    occurred_at      timestamptz NOT NULL DEFAULT engine_now(),   -- when the last of its turns was said
    created_at       timestamptz NOT NULL DEFAULT engine_now(),
    search           tsvector GENERATED ALWAYS AS (search_document(content)) STORED,
    CHECK (from_seq <= upto_seq),
    CHECK ((embedding IS NULL) = (embedding_model IS NULL))
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX memories_scope_idx ON memories (app_name, user_id, created_at DESC);
CREATE INDEX memories_time_idx ON memories (app_name, user_id, occurred_at DESC, id DESC)
    WHERE memory_type = 'episodic';
CREATE INDEX memories_thread_idx ON memories (thread_id);
CREATE INDEX memories_embedding_idx ON memories USING hnsw (embedding vector_cosine_ops)
    WITH (m = 16, ef_construction = 64);
CREATE INDEX memories_search_idx ON memories USING gin (search);
CREATE INDEX memories_without_vector_idx ON memories (id) WHERE embedding IS NULL;
-- One summary and one slice for a range, however often its job was delivered.
CREATE UNIQUE INDEX memories_slice_once_idx ON memories (thread_id, memory_type, from_seq)
    WHERE memory_type IN ('episodic', 'summary') AND thread_id IS NOT NULL AND from_seq IS NOT NULL;

CREATE TABLE memories_archive (
    LIKE memories,
    archive_reason text NOT NULL,
    score          double precision,
    archived_at    timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (id)
);

CREATE TABLE facts (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    thread_id       uuid REFERENCES threads ON DELETE SET NULL,
    user_id         varchar(255) NOT NULL,
    app_name        varchar(255) NOT NULL,
    fact_type       varchar(50) NOT NULL DEFAULT 'preference'
                    CHECK (fact_type IN ('preference', 'rule', 'profile', 'custom')),
    key             varchar(255) NOT NULL CHECK (key <> ''),
    normal_key      text NOT NULL,                 -- one for all spellings of the key; plain_key() where none is given
    collection      text,                          -- of an element: the normal form of its collection
    contrast        text NOT NULL DEFAULT '',      -- what tells its key apart from others of like meaning
    value           jsonb NOT NULL CHECK (value <> 'null'),
    content         text NOT NULL,                 -- "key: value", what is embedded and searched
    embedding       vector(1536),
    embedding_model text,
    confidence      double precision NOT NULL DEFAULT 1.0 CHECK (confidence BETWEEN 0 AND 1),
    -- The clock of the world: when it was true. The clock of the record: when it was known.
    valid_from      timestamptz NOT NULL DEFAULT engine_now(),
    valid_until     timestamptz,
    last_said_at    timestamptz,                   -- when it was said last; NULL: once
    recorded_at     timestamptz NOT NULL DEFAULT engine_now(),
    from_seq        bigint,
    upto_seq        bigint,
    source_seqs     bigint[] NOT NULL DEFAULT '{}',
    job_id          uuid,
    prompt_hash     text,
    model           text,
    created_at      timestamptz NOT NULL DEFAULT engine_now(),   -- of the key's first version
    updated_at      timestamptz NOT NULL DEFAULT engine_now(),
    search          tsvector GENERATED ALWAYS AS (search_document(content)) STORED,
    CONSTRAINT facts_user_key_unique UNIQUE (user_id, app_name, fact_type, key),
    CONSTRAINT facts_normal_key_unique UNIQUE (user_id, app_name, fact_type, normal_key),
    CHECK (valid_until > valid_from),
    CHECK ((embedding IS NULL) = (embedding_model IS NULL))
);
CREATE INDEX facts_scope_idx ON facts (app_name, user_id);
CREATE INDEX facts_key_idx ON facts (fact_type, key);
CREATE INDEX facts_value_idx ON facts USING gin (value jsonb_path_ops);
CREATE INDEX facts_valid_idx ON facts (app_name, user_id) WHERE valid_until IS NULL;
CREATE INDEX facts_thread_idx ON facts (thread_id);
CREATE INDEX facts_without_vector_idx ON facts (id) WHERE embedding IS NULL;

-- Every statement about a fact, in the words of its key: the ledger from which `facts` can be made again. What is in a
-- row stays, but for the two times at which it began and ceased to count.
CREATE TABLE fact_versions (
    id           uuid PRIMARY KEY DEFAULT new_id(),
    fact_id      uuid NOT NULL,
    thread_id    uuid REFERENCES threads ON DELETE SET NULL,
    user_id      varchar(255) NOT NULL,
    app_name     varchar(255) NOT NULL,
    fact_type    varchar(50) NOT NULL,
    key          varchar(255) NOT NULL,            -- as it was said; see fact_aliases
    normal_key   text NOT NULL,
    collection   text,
    contrast     text NOT NULL DEFAULT '',
    value        jsonb,                            -- NULL: from valid_from on, nothing holds
    content      text NOT NULL DEFAULT '',
    confidence   double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    valid_from   timestamptz NOT NULL,             -- when it was said
    recorded_at  timestamptz NOT NULL,             -- when it was heard
    accepted_at  timestamptz,                      -- since when it is believed; NULL: it is a candidate
    retracted_at timestamptz,                      -- since when it is not any more, because it was drawn anew
    from_seq     bigint,
    upto_seq     bigint,
    source_seqs  bigint[] NOT NULL DEFAULT '{}',
    job_id       uuid,
    prompt_hash  text,
    model        text,
    CHECK (accepted_at >= recorded_at),
    CHECK (retracted_at >= recorded_at)
);
CREATE INDEX fact_versions_fact_idx ON fact_versions (fact_id, valid_from);
CREATE INDEX fact_versions_scope_idx ON fact_versions (app_name, user_id);
CREATE INDEX fact_versions_candidates_idx ON fact_versions (app_name, user_id)
    WHERE accepted_at IS NULL AND retracted_at IS NULL;
CREATE INDEX fact_versions_thread_idx ON fact_versions (thread_id);

-- Procedural memory: a change adds a version, the newest is read.
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
