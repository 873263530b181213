-- An app that does not consolidate gets no job unless somebody asks for one.

-- Ends a session for now: what is not yet consolidated is enqueued at once, whatever the policy counts; nothing where the
-- app does not consolidate: once it does, the idle timers find the session. Appending to it later opens it again. Returns
-- the jobs. Errors: HP001.
CREATE OR REPLACE FUNCTION finalize_session(p_app_name text, p_user_id text, p_session_id text)
RETURNS TABLE (job_id uuid, job_type text, created boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    t        threads;
    v_policy app_policies;
    v_type   text;
BEGIN
    t := lock_session(p_app_name, p_user_id, p_session_id);
    UPDATE threads SET finalized_at = coalesce(finalized_at, engine_now()) WHERE id = t.id;
    v_policy := app_policy(t.app_name);
    IF NOT v_policy.consolidate THEN
        RETURN;
    END IF;
    FOREACH v_type IN ARRAY ARRAY['fast_replay', 'deep_reflection'] LOOP
        IF t.last_seq > (CASE v_type WHEN 'fast_replay' THEN t.fast_upto_seq ELSE t.deep_upto_seq END) THEN
            RETURN QUERY SELECT q.job_id, v_type, q.created FROM enqueue_consolidation(t.id, v_type) AS q;
        END IF;
    END LOOP;
END
$$;
