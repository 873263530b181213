-- Memories: what was learned from conversations, their archive, and how their vectors are made.

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
    pinned           boolean NOT NULL DEFAULT false,    -- never decays, never cleaned up
    access_count     integer NOT NULL DEFAULT 0 CHECK (access_count >= 0),
    last_accessed_at timestamptz NOT NULL DEFAULT engine_now(),
    -- Provenance: the turns it was extracted from, and the job, the prompt and the model that extracted it.
    from_seq         bigint,
    upto_seq         bigint,
    source_seqs      bigint[] NOT NULL DEFAULT '{}',
    job_id           uuid,
    prompt_hash      text,
    model            text,
    occurred_at      timestamptz NOT NULL DEFAULT engine_now(),   -- when the last of its turns occurred
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
-- One summary and one slice per range, however often its job is delivered.
CREATE UNIQUE INDEX memories_slice_once_idx ON memories (thread_id, memory_type, from_seq)
    WHERE memory_type IN ('episodic', 'summary') AND thread_id IS NOT NULL AND from_seq IS NOT NULL;
-- Vectors of other models are the ranges below and above the current one's name. Equal keys are stored once, and an
-- append adds none.
CREATE INDEX memories_embedding_model_idx ON memories (embedding_model) WHERE embedding_model IS NOT NULL;

-- Memories that became too weak, with their score and why.
CREATE TABLE memories_archive (
    LIKE memories,
    archive_reason text NOT NULL,
    score          double precision,
    archived_at    timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (id)
);
CREATE INDEX memories_archive_scope_idx ON memories_archive (app_name, user_id, id);
CREATE INDEX memories_archive_age_idx ON memories_archive (archived_at);

-- A memory to store.
CREATE TYPE memory_input AS (
    memory_type   text,
    content       text,
    embedding     vector(1536),
    metadata      jsonb,
    initial_score double precision,
    source_seqs   bigint[],
    occurred_at   timestamptz
);

-- A memory that a caller wrote.
CREATE TYPE given_memory AS (
    id            uuid,
    content       text,
    metadata      jsonb,
    initial_score double precision,
    occurred_at   timestamptz         -- NULL: now
);

-- A message's vector.
CREATE TYPE message_vector AS (
    sequence_num bigint,
    embedding    vector(1536)
);

-- What the backfill stores in a row: a vector of the text that it held when it was read. It had a vector of
-- former_model then, or none.
CREATE TYPE vector_input AS (
    id           uuid,
    content      text,
    former_model text,
    embedding    vector(1536)
);

-- Where a slice comes from and what was derived with; stored on every row that is derived from it.
CREATE TYPE slice_origin AS (
    job_id          uuid,
    from_seq        bigint,
    upto_seq        bigint,
    prompt_hash     text,
    model           text,
    embedding_model text
);

-- The weight of each part of a match. The defaults were tuned on conversations; see docs/search.md.
CREATE TYPE search_weights AS (
    bm25               double precision,   -- of the row itself
    context_bm25       double precision,   -- of the row and, with less weight, the turns around it
    similarity         double precision,   -- cosine similarity of the vectors
    context_similarity double precision,   -- the same over the turns around it
    author             double precision,   -- the query names the author
    recency            double precision,   -- 1 now, halved every 30 days
    retention          double precision,   -- memories: strength; facts: confidence; messages: 1
    question           double precision    -- subtracted from a turn that ends in a question: it seldom answers
);

-- Texts that a model refused for their content, so that they are not sent again. It holds ids and hashes, no content,
-- and has no foreign keys: they would lock rows that accesses and the clean-up lock.
CREATE TABLE embedding_refusals (
    source      text NOT NULL CHECK (source IN ('memories', 'facts', 'messages')),
    id          uuid NOT NULL,
    model       text NOT NULL,
    content_md5 text NOT NULL,
    error_code  text NOT NULL,
    refused_at  timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (source, id, model)
);
COMMENT ON TABLE embedding_refusals IS 'Texts that stay without a vector; delete a row to have its text embedded again.';

-- The model that vectors are moved to. Without it, two processes with different settings would overwrite each other's
-- vectors forever.
CREATE TABLE embedding_target (
    is_only   boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    model     text NOT NULL,
    chosen_at timestamptz NOT NULL DEFAULT engine_now()
);

-- A reply that was paid for and is not stored as memories yet: at most one per stage of a thread. A retry of the same
-- slice uses it. It is deleted when the slice is stored, or with the thread.
CREATE TABLE model_replies (
    thread_id     uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    stage         text NOT NULL CHECK (stage IN ('fast', 'deep')),
    input_hash    text NOT NULL,             -- SHA-256, hex, of the provider's name and of the slice's turns
    reply         jsonb NOT NULL CHECK (jsonb_typeof(reply) = 'object'),
    created_at    timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (thread_id, stage)
);
