-- Items of a key-value store: replaced by key, returned exactly, never consolidated and never fading.

CREATE TABLE store_items (
    id         uuid PRIMARY KEY DEFAULT new_id(),
    app_name   varchar(255) NOT NULL,
    namespace  text[] COLLATE "C" NOT NULL CHECK (cardinality(namespace) > 0),
    key        text COLLATE "C" NOT NULL CHECK (key <> ''),
    -- What is below ('users', U) belongs to user U. A label has no period: it writes one as %2E, and % as %25.
    user_id    text GENERATED ALWAYS AS (
        CASE WHEN namespace[1] = 'users' THEN replace(replace(namespace[2], '%2E', '.'), '%25', '%') END) STORED,
    -- In the escape of states, so that it can be read as jsonb; as json it keeps the order of its keys.
    value      json NOT NULL CHECK (json_typeof(value) = 'object'),
    ttl        interval CHECK (ttl > interval '0'),   -- since the last write or read; NULL: kept until it is deleted
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT engine_now(),
    updated_at timestamptz NOT NULL DEFAULT engine_now(),
    UNIQUE (app_name, namespace, key),
    CHECK ((ttl IS NULL) = (expires_at IS NULL))
);
CREATE INDEX store_items_user_idx ON store_items (app_name, user_id) WHERE user_id IS NOT NULL;
CREATE INDEX store_items_expires_idx ON store_items (expires_at) WHERE expires_at IS NOT NULL;

-- An item has a vector for each of its texts. Models of any dimensions are beside each other, and never compared.
CREATE TABLE item_vectors (
    item_id   uuid NOT NULL REFERENCES store_items ON DELETE CASCADE,
    model     text NOT NULL,
    path      text NOT NULL,           -- of the text in the item's value
    embedding vector NOT NULL,
    PRIMARY KEY (item_id, model, path)
);
ALTER TABLE item_vectors ALTER COLUMN embedding SET STORAGE EXTERNAL;

INSERT INTO data_catalogue (place, table_name, user_rows, export_kind, export_rows, note) VALUES
(610, 'item_vectors',
 'item_id IN (SELECT id FROM store_items WHERE app_name = $1 AND user_id = $2 AND created_at <= $6)', NULL, NULL,
 'vectors of items'),
(620, 'store_items', 'app_name = $1 AND user_id = $2 AND created_at <= $6', 'item', 'app_name = $1 AND user_id = $2',
 'items that programs stored below the user; other items are the app''s own');
