-- Policies of apps.

-- The policy of an app: its own, or that of '*'.
CREATE OR REPLACE FUNCTION app_policy(p_app_name text) RETURNS app_policies
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    -- The row as one value: its columns may grow while this waits for the table.
    SELECT p FROM app_policies AS p WHERE p.app_name IN (p_app_name, '*') ORDER BY p.app_name = '*' LIMIT 1
$$;

-- Changes an app's policy ('*': that of every app without its own) and returns it. A new policy of an app starts as a
-- copy of '*'. p_fields: the columns to change, by name. Errors: HP007 unknown field; 23514 out of range.
CREATE OR REPLACE FUNCTION set_app_policy(p_app_name text, p_fields jsonb) RETURNS app_policies
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_policy  app_policies;
    v_unknown text;
BEGIN
    v_policy := app_policy('*');
    IF v_policy.app_name IS NULL THEN
        RAISE EXCEPTION 'app_policies has no row ''*'', the policy of every app without its own: insert it'
            USING ERRCODE = 'HP007';
    ELSIF coalesce(p_app_name, '') = '' THEN
        RAISE EXCEPTION 'a policy needs the name of its app' USING ERRCODE = 'HP007';
    END IF;
    SELECT string_agg(field, ', ' ORDER BY field) INTO v_unknown FROM jsonb_object_keys(p_fields) AS field
    WHERE field IN ('app_name', 'updated_at') OR NOT to_jsonb(v_policy) ? field;
    IF v_unknown IS NOT NULL THEN
        RAISE EXCEPTION 'a policy has no field % to set', v_unknown USING ERRCODE = 'HP007';
    END IF;
    v_policy.app_name := p_app_name;
    INSERT INTO app_policies SELECT v_policy.* ON CONFLICT (app_name) DO NOTHING;
    SELECT * INTO v_policy FROM app_policies WHERE app_name = p_app_name FOR UPDATE;
    v_policy := jsonb_populate_record(v_policy, p_fields);
    UPDATE app_policies SET
        consolidate = v_policy.consolidate, fast_events = v_policy.fast_events, fast_tokens = v_policy.fast_tokens,
        fast_idle_seconds = v_policy.fast_idle_seconds, deep_tokens = v_policy.deep_tokens,
        deep_idle_seconds = v_policy.deep_idle_seconds, max_state_bytes = v_policy.max_state_bytes,
        max_event_bytes = v_policy.max_event_bytes, max_artifact_bytes = v_policy.max_artifact_bytes,
        snapshot_events = v_policy.snapshot_events, redaction = v_policy.redaction,
        retention_curve = v_policy.retention_curve,
        decay_rate = v_policy.decay_rate, cleanup_threshold = v_policy.cleanup_threshold,
        min_age_days = v_policy.min_age_days, archive_days = v_policy.archive_days
    WHERE app_name = p_app_name
    RETURNING * INTO v_policy;
    RETURN v_policy;
END
$$;

-- Each memory with its score and what happens to it under two policies.
CREATE OR REPLACE FUNCTION policy_verdicts(
    p_app_name text, p_user_id text, p_one app_policies, p_other app_policies, p_days double precision)
RETURNS TABLE (id uuid, user_id varchar, memory_type varchar, content text, pinned boolean, one boolean,
               one_score double precision, other boolean, other_score double precision)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT m.id, m.user_id, m.memory_type, m.content, m.pinned,
           m.pinned OR a.score >= p_one.cleanup_threshold
           OR m.created_at > n.at - make_interval(secs => 86400 * p_one.min_age_days), a.score,
           m.pinned OR b.score >= p_other.cleanup_threshold
           OR m.created_at > n.at - make_interval(secs => 86400 * p_other.min_age_days), b.score
    FROM (SELECT engine_now() + make_interval(secs => 86400 * p_days) AS at) AS n
    CROSS JOIN memories AS m
    CROSS JOIN LATERAL (SELECT retention_score(m, p_one, n.at)) AS a (score)
    CROSS JOIN LATERAL (SELECT retention_score(m, p_other, n.at)) AS b (score)
    WHERE m.app_name = p_app_name AND (p_user_id IS NULL OR m.user_id = p_user_id)
$$;

-- What a clean-up would do in p_days under two policies, without any access until then: how many of the app's memories
-- each would keep. Nothing is changed.
CREATE OR REPLACE FUNCTION compare_policies(
    p_app_name text, p_user_id text, p_one app_policies, p_other app_policies, p_days double precision DEFAULT 0,
    OUT total bigint, OUT kept_by_both bigint, OUT only_by_one bigint, OUT only_by_other bigint, OUT kept_by_none bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT count(*), count(*) FILTER (WHERE k.one AND k.other), count(*) FILTER (WHERE k.one AND NOT k.other),
           count(*) FILTER (WHERE k.other AND NOT k.one), count(*) FILTER (WHERE NOT k.one AND NOT k.other)
    FROM policy_verdicts(p_app_name, p_user_id, p_one, p_other, p_days) AS k
$$;
