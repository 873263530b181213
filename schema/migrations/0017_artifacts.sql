-- Artifacts: files that agents save under a name, in versions, for one session or for a user in all sessions.
--
-- What a version holds is stored once for all who saved the same bytes, under its SHA-256. Saving locks the artifact's
-- row, then one blob's; deleting waits for no blob. Nothing else is locked with them.

-- The bytes of files, each content once.
CREATE TABLE artifact_blobs (
    sha256     bytea PRIMARY KEY CHECK (octet_length(sha256) = 32),
    data       bytea NOT NULL,
    saved_at   timestamptz NOT NULL DEFAULT engine_now()   -- by whoever saved it last
);
-- Pictures and archives are compressed already; uncompressed, they are read and written as they are.
ALTER TABLE artifact_blobs ALTER COLUMN data SET STORAGE EXTERNAL;

-- The names of files, and how many versions each has.
CREATE TABLE artifacts (
    id           uuid PRIMARY KEY DEFAULT new_id(),
    app_name     varchar(255) NOT NULL CHECK (app_name <> ''),
    user_id      varchar(255) NOT NULL CHECK (user_id <> ''),
    session_id   text CHECK (char_length(session_id) BETWEEN 1 AND 512),   -- NULL: the user's, in every session
    filename     text NOT NULL CHECK (char_length(filename) BETWEEN 1 AND 1024),
    last_version integer NOT NULL DEFAULT 0 CHECK (last_version >= 0),
    created_at   timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE NULLS NOT DISTINCT (app_name, user_id, session_id, filename)
);

-- The versions of files: what stands beside their bytes.
CREATE TABLE artifact_versions (
    artifact_id     uuid NOT NULL REFERENCES artifacts ON DELETE CASCADE,
    version         integer NOT NULL CHECK (version >= 0),
    part            json NOT NULL,            -- what the framework keeps beside the bytes; never opened here
    sha256          bytea REFERENCES artifact_blobs,   -- NULL: the part only refers to something elsewhere
    mime_type       text,
    custom_metadata json NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (artifact_id, version)
);
CREATE INDEX artifact_versions_blob_idx ON artifact_versions (sha256) WHERE sha256 IS NOT NULL;

-- Saves a version and returns its number: 0 for the first, then one more than the last. Saves of one artifact wait for
-- each other, so each gets a number of its own. p_data NULL: there are no bytes. Errors: HP038 over the policy's limit.
CREATE FUNCTION save_artifact(
    p_app_name text, p_user_id text, p_session_id text, p_filename text, p_part json, p_data bytea DEFAULT NULL,
    p_mime_type text DEFAULT NULL, p_custom_metadata json DEFAULT '{}')
RETURNS TABLE (version integer, created_at timestamptz)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_limit    integer := (app_policy(p_app_name)).max_artifact_bytes;
    v_artifact artifacts;
    v_sha256   bytea := sha256(p_data);
BEGIN
    IF octet_length(p_data) > v_limit THEN
        RAISE EXCEPTION 'the file has % bytes, over the limit of %: raise max_artifact_bytes of the app''s policy, or keep the file elsewhere and save a reference',
            octet_length(p_data), v_limit USING ERRCODE = 'HP038';
    END IF;
    INSERT INTO artifacts AS a (app_name, user_id, session_id, filename)
    VALUES (p_app_name, p_user_id, p_session_id, p_filename)
    ON CONFLICT (app_name, user_id, session_id, filename) DO UPDATE SET last_version = a.last_version + 1
    RETURNING * INTO v_artifact;
    IF p_data IS NOT NULL THEN
        -- Not DO NOTHING: whoever removes blobs must wait for us, or we for them.
        INSERT INTO artifact_blobs AS b (sha256, data) VALUES (v_sha256, p_data)
        ON CONFLICT (sha256) DO UPDATE SET saved_at = EXCLUDED.saved_at;
    END IF;
    RETURN QUERY
        INSERT INTO artifact_versions AS v (artifact_id, version, part, sha256, mime_type, custom_metadata)
        VALUES (v_artifact.id, v_artifact.last_version, p_part, v_sha256, p_mime_type, p_custom_metadata)
        RETURNING v.version, v.created_at;
END
$$;

-- The versions of an artifact, ascending: all, the one named, or the last (-1). Without their bytes unless asked for.
CREATE FUNCTION read_artifact(
    p_app_name text, p_user_id text, p_session_id text, p_filename text, p_version integer DEFAULT NULL,
    p_data boolean DEFAULT false)
RETURNS TABLE (version integer, part json, data bytea, mime_type text, custom_metadata json, created_at timestamptz)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT v.version, v.part, CASE WHEN p_data THEN b.data END, v.mime_type, v.custom_metadata, v.created_at
    FROM artifacts AS a
    JOIN artifact_versions AS v ON v.artifact_id = a.id
    LEFT JOIN artifact_blobs AS b ON p_data AND b.sha256 = v.sha256
    WHERE a.app_name = p_app_name AND a.user_id = p_user_id AND a.session_id IS NOT DISTINCT FROM p_session_id
      AND a.filename = p_filename
      AND (p_version IS NULL OR v.version = CASE p_version WHEN -1 THEN a.last_version ELSE p_version END)
    ORDER BY v.version
$$;

-- The bytes go with the last version that holds them. A blob that somebody is saving right now is left to the upkeep.
CREATE FUNCTION release_artifact_blob() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM FROM artifact_blobs WHERE sha256 = OLD.sha256 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        -- A statement of its own, so that it sees what was saved before the lock was had.
        DELETE FROM artifact_blobs AS b
        WHERE b.sha256 = OLD.sha256
          AND NOT EXISTS (SELECT FROM artifact_versions AS v WHERE v.sha256 = b.sha256);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER release_artifact_blob AFTER DELETE ON artifact_versions
    FOR EACH ROW WHEN (OLD.sha256 IS NOT NULL) EXECUTE FUNCTION release_artifact_blob();

-- Deletes at most p_limit blobs that no version refers to, and that nobody saved for p_keep. Returns how many.
CREATE FUNCTION prune_artifact_blobs(p_keep interval, p_limit integer DEFAULT 100) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_locked bytea[];
    v_count  integer;
BEGIN
    SELECT array_agg(l.sha256) INTO v_locked FROM (
        SELECT b.sha256 FROM artifact_blobs AS b
        WHERE b.saved_at <= engine_now() - p_keep
          AND NOT EXISTS (SELECT FROM artifact_versions AS v WHERE v.sha256 = b.sha256)
        LIMIT p_limit FOR UPDATE SKIP LOCKED) AS l;
    DELETE FROM artifact_blobs AS b
    WHERE b.sha256 = ANY (v_locked) AND NOT EXISTS (SELECT FROM artifact_versions AS v WHERE v.sha256 = b.sha256);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
