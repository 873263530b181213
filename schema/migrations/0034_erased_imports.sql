-- What was erased here is not imported again.

-- What was erased of sessions that were copied from elsewhere, where it may still be: no name and no content, only hashes
-- of a session's id, or of a key of a shared state with its value. user_id NULL: of the app's state.
CREATE TABLE erased_imports (
    app_name    varchar(255) NOT NULL,
    user_id     varchar(255),
    hash        text NOT NULL,
    erased_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE NULLS NOT DISTINCT (app_name, user_id, hash)
);
INSERT INTO data_catalogue (place, table_name, user_rows, note) VALUES
(126, 'erased_imports', 'app_name = $1 AND user_id = $2',
 'hashes of what was erased and may still stand where it was copied from');

CREATE FUNCTION import_hash(p_name text, p_value jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(sha256(convert_to(jsonb_build_array(p_name, p_value)::text, 'UTF8')), 'hex');

-- Notes what is about to be erased of a copied session: the session, or what some of its events set in shared states.
-- The caller holds the session's lock.
CREATE FUNCTION note_erased_import(e erasures) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads WHERE id = e.thread_id AND metadata ? 'import';
    IF NOT FOUND THEN
        RETURN;
    ELSIF e.scope = 'session' THEN
        INSERT INTO erased_imports (app_name, user_id, hash) VALUES (t.app_name, t.user_id, import_hash(t.session_id))
        ON CONFLICT (app_name, user_id, hash) DO UPDATE SET erased_at = EXCLUDED.erased_at;
        RETURN;
    END IF;
    INSERT INTO erased_imports (app_name, user_id, hash)
    SELECT t.app_name, CASE WHEN d.key LIKE 'user:%' THEN t.user_id END,
           import_hash(regexp_replace(d.key, '^(user|app):', ''), state_value(d.value))
    FROM events AS v CROSS JOIN LATERAL json_each(event_delta(v.actions)) AS d
    WHERE v.thread_id = e.thread_id AND v.sequence_num = ANY (e.sequence_nums) AND d.key ~ '^(user|app):'
    ON CONFLICT DO NOTHING;
END
$$;

-- Whether a session that is kept elsewhere was erased here, or its user, after it began there.
CREATE FUNCTION is_erased_import(p_app_name text, p_user_id text, p_session_id text, p_created_at timestamptz)
RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (SELECT FROM erased_imports AS x WHERE x.app_name = p_app_name AND x.user_id = p_user_id
                   AND x.hash = import_hash(p_session_id) AND x.erased_at >= p_created_at)
        OR EXISTS (SELECT FROM erasures AS e WHERE e.scope = 'user' AND e.app_name = p_app_name
                   AND e.user_id = p_user_id AND e.requested_at >= p_created_at)
$$;

-- A shared state that is kept elsewhere, without what was erased here: a value that an erased event set; all of it, of a
-- user who was forgotten, since no key says when it was set.
CREATE FUNCTION without_erased(p_app_name text, p_user_id text, p_state jsonb) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(jsonb_object_agg(g.key, g.value), '{}') FROM jsonb_each(p_state) AS g
    WHERE NOT EXISTS (SELECT FROM erased_imports AS x WHERE x.app_name = p_app_name
                      AND x.user_id IS NOT DISTINCT FROM p_user_id AND x.hash = import_hash(g.key, g.value))
      AND NOT EXISTS (SELECT FROM erasures AS e WHERE e.scope = 'user' AND e.app_name = p_app_name
                      AND e.user_id = p_user_id)
$$;

-- Memories and facts of a user that stand though a tombstone says that they were forgotten, as where an import brought
-- it; not what was remembered again, or said anew, since. The next p_limit after p_after, by id.
CREATE FUNCTION standing_though_forgotten(p_app_name text, p_user_id text, p_after uuid, p_limit integer)
RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT x.id FROM memory_tombstones AS x
    WHERE x.app_name = p_app_name AND x.user_id = p_user_id AND x.id > p_after AND (
        EXISTS (SELECT FROM memories AS m WHERE m.id = x.id AND m.app_name = p_app_name AND m.user_id = p_user_id
                AND m.created_at <= x.forgotten_at)
        OR EXISTS (SELECT FROM memories_archive AS m WHERE m.id = x.id AND m.app_name = p_app_name
                   AND m.user_id = p_user_id AND m.created_at <= x.forgotten_at)
        OR EXISTS (SELECT FROM facts AS f WHERE f.id = x.id AND f.app_name = p_app_name AND f.user_id = p_user_id
                   AND NOT EXISTS (SELECT FROM fact_versions AS v
                                   WHERE v.fact_id = f.id AND v.recorded_at > x.forgotten_at)))
    ORDER BY x.id LIMIT p_limit
$$;

-- Forgets what a tombstone says was forgotten, as of then: what was said since is heard. False: it is gone by now.
CREATE FUNCTION forget_as_of_tombstone(p_app_name text, p_user_id text, p_id uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_at timestamptz := (SELECT forgotten_at FROM memory_tombstones WHERE id = p_id);
BEGIN
    PERFORM erase_memory(p_app_name, p_user_id, p_id);
    UPDATE memory_tombstones SET forgotten_at = v_at WHERE id = p_id AND v_at IS NOT NULL;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'HP046' THEN
    RETURN false;
END
$$;
REVOKE EXECUTE ON FUNCTION forget_as_of_tombstone(text, text, uuid) FROM PUBLIC;
