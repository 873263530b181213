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

-- Run searches below namespaces: [{"place", "lowest", "beyond", "conditions", "limit", "offset"}], with a query's vector
-- or null for each place. Newest first, or the best of an item's vectors first.
CREATE OR REPLACE FUNCTION search_items(p_app text, p_searches jsonb, p_omit_expired boolean, p_vectors vector[],
                                        p_model text)
RETURNS TABLE (place integer, id uuid, namespace text[], key text, value json, created_at timestamptz,
               updated_at timestamptz, expires_at timestamptz, score double precision)
LANGUAGE sql STABLE ROWS 10 SET search_path FROM CURRENT
AS $$
    SELECT o.place, f.*
    FROM jsonb_to_recordset(p_searches) AS o (place integer, lowest text[], beyond text[], conditions jsonb, "limit" integer,
                                      "offset" integer)
    LEFT JOIN unnest(p_vectors) WITH ORDINALITY AS q (embedding, nth) ON q.nth = o.place + 1
    CROSS JOIN LATERAL (
        SELECT i.id, i.namespace, i.key, i.value, i.created_at, i.updated_at, i.expires_at, s.score
        FROM store_items AS i
        -- The best of an item's vectors.
        CROSS JOIN LATERAL (
            SELECT 1 - min(v.embedding <=> q.embedding) AS score FROM item_vectors AS v
            WHERE q.embedding IS NOT NULL AND v.item_id = i.id AND v.model = p_model) AS s
        WHERE i.app_name = p_app AND i.namespace >= o.lowest AND i.namespace < o.beyond
          AND (q.embedding IS NULL OR s.score IS NOT NULL)
          AND (NOT p_omit_expired OR i.expires_at IS NULL OR i.expires_at > engine_now())
          AND (o.conditions IS NULL OR NOT EXISTS (
              SELECT FROM jsonb_to_recordset(o.conditions) AS c (path text[], operator text, operand jsonb, number numeric,
                                                                 "text" text)
              CROSS JOIN LATERAL (SELECT coalesce(i.value::jsonb #> c.path, 'null') AS value) AS x
              CROSS JOIN LATERAL (
                  SELECT CASE WHEN jsonb_typeof(x.value) = 'number' THEN (x.value #>> '{}')::numeric
                              -- As it is escaped: a float such as 1e+22.
                              WHEN x.value #>> '{$hippocampus,0}' = 'float'
                              THEN nullif((x.value #>> '{$hippocampus,1}')::numeric, 'NaN') END AS number,
                         CASE jsonb_typeof(x.value) WHEN 'string' THEN (x.value #>> '{}') COLLATE "C" END AS "text") AS y
              -- Numbers compare as numbers, texts by their code points, and nothing else compares but for equality.
              WHERE NOT coalesce(CASE c.operator
                  WHEN '$eq' THEN x.value = coalesce(c.operand, 'null') OR y.number = c.number
                  WHEN '$ne' THEN NOT (x.value = coalesce(c.operand, 'null') OR coalesce(y.number = c.number, false))
                  WHEN '$gt' THEN y.number > c.number OR y."text" > c."text"
                  WHEN '$gte' THEN y.number >= c.number OR y."text" >= c."text"
                  WHEN '$lt' THEN y.number < c.number OR y."text" < c."text"
                  WHEN '$lte' THEN y.number <= c.number OR y."text" <= c."text" END, false)))
        ORDER BY s.score DESC NULLS LAST, i.updated_at DESC, i.namespace, i.key
        LIMIT o."limit" OFFSET o."offset") AS f
    ORDER BY o.place, f.score DESC NULLS LAST, f.updated_at DESC, f.namespace, f.key;
$$;
