-- Images and files within messages: what identifies them, in place of megabytes.

-- What identifies a part's bytes or its address: its kind, its length, and an MD5. Of the kind `data` are bytes in
-- base64, also in a `data:` URL: neither the alphabet nor blanks nor the padding count. An address counts up to its query,
-- which may hold a signature that was renewed. `?`: it cannot be compared, such as a value in which a secret was masked.
-- pulse/message_parts.py:identity does the same for a client's part. p_kind: data, url or file.
CREATE OR REPLACE FUNCTION media_identity(p_kind text, p_value text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
DECLARE
    v_kind text := p_kind;
    v_body text := p_value;
    v_pair text[];
BEGIN
    IF lower(left(p_value, 5)) = 'data:' THEN
        v_kind := CASE WHEN lower(split_part(p_value, ',', 1)) LIKE '%;base64' THEN 'data' ELSE '?' END;
        v_body := substr(p_value, strpos(p_value, ',') + 1);
        IF strpos(v_body, '%') > 0 THEN
            v_kind := '?';
        END IF;
    END IF;
    IF strpos(p_value, '[redacted:') > 0 THEN
        v_kind := '?';
    ELSIF v_kind = 'data' THEN
        -- Where there is nothing to replace, which is usual, this costs a tenth of translate().
        FOREACH v_pair SLICE 1 IN ARRAY ARRAY[['-', '+'], ['_', '/'], [' ', ''], [E'\t', ''], [E'\n', ''], [E'\r', '']] LOOP
            v_body := replace(v_body, v_pair[1], v_pair[2]);
        END LOOP;
        v_body := rtrim(v_body, '=');
    ELSIF lower(left(p_value, 8)) LIKE ANY ('{http://%,https://%}') THEN
        v_body := split_part(split_part(p_value, '?', 1), '#', 1);
    END IF;
    RETURN v_kind || ':' || char_length(p_value) || ':' || CASE WHEN v_kind <> '?' THEN md5(v_body) ELSE '' END;
END
$$;

-- `parts`: the parts of a message in the form that they are stored in, with identities in place of bytes and addresses;
-- `media`: the identities of those that are not text, a line each. A part whose form is not known has the kind `?`. NULL
-- if the content cannot be read: `json` holds escapes of characters that `text` does not have.
-- p_key: the field of the content that may be a list of parts, in the form of AG-UI or of ADK.
CREATE OR REPLACE FUNCTION media_outline(p_content json, p_key text) RETURNS json
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    v_list     json := '[]';
    v_part     json;
    p          record;
    s          record;
    v_carrier  text;    -- the field of the part that has the source, and the field of the source that has the value
    v_field    text;
    v_kind     text;
    v_value    json;
    v_identity text;
    v_media    text[] := '{}';
    v_parts    json[] := '{}';
BEGIN
    IF json_typeof(p_content -> p_key) = 'array' THEN
        v_list := p_content -> p_key;
    END IF;
    FOR v_part IN SELECT e FROM json_array_elements(v_list) AS e WHERE json_typeof(e) = 'object' LOOP
        SELECT * INTO p
        FROM json_to_record(v_part) AS f ("type" json, id json, text json, thought json, source json, "inlineData" json,
                                          "fileData" json, data text, url text);
        IF p."type" IS NOT NULL THEN
            v_carrier := 'source';
            v_field := 'value';
        ELSIF p."inlineData" IS NOT NULL THEN
            v_carrier := 'inlineData';
            v_field := 'data';
            p.source := p."inlineData";
        ELSE
            v_carrier := 'fileData';
            v_field := 'fileUri';
            p.source := p."fileData";
        END IF;
        SELECT * INTO s
        FROM json_to_record(CASE json_typeof(p.source) WHEN 'object' THEN p.source ELSE '{}' END)
            AS f ("type" json, value json, data json, "fileUri" json, "mimeType" json, provider json);
        v_value := CASE v_field WHEN 'value' THEN s.value WHEN 'data' THEN s.data ELSE s."fileUri" END;
        v_kind := CASE v_field WHEN 'value' THEN s."type" #>> '{}' WHEN 'data' THEN 'data' ELSE 'url' END;
        v_identity := CASE
            WHEN p."type" #>> '{}' = 'text' OR p."type" IS NULL AND json_typeof(p.text) = 'string' THEN NULL
            WHEN json_typeof(v_value) = 'string' AND v_kind IN ('data', 'url', 'file')
            THEN media_identity(v_kind, v_value #>> '{}')
            -- AG-UI's form before 1.0.
            WHEN p."type" #>> '{}' = 'binary' AND p.data IS NOT NULL THEN media_identity('data', p.data)
            WHEN p."type" #>> '{}' = 'binary' AND p.url IS NOT NULL THEN media_identity('url', p.url)
            ELSE '?:0:' END;
        v_media := CASE WHEN v_identity IS NULL THEN v_media ELSE v_media || v_identity END;
        v_parts := v_parts || json_strip_nulls(json_build_object(
            'type', p."type", 'id', p.id, 'text', p.text, 'thought', p.thought, 'identity', v_identity,
            v_carrier, CASE WHEN p.source IS NOT NULL THEN json_build_object(
                'type', s."type", 'mimeType', s."mimeType", 'provider', s.provider,
                v_field, CASE json_typeof(v_value) WHEN 'string' THEN v_identity END) END));
    END LOOP;
    RETURN json_build_object('media', array_to_string(v_media, E'\n'), 'parts', v_parts);
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;
