-- name: list_objects
-- What is in the schema $1, without what belongs to an extension: one row per object, with its definition.
-- A function's name carries its arguments, a column's its table: a name identifies one object. The stamp is the
-- transaction that last wrote what CREATE OR REPLACE replaces, even by an equal definition.
WITH ours AS (
    SELECT oid, nspname FROM pg_namespace WHERE nspname = $1
),
relations AS (
    SELECT c.oid, c.relname, c.relkind
    FROM pg_class AS c
    JOIN ours ON ours.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'c')
      AND NOT EXISTS (
          SELECT FROM pg_depend AS d
          WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
      )
)
SELECT 'function' AS kind,
       p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')' AS name,
       -- NULL where it was dropped since this statement began.
       coalesce(pg_get_functiondef(p.oid), '') AS definition,
       p.xmin::text AS stamp
FROM pg_proc AS p
JOIN ours ON ours.oid = p.pronamespace
WHERE p.prokind IN ('f', 'p')
  AND NOT EXISTS (
      SELECT FROM pg_depend AS d
      WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  )
UNION ALL
SELECT 'aggregate',
       p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
       concat_ws(' ', g.aggtransfn, g.aggfinalfn, g.aggtranstype::regtype, g.agginitval),
       p.xmin::text
FROM pg_proc AS p
JOIN ours ON ours.oid = p.pronamespace
JOIN pg_aggregate AS g ON g.aggfnoid = p.oid
WHERE NOT EXISTS (
    SELECT FROM pg_depend AS d
    WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
)
UNION ALL
SELECT CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' WHEN 'c' THEN 'type' ELSE 'table' END,
       relname,
       concat_ws(' ', relkind, CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(oid) END),
       (SELECT w.xmin::text FROM pg_rewrite AS w WHERE w.ev_class = relations.oid AND w.rulename = '_RETURN')
FROM relations
UNION ALL
SELECT 'column',
       r.relname || '.' || a.attname,
       concat_ws(
           ' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated, a.attidentity,
           pg_get_expr(d.adbin, d.adrelid)
       ),
       NULL
FROM relations AS r
JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped AND r.relkind <> 'v'
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL
-- PostgreSQL 18 also lists NOT NULL here, 16 does not; the column's row has it for both.
SELECT 'constraint', r.relname || '.' || k.conname, pg_get_constraintdef(k.oid), NULL
FROM relations AS r
JOIN pg_constraint AS k ON k.conrelid = r.oid AND k.contype <> 'n'
UNION ALL
SELECT 'index', i.relname, concat_ws(' ', pg_get_indexdef(x.indexrelid), x.indisvalid), NULL
FROM relations AS r
JOIN pg_index AS x ON x.indrelid = r.oid
JOIN pg_class AS i ON i.oid = x.indexrelid
UNION ALL
SELECT 'trigger', r.relname || '.' || t.tgname, concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled), t.xmin::text
FROM relations AS r
JOIN pg_trigger AS t ON t.tgrelid = r.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'enum', t.typname, string_agg(e.enumlabel, ',' ORDER BY e.enumsortorder), NULL
FROM pg_type AS t
JOIN ours ON ours.oid = t.typnamespace
JOIN pg_enum AS e ON e.enumtypid = t.oid
GROUP BY t.typname

-- name: extension_home
-- The schema of pgvector, unless it is $1.
SELECT quote_ident(n.nspname) FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
WHERE e.extname = 'vector' AND n.nspname <> $1

-- name: catalogue_put
INSERT INTO hippocampus_catalogue (kind, name, sha256, made_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, name) DO UPDATE SET sha256 = EXCLUDED.sha256, made_by = EXCLUDED.made_by

-- name: catalogue_delete
-- A file whose function or view a migration dropped is applied again.
WITH gone AS (DELETE FROM hippocampus_catalogue WHERE kind = $1 AND name = $2 RETURNING made_by)
UPDATE hippocampus_migrations AS m SET sha256 = '' FROM gone WHERE m.name = gone.made_by AND m.name LIKE 'functions/%'
