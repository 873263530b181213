-- A schema as text: one row per object, comment, grant and stored row of the schema, to compare two databases.
WITH ours AS (
    SELECT oid FROM pg_namespace WHERE nspname = current_schema()
),
relations AS (
    SELECT c.* FROM pg_class AS c JOIN ours ON ours.oid = c.relnamespace
)
SELECT 'relation ' || c.relname AS name,
       concat_ws(' | ', c.relkind, c.relpersistence, c.reloptions, c.relacl,
                 CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) WHEN 'i' THEN pg_get_indexdef(c.oid) END,
                 obj_description(c.oid, 'pg_class')) AS definition
FROM relations AS c
UNION ALL
SELECT 'column ' || c.relname || '.' || a.attname,
       concat_ws(' | ', a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage, a.attgenerated,
                 a.attidentity, a.attcollation::regcollation, a.attacl, pg_get_expr(d.adbin, d.adrelid),
                 col_description(c.oid, a.attnum))
FROM relations AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL
SELECT 'constraint ' || coalesce(k.conrelid::regclass::text, k.contypid::regtype::text) || '.' || k.conname,
       concat_ws(' | ', k.contype, k.condeferrable, k.condeferred, k.convalidated, pg_get_constraintdef(k.oid))
FROM pg_constraint AS k JOIN ours ON ours.oid = k.connamespace
UNION ALL
SELECT 'trigger ' || t.tgrelid::regclass || '.' || t.tgname, concat_ws(' | ', t.tgenabled, pg_get_triggerdef(t.oid))
FROM pg_trigger AS t JOIN relations AS c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL
SELECT 'routine ' || p.oid::regprocedure,
       concat_ws(' | ', p.proowner::regrole, p.proacl, CASE WHEN p.prokind <> 'a' THEN pg_get_functiondef(p.oid) END,
                 g.aggtransfn, g.aggtranstype::regtype, g.agginitval, obj_description(p.oid, 'pg_proc'))
FROM pg_proc AS p JOIN ours ON ours.oid = p.pronamespace LEFT JOIN pg_aggregate AS g ON g.aggfnoid = p.oid
WHERE NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.objid = p.oid AND e.deptype = 'e')
UNION ALL
SELECT 'type ' || t.typname,
       concat_ws(' | ', t.typtype, CASE WHEN t.typbasetype <> 0 THEN format_type(t.typbasetype, t.typtypmod) END,
                 t.typdefault, t.typnotnull, (SELECT string_agg(e.enumlabel, ',' ORDER BY e.enumsortorder)
                                              FROM pg_enum AS e WHERE e.enumtypid = t.oid),
                 obj_description(t.oid, 'pg_type'))
FROM pg_type AS t JOIN ours ON ours.oid = t.typnamespace
WHERE NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.objid = t.oid AND e.deptype = 'e')
UNION ALL
SELECT 'row of ' || s.name, s.line::text
FROM (SELECT 'app_policies' AS name, to_jsonb(r) - 'updated_at' AS line FROM app_policies AS r
      UNION ALL SELECT 'data_catalogue', to_jsonb(r) FROM data_catalogue AS r
      UNION ALL SELECT 'merge_thresholds', to_jsonb(r) FROM merge_thresholds AS r
      UNION ALL SELECT 'engine_settings', CASE r.name WHEN 'cursor_key' THEN to_jsonb(r.name) ELSE to_jsonb(r) END
      FROM engine_settings AS r) AS s
ORDER BY 1, 2
