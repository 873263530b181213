-- The state of a session, a user or an app as it would be without some events.

-- What an event set in the state, by full key; NULL where nothing. Escapes that JSON may hold and PostgreSQL cannot
-- read stand as U+FFFD.
CREATE FUNCTION event_delta(p_actions json) RETURNS json
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT
AS $$
DECLARE
    v_delta json;
BEGIN
    BEGIN
        v_delta := p_actions -> 'state_delta';
        PERFORM FROM json_each(v_delta);
    EXCEPTION WHEN untranslatable_character OR invalid_text_representation THEN
        v_delta := regexp_replace(p_actions::text, '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})',
                                  '\1\\ufffd', 'g')::json -> 'state_delta';
    END;
    RETURN CASE json_typeof(v_delta) WHEN 'object' THEN v_delta END;
END
$$;

-- A value of a delta as the state stores it.
CREATE FUNCTION state_value(p_value json) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN json_typeof(p_value) = 'number' AND p_value::text ~ '(e\+|^-0\.0$)'
            THEN jsonb_build_object('$hippocampus', jsonb_build_array('float', p_value::text))
            ELSE p_value::jsonb END;

-- A state as it would be without some events of a thread. Each key that they set gets what the latest other event set
-- it to; none did: what the session was created with; else the key goes.
-- p_scope: 'session' (keys without a prefix), 'user', 'app' (keys stored without theirs), or 'snapshot' (every key as
-- it is written). p_upto_seq: of a snapshot. A user's keys are looked for in all of the user's threads.
CREATE FUNCTION rebase_state(
    p_state jsonb, p_scope text, p_thread_id uuid, p_seqs bigint[], p_upto_seq bigint DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    k       record;
    v_last  record;
    v_name  text;
    v_wide  boolean := p_scope = 'user';
BEGIN
    FOR k IN
        SELECT d.key AS full_key, max(e.sequence_num) AS seq, max(e.created_at) AS at
        FROM events AS e CROSS JOIN LATERAL json_each(event_delta(e.actions)) AS d
        WHERE e.thread_id = p_thread_id AND e.sequence_num = ANY (p_seqs)
          AND (p_upto_seq IS NULL OR e.sequence_num <= p_upto_seq)
          AND CASE p_scope WHEN 'session' THEN d.key !~ '^(user|app|temp):' WHEN 'snapshot' THEN true
                           ELSE d.key LIKE p_scope || ':%' END
        GROUP BY d.key
    LOOP
        v_name := CASE WHEN p_scope IN ('user', 'app') THEN substr(k.full_key, length(p_scope) + 2) ELSE k.full_key END;
        CONTINUE WHEN NOT p_state ? v_name;
        SELECT e.thread_id, e.sequence_num, e.created_at, event_delta(e.actions) -> k.full_key AS value INTO v_last
        FROM events AS e
        WHERE (e.thread_id = p_thread_id
               OR (v_wide AND e.thread_id IN (
                   SELECT o.id FROM threads AS o JOIN threads AS t ON t.id = p_thread_id
                   WHERE o.app_name = t.app_name AND o.user_id = t.user_id)))
          AND NOT (e.thread_id = p_thread_id AND e.sequence_num = ANY (p_seqs)) AND e.erased_at IS NULL
          AND (p_upto_seq IS NULL OR e.sequence_num <= p_upto_seq)
          -- Before a delta is taken apart.
          AND strpos(e.actions::text, '"state_delta"') > 0 AND event_delta(e.actions) -> k.full_key IS NOT NULL
        ORDER BY e.created_at DESC, e.sequence_num DESC LIMIT 1;
        IF NOT FOUND THEN
            p_state := p_state - v_name;
            IF p_scope IN ('session', 'snapshot') THEN
                p_state := p_state || coalesce((
                    SELECT jsonb_build_object(v_name, i.session_state -> v_name) FROM initial_states AS i
                    WHERE i.thread_id = p_thread_id AND i.session_state ? v_name), '{}');
            END IF;
        ELSIF (v_last.created_at, v_last.sequence_num) < (k.at, k.seq) THEN
            p_state := jsonb_set(p_state, ARRAY[v_name], state_value(v_last.value));
        END IF;
    END LOOP;
    RETURN p_state;
END
$$;
