-- Facts: the current ones, the ledger that they follow from, and the rules for merging keys.

-- The current version of each fact.
CREATE TABLE facts (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    thread_id       uuid REFERENCES threads ON DELETE SET NULL,
    user_id         varchar(255) NOT NULL,
    app_name        varchar(255) NOT NULL,
    fact_type       varchar(50) NOT NULL DEFAULT 'preference'
                    CHECK (fact_type IN ('preference', 'rule', 'profile', 'custom')),
    key             varchar(255) NOT NULL CHECK (key <> ''),
    normal_key      text NOT NULL,                 -- shared by all spellings of the key; by default plain_key()
    collection      text,                          -- of an element: its collection's normal form
    contrast        text NOT NULL DEFAULT '',      -- what distinguishes the key from others of similar meaning
    value           jsonb NOT NULL CHECK (value <> 'null'),
    content         text NOT NULL,                 -- "key: value"; embedded and searched
    embedding       vector(1536),
    embedding_model text,
    confidence      double precision NOT NULL DEFAULT 1.0 CHECK (confidence BETWEEN 0 AND 1),
    -- Valid time: when it was true. Record time: when it was known.
    valid_from      timestamptz NOT NULL DEFAULT engine_now(),
    valid_until     timestamptz,
    last_said_at    timestamptz,                   -- when it was stated last; NULL: only once
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
CREATE INDEX facts_embedding_model_idx ON facts (embedding_model) WHERE embedding_model IS NOT NULL;

-- The ledger of every statement about a fact, from which `facts` can be rebuilt. Rows do not change, except for the two
-- times when they were accepted and retracted.
CREATE TABLE fact_versions (
    id           uuid PRIMARY KEY DEFAULT new_id(),
    fact_id      uuid NOT NULL,
    thread_id    uuid REFERENCES threads ON DELETE SET NULL,
    user_id      varchar(255) NOT NULL,
    app_name     varchar(255) NOT NULL,
    fact_type    varchar(50) NOT NULL,
    key          varchar(255) NOT NULL,            -- as it was stated; see fact_aliases
    normal_key   text NOT NULL,
    collection   text,
    contrast     text NOT NULL DEFAULT '',
    value        jsonb,                            -- NULL: the fact ends at valid_from
    content      text NOT NULL DEFAULT '',
    confidence   double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    valid_from   timestamptz NOT NULL,             -- when it was stated
    recorded_at  timestamptz NOT NULL,             -- when it was recorded
    accepted_at  timestamptz,                      -- since when it counts; NULL: it is a candidate
    retracted_at timestamptz,                      -- since when it no longer counts, after a replay
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

-- The similarity from which two texts count as the same, by kind and embedding model. With a model that has no row,
-- nothing is merged by meaning: thresholds do not carry over from one model to another.
CREATE TABLE merge_thresholds (
    embedding_model text NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('fact', 'insight')),
    threshold       double precision NOT NULL CHECK (threshold > 0 AND threshold <= 1),
    note            text NOT NULL DEFAULT '',
    PRIMARY KEY (embedding_model, kind)
);

INSERT INTO merge_thresholds (embedding_model, kind, threshold, note) VALUES
('local-hash-v1', 'fact', 0.36, 'precision 0.91, recall 0.67'),
('local-hash-v1', 'insight', 0.68, 'precision 1.00, recall 0.07');

-- Which keys hold one value and which hold many; app '*' is for every app. Keys without a row follow the program's
-- list.
CREATE TABLE fact_styles (
    app_name   varchar(255) NOT NULL,
    fact_type  varchar(50) NOT NULL CHECK (fact_type IN ('preference', 'rule', 'profile', 'custom')),
    normal_key text NOT NULL CHECK (normal_key <> ''),
    style      text NOT NULL CHECK (style IN ('profile', 'collection')),
    PRIMARY KEY (app_name, fact_type, normal_key)
);

-- Keys that were merged into a fact as other spellings of its key. After undo_merge, a key is a fact of its own.
CREATE TABLE fact_aliases (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    app_name        varchar(255) NOT NULL,
    user_id         varchar(255) NOT NULL,
    fact_type       varchar(50) NOT NULL,
    from_key        varchar(255) NOT NULL,
    to_key          varchar(255) NOT NULL,
    fact_id         uuid NOT NULL,
    method          text NOT NULL CHECK (method IN ('normal_form', 'meaning')),
    similarity      double precision NOT NULL,   -- cosine; 1 for a normal form
    embedding_model text,
    job_id          uuid,
    merged_at       timestamptz NOT NULL DEFAULT engine_now(),
    undone_at       timestamptz,
    UNIQUE (app_name, user_id, fact_type, from_key, fact_id)
);

-- A fact to record.
CREATE TYPE fact_input AS (
    fact_type   text,
    key         text,
    value       jsonb,
    content     text,
    embedding   vector(1536),
    confidence  double precision,
    source_seqs bigint[],
    valid_from  timestamptz,   -- when it was stated
    normal_key  text,          -- shared with other spellings of the key; NULL: the key itself
    collection  text,          -- the normal form of the collection that it belongs to; NULL: none
    contrast    text           -- only facts of the same contrast are merged by similarity; NULL: ''
);
