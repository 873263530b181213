-- Vectors of any dimension, and copies of them that searches read.

-- An index of one dimension could not stay on these columns; see `vector_indexes` for those that replace them.
DROP INDEX IF EXISTS memories_embedding_idx, messages_embedding_idx;

-- A function whose body follows BEGIN ATOMIC or RETURN holds on to its columns. Until its file is applied again, the
-- programs that run find it with the same body as a string.
DO $outer$
DECLARE
    f record;
BEGIN
    FOR f IN
        SELECT DISTINCT p.oid, pg_get_functiondef(p.oid) AS definition, pg_get_function_sqlbody(p.oid) AS body
        FROM pg_proc AS p
        JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                           AND d.refclassid = 'pg_class'::regclass
        JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE p.prosqlbody IS NOT NULL AND a.attname = 'embedding'
          AND d.refobjid IN ('messages'::regclass, 'memories'::regclass, 'memories_archive'::regclass,
                             'facts'::regclass)
    LOOP
        EXECUTE replace(f.definition, f.body, '') || ' SET search_path FROM CURRENT AS ' || quote_literal(
            regexp_replace(regexp_replace(f.body, '^BEGIN ATOMIC\s+(.*);\s*END$', '\1'), '^RETURN ', 'SELECT '));
    END LOOP;
END
$outer$;

-- No row is rewritten, except in `replay_draws`, which is empty but for a replay that is running: the type of an
-- attribute can only change while no column has the type.
ALTER TABLE messages ALTER embedding TYPE vector;
ALTER TABLE memories ALTER embedding TYPE vector;
ALTER TABLE memories_archive ALTER embedding TYPE vector;
ALTER TABLE facts ALTER embedding TYPE vector;
ALTER TABLE replay_draws
    ALTER memories DROP DEFAULT, ALTER memories TYPE text USING memories::text,
    ALTER vectors DROP DEFAULT, ALTER vectors TYPE text USING vectors::text,
    ALTER facts DROP DEFAULT, ALTER facts TYPE text USING facts::text;
ALTER TYPE memory_input ALTER ATTRIBUTE embedding TYPE vector;
ALTER TYPE message_vector ALTER ATTRIBUTE embedding TYPE vector;
ALTER TYPE vector_input ALTER ATTRIBUTE embedding TYPE vector;
ALTER TYPE fact_input ALTER ATTRIBUTE embedding TYPE vector;
ALTER TABLE replay_draws
    ALTER memories TYPE memory_input[] USING memories::memory_input[], ALTER memories SET DEFAULT '{}',
    ALTER vectors TYPE message_vector[] USING vectors::message_vector[], ALTER vectors SET DEFAULT '{}',
    ALTER facts TYPE fact_input[] USING facts::fact_input[], ALTER facts SET DEFAULT '{}';

-- What a search reads: each vector of memories, messages and facts again, of unit length, in half precision, inside its
-- row. In its own table a vector is out of line, in several pieces that have to be found and put together; inside, it
-- would be written again whenever the row is, such as at each access of a memory. The trigger `index_vector` keeps these
-- tables; rows that it has not reached yet are compared by their own vectors (see `vector_fill`).
CREATE TABLE memory_vectors (
    id        uuid PRIMARY KEY REFERENCES memories ON DELETE CASCADE,
    app_name  varchar(255) NOT NULL,
    user_id   varchar(255) NOT NULL,
    model     text NOT NULL,
    embedding halfvec NOT NULL
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX memory_vectors_scope_idx ON memory_vectors (app_name, user_id, model);

CREATE TABLE message_vectors (
    id        uuid PRIMARY KEY REFERENCES messages ON DELETE CASCADE,
    app_name  varchar(255) NOT NULL,
    user_id   varchar(255) NOT NULL,
    model     text NOT NULL,
    embedding halfvec NOT NULL
) WITH (toast_tuple_target = 8160);
CREATE INDEX message_vectors_scope_idx ON message_vectors (app_name, user_id, model);

CREATE TABLE fact_vectors (
    id        uuid PRIMARY KEY REFERENCES facts ON DELETE CASCADE,
    app_name  varchar(255) NOT NULL,
    user_id   varchar(255) NOT NULL,
    model     text NOT NULL,
    embedding halfvec NOT NULL
) WITH (toast_tuple_target = 8160);
CREATE INDEX fact_vectors_scope_idx ON fact_vectors (app_name, user_id, model);

-- The tables whose older vectors are still to be copied, in the order of their ids. `fill_vectors` deletes a row once its
-- table is done.
CREATE TABLE vector_fill (
    table_name text PRIMARY KEY,
    after_id   uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
);
INSERT INTO vector_fill (table_name)
SELECT 'memories' WHERE EXISTS (SELECT FROM memories WHERE embedding IS NOT NULL)
UNION ALL
SELECT 'messages' WHERE EXISTS (SELECT FROM messages WHERE embedding IS NOT NULL)
UNION ALL
SELECT 'facts' WHERE EXISTS (SELECT FROM facts WHERE embedding IS NOT NULL);

INSERT INTO data_catalogue (place, table_name, note) VALUES
(405, 'memory_vectors', 'copies of memories'' vectors; deleted with them'),
(215, 'fact_vectors', 'copies of facts'' vectors; deleted with them'),
(505, 'message_vectors', 'copies of messages'' vectors; deleted with them'),
(1085, 'vector_fill', 'names of tables');
