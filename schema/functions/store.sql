-- Items of the key-value store.

-- The label that stands for a user in a namespace: ('users', user_label(U)). `store_items.user_id` undoes it.
CREATE OR REPLACE FUNCTION user_label(p_user_id text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN replace(replace(p_user_id, '%', '%25'), '.', '%2E');

-- Stores and deletes items, all or none. p_items: [{"namespace": [...], "key": "...", "value": {...}, "ttl": seconds}];
-- without a value the item is deleted, without a ttl it is kept. No two have the same namespace and key.
-- The vectors of an item are replaced with it: the n-th of p_vectors belongs to the p_items -> p_places[n].
-- Returns how many items were stored.
CREATE OR REPLACE FUNCTION put_store_items(p_app_name text, p_items json, p_model text DEFAULT NULL,
                                           p_places integer[] DEFAULT '{}', p_paths text[] DEFAULT '{}',
                                           p_vectors vector[] DEFAULT '{}') RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_stored integer;
BEGIN
    -- In one order, so that two callers with the same items do not wait for each other. Each step sees what the holder
    -- of a lock that it waited for has committed.
    PERFORM FROM store_items AS i
    JOIN json_to_recordset(p_items) AS g (namespace text[], key text) ON i.namespace = g.namespace AND i.key = g.key
    WHERE i.app_name = p_app_name
    ORDER BY i.namespace, i.key FOR UPDATE OF i;

    DELETE FROM store_items AS i USING json_to_recordset(p_items) AS g (namespace text[], key text, value json)
    WHERE i.app_name = p_app_name AND i.namespace = g.namespace AND i.key = g.key AND g.value IS NULL;

    INSERT INTO store_items (app_name, namespace, key, value, ttl, expires_at)
    SELECT p_app_name, g.namespace, g.key, g.value, t.ttl, engine_now() + t.ttl
    FROM json_to_recordset(p_items) AS g (namespace text[], key text, value json, ttl double precision)
    CROSS JOIN LATERAL (SELECT make_interval(secs => g.ttl) AS ttl) AS t
    WHERE g.value IS NOT NULL
    ORDER BY g.namespace COLLATE "C", g.key COLLATE "C"
    ON CONFLICT (app_name, namespace, key) DO UPDATE SET
        value = EXCLUDED.value, ttl = EXCLUDED.ttl, expires_at = EXCLUDED.expires_at,
        updated_at = EXCLUDED.updated_at;
    GET DIAGNOSTICS v_stored = ROW_COUNT;

    DELETE FROM item_vectors AS v
    USING store_items AS i, json_to_recordset(p_items) AS g (namespace text[], key text)
    WHERE v.item_id = i.id AND i.app_name = p_app_name AND i.namespace = g.namespace AND i.key = g.key;

    INSERT INTO item_vectors (item_id, model, path, embedding)
    SELECT i.id, p_model, v.path, v.embedding
    FROM unnest(p_places, p_paths, p_vectors) AS v (place, path, embedding)
    CROSS JOIN LATERAL json_to_record(p_items -> v.place) AS g (namespace text[], key text)
    JOIN store_items AS i ON i.app_name = p_app_name AND i.namespace = g.namespace AND i.key = g.key;
    RETURN v_stored;
END
$$;

-- Deletes at most p_limit items whose time to live is over; those that are locked are left. Returns how many.
CREATE OR REPLACE FUNCTION expire_store_items(p_limit integer) RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    WITH expired AS (
        DELETE FROM store_items WHERE id = ANY (ARRAY(
            SELECT id FROM store_items WHERE expires_at <= engine_now()
            ORDER BY expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED))
        RETURNING 1
    )
    SELECT count(*)::integer FROM expired
$$;
