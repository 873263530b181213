-- The audit log: written by triggers in the transaction of the act itself, so that no way to do it can forget to.

-- Notes an act of the transaction's actor: `hippocampus.actor`, or else the role that is connected. Returns its id.
-- A privileged function: who acts needs no right to write to the log.
CREATE OR REPLACE FUNCTION note_act(
    p_action text, p_app_name text DEFAULT NULL, p_user_id text DEFAULT NULL, p_target jsonb DEFAULT '{}',
    p_outcome text DEFAULT 'done') RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
    INSERT INTO audit_log (actor, action, app_name, user_id, target, outcome)
    VALUES (coalesce(nullif(current_setting('hippocampus.actor', true), ''), 'sql:' || session_user), p_action,
            p_app_name, p_user_id, jsonb_strip_nulls(p_target), p_outcome)
    RETURNING id
$$;

-- How long an entry is kept.
CREATE OR REPLACE FUNCTION audit_keep() RETURNS interval
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT make_interval(days => greatest(1, coalesce((
        SELECT CASE WHEN s.value #>> '{}' ~ '^\d{1,6}$' THEN (s.value #>> '{}')::integer END
        FROM engine_settings AS s WHERE s.name = 'audit_days'), 400)))
$$;

-- Entries do not change, and go only once their time is over. Only the table's owner can remove this trigger.
CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.at < clock_timestamp() - audit_keep() THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only: entries go after % days', extract(day FROM audit_keep())
        USING ERRCODE = 'HP097';
END
$$;

-- Deletes up to p_limit entries whose time is over. A privileged function: no other role needs the right to delete.
CREATE OR REPLACE FUNCTION prune_audit_log(p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
    WITH old AS (
        SELECT l.id FROM audit_log AS l WHERE l.at < clock_timestamp() - audit_keep() ORDER BY l.at LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ), gone AS (DELETE FROM audit_log AS l USING old WHERE l.id = old.id RETURNING 1)
    SELECT count(*)::integer FROM gone
$$;

-- Notes what was done to a row. Of a policy the names and values of the fields that changed, of anything else ids.
CREATE OR REPLACE FUNCTION audit_act() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    r        jsonb := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END);
    v_old    jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) ELSE '{}' END;
    v_action text;
    v_target jsonb := jsonb_build_object('id', r ->> 'id');
BEGIN
    CASE TG_TABLE_NAME
    WHEN 'api_keys' THEN
        v_action := CASE TG_OP WHEN 'INSERT' THEN 'key_created' WHEN 'DELETE' THEN 'key_deleted' ELSE 'key_revoked' END;
        v_target := v_target || jsonb_build_object('roles', r -> 'roles')
                             || jsonb_strip_nulls(jsonb_build_object('user_roles', r -> 'user_roles'));
    WHEN 'erasures' THEN
        v_action := 'erasure_requested';
        v_target := v_target || jsonb_build_object(
            'scope', r -> 'scope', 'thread_id', r -> 'thread_id', 'target_id', r -> 'target_id',
            'events', coalesce(jsonb_array_length(nullif(r -> 'sequence_nums', 'null')), 0));
    WHEN 'replays' THEN
        v_action := CASE TG_OP WHEN 'INSERT' THEN 'replay_begun' ELSE 'replay_applied' END;
        v_target := v_target || jsonb_build_object('thread_id', r -> 'thread_id');
    WHEN 'app_policies' THEN
        v_action := CASE TG_OP WHEN 'DELETE' THEN 'policy_reset' ELSE 'policy_changed' END;
        v_target := coalesce((
            SELECT jsonb_object_agg(f.key, f.value) FROM jsonb_each(r) AS f
            WHERE f.key NOT IN ('app_name', 'updated_at') AND TG_OP = 'UPDATE' AND f.value IS DISTINCT FROM v_old -> f.key),
            '{}');
        IF TG_OP = 'UPDATE' AND v_target = '{}' THEN
            RETURN NULL;
        END IF;
    WHEN 'webhook_endpoints' THEN
        v_action := CASE TG_OP WHEN 'INSERT' THEN 'webhook_added' WHEN 'DELETE' THEN 'webhook_removed'
                         ELSE 'webhook_changed' END;
        v_target := v_target || jsonb_build_object('disabled_reason', r -> 'disabled_reason');
    WHEN 'webhook_secrets' THEN
        v_action := 'webhook_secret_made';
        v_target := jsonb_build_object('id', r ->> 'endpoint_id');
        r := r || jsonb_build_object('app_name', (
            SELECT e.app_name FROM webhook_endpoints AS e WHERE e.id = (r ->> 'endpoint_id')::uuid));
    END CASE;
    PERFORM note_act(v_action, r ->> 'app_name', r ->> 'user_id', v_target);
    RETURN NULL;
END
$$;
