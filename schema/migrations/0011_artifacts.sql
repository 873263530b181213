-- Artifacts: files that agents save under a name, in versions, for one session or for all sessions of a user.

-- The content of files, each stored once under its SHA-256.
CREATE TABLE artifact_blobs (
    sha256     bytea PRIMARY KEY CHECK (octet_length(sha256) = 32),
    data       bytea NOT NULL,
    saved_at   timestamptz NOT NULL DEFAULT engine_now()   -- by the last caller that saved it
);

-- Images and archives are compressed already.
ALTER TABLE artifact_blobs ALTER COLUMN data SET STORAGE EXTERNAL;

-- The names of files, and how many versions each has.
CREATE TABLE artifacts (
    id           uuid PRIMARY KEY DEFAULT new_id(),
    app_name     varchar(255) NOT NULL CHECK (app_name <> ''),
    user_id      varchar(255) NOT NULL CHECK (user_id <> ''),
    session_id   text CHECK (char_length(session_id) BETWEEN 1 AND 512),   -- NULL: in every session of the user
    filename     text NOT NULL CHECK (char_length(filename) BETWEEN 1 AND 1024),
    last_version integer NOT NULL DEFAULT 0 CHECK (last_version >= 0),
    created_at   timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE NULLS NOT DISTINCT (app_name, user_id, session_id, filename)
);

-- The versions of files, and what is stored beside their bytes.
CREATE TABLE artifact_versions (
    artifact_id     uuid NOT NULL REFERENCES artifacts ON DELETE CASCADE,
    version         integer NOT NULL CHECK (version >= 0),
    part            json NOT NULL,            -- what the framework stores beside the bytes; never parsed here
    sha256          bytea REFERENCES artifact_blobs,   -- NULL: the part refers to content elsewhere
    mime_type       text,
    custom_metadata json NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (artifact_id, version)
);
CREATE INDEX artifact_versions_blob_idx ON artifact_versions (sha256) WHERE sha256 IS NOT NULL;
