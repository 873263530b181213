-- Artifacts: saving, reading and deleting files.

-- Saves a version and returns its number, from 0 on. Saves of one artifact wait for each other, so each gets its own
-- number. p_data NULL: the version has no bytes. Errors: HP038 over the policy's limit.
CREATE OR REPLACE FUNCTION save_artifact(
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
        -- Not DO NOTHING: a concurrent removal of the blob must wait for this transaction, or this one for it.
        INSERT INTO artifact_blobs AS b (sha256, data) VALUES (v_sha256, p_data)
        ON CONFLICT (sha256) DO UPDATE SET saved_at = EXCLUDED.saved_at;
    END IF;
    RETURN QUERY
        INSERT INTO artifact_versions AS v (artifact_id, version, part, sha256, mime_type, custom_metadata)
        VALUES (v_artifact.id, v_artifact.last_version, p_part, v_sha256, p_mime_type, p_custom_metadata)
        RETURNING v.version, v.created_at;
END
$$;

-- The versions of an artifact, ascending: all, the given one, or the last (-1). Without their bytes unless requested.
CREATE OR REPLACE FUNCTION read_artifact(
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

-- Deletes the bytes with the last version that refers to them. A blob that is being saved is left to the upkeep.
CREATE OR REPLACE FUNCTION release_artifact_blob() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM FROM artifact_blobs WHERE sha256 = OLD.sha256 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        -- A separate statement, so that it sees what was saved before the lock was acquired.
        DELETE FROM artifact_blobs AS b
        WHERE b.sha256 = OLD.sha256
          AND NOT EXISTS (SELECT FROM artifact_versions AS v WHERE v.sha256 = b.sha256);
    END IF;
    RETURN NULL;
END
$$;

-- Deletes at most p_limit blobs that no version refers to and that were not saved within p_keep. Returns how many.
CREATE OR REPLACE FUNCTION prune_artifact_blobs(p_keep interval, p_limit integer DEFAULT 100) RETURNS integer
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
