-- Executions of code in the sandbox: a row before it, and its end after it.

-- Deletes executions whose time is over; ends those whose process was lost. Returns how many rows it processed.
CREATE OR REPLACE FUNCTION prune_sandbox(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    -- No execution lasts longer than an hour.
    UPDATE sandbox_executions AS e SET status = 'crashed', ended_at = clock_timestamp()
    WHERE e.status = 'running' AND e.created_at < engine_now() - interval '2 hours';
    DELETE FROM sandbox_executions AS e WHERE e.id IN (
        SELECT o.id FROM sandbox_executions AS o WHERE o.created_at <= engine_now() - p_keep AND o.status <> 'running'
        ORDER BY o.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
