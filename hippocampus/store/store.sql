-- Items: batches in one round trip. An operation's place is its position in the batch.

-- name: get
-- app, [{"place", "namespace", "key"}], whether expired items are left out
SELECT o.place, i.id, i.namespace, i.key, i.value, i.created_at, i.updated_at, i.expires_at
FROM jsonb_to_recordset($2) AS o (place integer, namespace text[], key text)
JOIN store_items AS i ON i.app_name = $1 AND i.namespace = o.namespace AND i.key = o.key
WHERE NOT $3 OR i.expires_at IS NULL OR i.expires_at > engine_now()

-- name: put
-- app, items, model or null, vectors: their item's place, their path, themselves
-- redacts: JSON $2 of app $1
SELECT put_store_items($1, $2, $3, $4, $5, $6)

-- name: search
-- app, [{"place", "lowest", "beyond", "conditions", "limit", "offset"}], whether expired items are left out,
-- a query's vector or null for each place, their model
SELECT * FROM search_items($1, $2, $3, $4, $5)

-- name: list_namespaces
-- app, [{"place", "lowest", "beyond", "matches", "depth", "limit", "offset"}], whether expired items are left out
SELECT o.place, f.namespace
FROM jsonb_to_recordset($2) AS o (place integer, lowest text[], beyond text[], matches jsonb, depth integer,
                                  "limit" integer, "offset" integer)
CROSS JOIN LATERAL (
    SELECT DISTINCT n.namespace[1:coalesce(o.depth, cardinality(n.namespace))] AS namespace
    FROM (SELECT DISTINCT i.namespace FROM store_items AS i
          WHERE i.app_name = $1 AND i.namespace >= o.lowest AND i.namespace < o.beyond
            AND (NOT $3 OR i.expires_at IS NULL OR i.expires_at > engine_now())) AS n
    WHERE NOT EXISTS (
        SELECT FROM jsonb_to_recordset(o.matches) AS m (labels text[], at_end boolean)
        WHERE cardinality(m.labels) > cardinality(n.namespace)
           OR EXISTS (SELECT FROM unnest(m.labels) WITH ORDINALITY AS l (label, nth)
                      WHERE l.label <> '*' AND l.label <> n.namespace[
                          l.nth + CASE WHEN m.at_end THEN cardinality(n.namespace) - cardinality(m.labels) ELSE 0 END]))
    ORDER BY 1 LIMIT o."limit" OFFSET o."offset") AS f
ORDER BY o.place, f.namespace

-- name: refresh
-- ids of items whose time to live begins again. What another transaction has locked is being written or read as well.
UPDATE store_items AS i SET expires_at = engine_now() + i.ttl
FROM (SELECT id FROM store_items WHERE id = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED) AS d
WHERE i.id = d.id

-- name: delete_below
-- app, the range of namespaces
DELETE FROM store_items WHERE app_name = $1 AND namespace >= $2 AND namespace < $3

-- name: move_below
-- app, the range of namespaces, their number of labels that are replaced, the labels that replace them
UPDATE store_items SET namespace = $5 || namespace[$4 + 1:]
WHERE app_name = $1 AND namespace >= $2 AND namespace < $3

-- name: lock
-- app, namespace: until the transaction ends
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(' ', 'items of', current_schema(), $1::text, to_jsonb($2::text[])), 0))

-- name: expire
-- items at most
SELECT expire_store_items($1)
