-- Calls of tools and their results as clients have them: as pulse/agui/messages.py shows them. A text is shown as it is,
-- anything else as JSON. NULL if the content cannot be read: `json` holds escapes of characters that `text` does not have.

-- The id of a call: its own, or that of its message or its event if it has none.
CREATE OR REPLACE FUNCTION shown_call_id(p_content json, p_event_id text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN coalesce(nullif(p_content ->> 'tool_call_id', ''), nullif(p_content ->> 'tool_execution_id', ''),
                    nullif(p_content ->> 'message_id', ''), p_event_id);
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;

-- The arguments of a call: as they were streamed if they were.
CREATE OR REPLACE FUNCTION shown_arguments(p_content json) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE json_typeof(p_content -> 'tool_args') WHEN 'string' THEN p_content ->> 'tool_args'
                ELSE coalesce(p_content ->> 'tool_input', '{}') END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;

-- The result of a tool.
CREATE OR REPLACE FUNCTION shown_result(p_content json) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN coalesce(p_content ->> 'observation', p_content ->> 'tool_output', '');
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;
