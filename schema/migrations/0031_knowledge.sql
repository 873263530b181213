-- Knowledge: corpora of documents, their versions, and the chunks that are searched.

-- A collection of documents with one way of chunking and one set of readers.
CREATE TABLE corpus (
    id          uuid PRIMARY KEY DEFAULT new_id(),
    app_name    varchar(255) NOT NULL CHECK (app_name <> ''),
    user_id     varchar(255) CHECK (user_id <> ''),         -- whose own it is; NULL: the app's
    name        varchar(255) NOT NULL CHECK (name <> ''),
    description varchar(2000) NOT NULL DEFAULT '',
    config      jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(config) = 'object'),   -- how documents are chunked
    created_at  timestamptz NOT NULL DEFAULT engine_now(),
    updated_at  timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE NULLS NOT DISTINCT (app_name, user_id, name)
);

-- Who may use a corpus, besides its owner: '*', 'user:NAME' or 'role:NAME', once as a reader and once as a writer, who
-- reads, too.
CREATE TABLE corpus_access (
    corpus_id uuid NOT NULL REFERENCES corpus ON DELETE CASCADE,
    app_name  varchar(255) NOT NULL,
    grantee   varchar(300) NOT NULL CHECK (grantee = '*' OR grantee ~ '^(user|role):.'),
    may_write boolean NOT NULL DEFAULT false,
    PRIMARY KEY (corpus_id, grantee, may_write)
);
CREATE INDEX corpus_access_grantee_idx ON corpus_access (app_name, grantee);

-- A document: what is known by one address. `version` is searched; `last_version` was given last, and may be on its way.
CREATE TABLE knowledge_documents (
    id                   uuid PRIMARY KEY DEFAULT new_id(),
    corpus_id            uuid NOT NULL REFERENCES corpus ON DELETE CASCADE,
    app_name             varchar(255) NOT NULL,
    source_uri           varchar(2048) NOT NULL CHECK (source_uri <> ''),
    title                varchar(500) NOT NULL DEFAULT '',
    mime_type            varchar(255) NOT NULL,
    metadata             jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    version              integer NOT NULL DEFAULT 0 CHECK (version >= 0),         -- 0: none yet
    last_version         integer NOT NULL CHECK (last_version >= version),
    status               text NOT NULL CHECK (status IN ('waiting', 'running', 'ready', 'failed')),
    error_code           text,
    error                text,
    chunks               integer NOT NULL DEFAULT 0 CHECK (chunks >= 0),          -- of `version`
    words                bigint NOT NULL DEFAULT 0 CHECK (words >= 0),            -- their different terms, added up
    chunks_done          integer NOT NULL DEFAULT 0 CHECK (chunks_done >= 0),     -- of `last_version`, while it is ingested
    chunks_total         integer CHECK (chunks_total >= 0),
    procrastinate_job_id bigint,
    created_at           timestamptz NOT NULL DEFAULT engine_now(),
    updated_at           timestamptz NOT NULL DEFAULT engine_now(),
    ingested_at          timestamptz,
    UNIQUE (corpus_id, source_uri),
    CHECK ((status = 'failed') = (error_code IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX knowledge_documents_open_idx ON knowledge_documents (id) WHERE status IN ('waiting', 'running');

-- What a document said, version by version. A superseded version is kept for a time, for `as_of`.
CREATE TABLE knowledge_versions (
    document_id   uuid NOT NULL REFERENCES knowledge_documents ON DELETE CASCADE,
    version       integer NOT NULL CHECK (version > 0),
    corpus_id     uuid NOT NULL,
    app_name      varchar(255) NOT NULL,
    content_hash  bytea NOT NULL CHECK (octet_length(content_hash) = 32),
    body          text NOT NULL,                     -- as it was read: plain text or Markdown
    is_markdown   boolean NOT NULL,
    pages         integer[] NOT NULL DEFAULT '{}',   -- where each page begins in the body; empty: it has no pages
    config        jsonb NOT NULL,                    -- of the corpus, at that time
    title         varchar(500) NOT NULL,
    bytes         bigint NOT NULL CHECK (bytes >= 0),
    chunks        integer CHECK (chunks >= 0),
    words         bigint CHECK (words >= 0),
    created_at    timestamptz NOT NULL DEFAULT engine_now(),
    ingested_at   timestamptz,                       -- NULL: it is not searched yet
    superseded_at timestamptz,                       -- NULL: nothing has taken its place
    PRIMARY KEY (document_id, version)
);
CREATE INDEX knowledge_versions_old_idx ON knowledge_versions (superseded_at) WHERE superseded_at IS NOT NULL;

-- A chunk: what a search finds. A row serves every version that has the same text under the same headings; its position
-- is that in the last of them. Rows of a version that is not searched yet are staged.
CREATE TABLE knowledge_base (
    id              uuid PRIMARY KEY DEFAULT new_id(),
    document_id     uuid NOT NULL REFERENCES knowledge_documents ON DELETE CASCADE,
    corpus_id       uuid NOT NULL,
    app_name        varchar(255) NOT NULL,
    chunk_index     integer NOT NULL CHECK (chunk_index >= 0),
    label           text NOT NULL DEFAULT '',            -- title and headings: searched and embedded with the content
    heading_path    text[] NOT NULL DEFAULT '{}',
    content         text NOT NULL CHECK (content <> ''),
    char_from       integer NOT NULL CHECK (char_from >= 0),
    char_upto       integer NOT NULL,
    page            integer CHECK (page > 0),
    chunk_hash      bytea NOT NULL CHECK (octet_length(chunk_hash) = 32),
    nth             integer NOT NULL DEFAULT 0 CHECK (nth >= 0),   -- among the equal chunks of its document
    tokens          integer NOT NULL CHECK (tokens > 0),
    words           integer NOT NULL CHECK (words >= 0),
    language        text,
    from_version    integer NOT NULL CHECK (from_version > 0),
    upto_version    integer CHECK (upto_version >= from_version),  -- NULL: the current one has it, too
    embedding_model text,                                -- of its row in knowledge_vectors; NULL: it has none
    refused_by      text,                                -- a model that does not embed this text
    search          tsvector NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    CHECK (char_upto > char_from)
) WITH (fillfactor = 90);
CREATE UNIQUE INDEX knowledge_base_once_idx ON knowledge_base (document_id, chunk_hash, nth, from_version);
CREATE INDEX knowledge_base_corpus_idx ON knowledge_base (corpus_id);
CREATE INDEX knowledge_base_search_idx ON knowledge_base USING gin (search);
CREATE INDEX knowledge_base_model_idx ON knowledge_base (embedding_model) WHERE embedding_model IS NOT NULL;
CREATE INDEX knowledge_base_vectorless_idx ON knowledge_base (id) WHERE embedding_model IS NULL;

-- The vector of a chunk, as those that memory search reads: of unit length, in half precision.
CREATE TABLE knowledge_vectors (
    id        uuid PRIMARY KEY REFERENCES knowledge_base ON DELETE CASCADE,
    corpus_id uuid NOT NULL,
    app_name  varchar(255) NOT NULL,
    model     text NOT NULL,
    embedding halfvec NOT NULL
) WITH (toast_tuple_target = 8160);
CREATE INDEX knowledge_vectors_corpus_idx ON knowledge_vectors (corpus_id, model);

-- A chunk to store.
CREATE TYPE chunk_input AS (
    chunk_index  integer,
    label        text,
    heading_path text[],
    content      text,
    char_from    integer,
    char_upto    integer,
    page         integer,
    chunk_hash   bytea,
    nth          integer,
    tokens       integer,
    language     text,
    embedding    vector
);

-- Where a chunk is in a version.
CREATE TYPE chunk_place AS (
    id          uuid,
    chunk_index integer,
    char_from   integer,
    char_upto   integer,
    page        integer
);

INSERT INTO data_catalogue (place, table_name, user_rows, note) VALUES
(1400, 'knowledge_vectors',
 'corpus_id IN (SELECT id FROM corpus WHERE app_name = $1 AND user_id = $2 AND created_at <= $6)', 'vectors of chunks'),
(1410, 'knowledge_base',
 'corpus_id IN (SELECT id FROM corpus WHERE app_name = $1 AND user_id = $2 AND created_at <= $6)',
 'chunks of documents: those of a user''s own corpora are erased with the user, others are the app''s'),
(1420, 'knowledge_versions',
 'corpus_id IN (SELECT id FROM corpus WHERE app_name = $1 AND user_id = $2 AND created_at <= $6)',
 'texts of documents, as knowledge_base; a superseded one is kept for 30 days, by setting'),
(1430, 'knowledge_documents',
 'corpus_id IN (SELECT id FROM corpus WHERE app_name = $1 AND user_id = $2 AND created_at <= $6)',
 'documents, as knowledge_base'),
(1440, 'corpus_access',
 'corpus_id IN (SELECT id FROM corpus WHERE app_name = $1 AND user_id = $2 AND created_at <= $6) OR app_name = $1 AND grantee = ''user:'' || $2',
 'who may read a corpus: a user''s name goes with the user'),
(1450, 'corpus', 'app_name = $1 AND user_id = $2 AND created_at <= $6', 'names of corpora');
