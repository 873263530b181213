-- name: taken_tables
-- Which of the tables $2 the schema $1 has.
SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND c.relname = ANY ($2::text[])

-- name: has_function
-- Whether the schema $1 has the function $2.
SELECT to_regprocedure(quote_ident($1) || '.' || $2) IS NOT NULL
