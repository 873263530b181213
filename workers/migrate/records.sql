-- name: make_records
-- The table of the files that were applied.
CREATE TABLE IF NOT EXISTS hippocampus_migrations (
    name       text PRIMARY KEY,
    sha256     text NOT NULL,
    program    text NOT NULL,
    contract   integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)

-- name: make_catalogue
-- The table of the objects that they made.
CREATE TABLE IF NOT EXISTS hippocampus_catalogue (
    kind    text NOT NULL,
    name    text NOT NULL,
    sha256  text NOT NULL,
    made_by text NOT NULL,
    PRIMARY KEY (kind, name)
)

-- name: record_file
-- Records a file as applied; returns the id of the transaction that did.
INSERT INTO hippocampus_migrations (name, sha256, program, contract) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET sha256 = EXCLUDED.sha256, program = EXCLUDED.program,
    contract = greatest(hippocampus_migrations.contract, EXCLUDED.contract), applied_at = clock_timestamp()
RETURNING xmin::text

-- name: unapply_files
-- A file of functions without a hash is applied again if there still is one. Its row stays, since the contract that it
-- asked for never goes down.
UPDATE hippocampus_migrations SET sha256 = '' WHERE name = ANY ($1)
