-- Cells: several installations that share the apps between them. A row says that an app is not served here, and where
-- it is: in each cell that an app has left, or from which it is being moved.
CREATE TABLE app_cells (
    app_name  varchar(255) PRIMARY KEY CHECK (app_name NOT IN ('', '*')),
    cell      varchar(63) NOT NULL CHECK (cell ~ '^[a-z0-9][a-z0-9_-]*$'),
    state     text NOT NULL CHECK (state IN ('arriving', 'leaving', 'moved')),
    marked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE app_cells IS 'Apps that this cell does not serve, and the cell that does. No row: it is served here.';
COMMENT ON COLUMN app_cells.state IS
    'arriving: being copied from that cell to this one; leaving: writers wait until that cell has it; moved: it has.';

-- Which rows a move takes along. NULL: by the column app_name or thread_id; a table without either stays.
ALTER TABLE data_catalogue ADD COLUMN app_rows text;
COMMENT ON COLUMN data_catalogue.app_rows IS
    'Condition on the rows of the app $1, where the columns app_name and thread_id do not say it.';

UPDATE data_catalogue AS c SET app_rows = m.app_rows FROM (VALUES
    ('webhook_secrets', 'endpoint_id IN (SELECT id FROM webhook_endpoints WHERE app_name = $1)'),
    ('webhook_deliveries', 'event_id IN (SELECT id FROM webhook_events WHERE app_name = $1)'),
    ('artifact_versions', 'artifact_id IN (SELECT id FROM artifacts WHERE app_name = $1)'),
    -- Shared with other apps: see moved_tables().
    ('artifact_blobs', 'sha256 IN (SELECT v.sha256 FROM artifact_versions AS v JOIN artifacts AS a ON a.id = v.artifact_id WHERE a.app_name = $1)'),
    -- Its rows are those of traces.
    ('traces_default', 'false'),
    ('item_vectors', 'item_id IN (SELECT id FROM store_items WHERE app_name = $1)'),
    ('embedding_refusals', 'id IN (SELECT id FROM memories WHERE app_name = $1 UNION ALL SELECT id FROM facts WHERE app_name = $1 UNION ALL SELECT id FROM messages WHERE app_name = $1)')
) AS m (table_name, app_rows) WHERE c.table_name = m.table_name;

INSERT INTO data_catalogue (place, table_name, note, app_rows) VALUES
(1300, 'app_cells', 'where apps are served', 'false');
