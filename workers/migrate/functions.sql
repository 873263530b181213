-- name: views_of_file
SELECT name FROM hippocampus_catalogue WHERE kind = 'view' AND made_by = $1

-- name: is_ours
-- Whether the function $1 is one of ours.
SELECT EXISTS (
    SELECT FROM hippocampus_catalogue AS c JOIN pg_proc AS p ON p.oid = to_regprocedure($1)
    WHERE c.name = p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')')

-- name: objects_of_files
SELECT kind, name, made_by FROM hippocampus_catalogue WHERE made_by = ANY ($1)

-- name: own_functions
-- Our functions in the schema $1 with a body that can be checked, and what checks it.
SELECT p.oid, c.made_by || ': ' || p.proname AS name,
       CASE l.lanname WHEN 'sql' THEN 'fmgr_sql_validator' ELSE 'plpgsql_validator' END AS validator
FROM pg_proc AS p
JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname IN ('sql', 'plpgsql')
JOIN hippocampus_catalogue AS c
  ON c.kind = 'function' AND c.name = p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
WHERE p.pronamespace = to_regnamespace(quote_ident($1)) AND c.made_by LIKE 'functions/%'
ORDER BY 2

-- name: wide_paths
-- Our functions whose path still has a second schema, pgvector's, though their bodies name nothing of pgvector.
WITH members AS (
    SELECT t.typname::text AS name, false AS is_operator, d.refobjid
    FROM pg_depend AS d JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
    WHERE d.deptype = 'e' AND t.typcategory <> 'A'
    UNION ALL
    SELECT p.proname, false, d.refobjid
    FROM pg_depend AS d JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
    WHERE d.deptype = 'e'
    UNION ALL
    SELECT o.oprname, true, d.refobjid
    FROM pg_depend AS d JOIN pg_operator AS o ON d.classid = 'pg_operator'::regclass AND o.oid = d.objid
    WHERE d.deptype = 'e' AND o.oprname LIKE '<_>'
)
SELECT c.name, p.oid::regprocedure::text AS routine
FROM pg_proc AS p
JOIN hippocampus_catalogue AS c
  ON c.kind = 'function' AND c.name = p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
WHERE p.pronamespace = to_regnamespace(quote_ident($1))
  AND EXISTS (SELECT FROM unnest(p.proconfig) AS s WHERE s LIKE 'search_path=%, %')
  AND NOT EXISTS (
      SELECT FROM members AS m JOIN pg_extension AS e ON e.oid = m.refobjid AND e.extname = 'vector'
      WHERE CASE WHEN m.is_operator THEN strpos(p.prosrc, m.name) > 0
                 -- A name of a built-in function, such as avg, is not pgvector's alone.
                 ELSE p.prosrc ~ ('\m' || m.name || '\M')
                      AND NOT EXISTS (SELECT FROM pg_proc AS b
                                      WHERE b.proname = m.name AND b.pronamespace = 'pg_catalog'::regnamespace)
            END)

-- name: put_hash
UPDATE hippocampus_catalogue SET sha256 = $2 WHERE kind = 'function' AND name = $1
