-- The autonomic layer: what an installation senses of itself, what its rules decided, and what became of it.

-- What the watchers measured. Unlogged: a crash of the server empties it, and the next minute fills it again.
CREATE UNLOGGED TABLE vitals (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope   text NOT NULL,
    sense   text NOT NULL,
    machine text NOT NULL,
    at      timestamptz NOT NULL DEFAULT engine_now(),
    data    jsonb NOT NULL
);
CREATE INDEX vitals_sense_idx ON vitals (scope, sense, at DESC);
CREATE INDEX vitals_time_idx ON vitals (at);

-- Contents by the hash of their canonical JSON: written once, never changed, shared by all scopes.
CREATE TABLE objects (
    hash       text PRIMARY KEY CHECK (hash ~ '^[0-9a-f]{64}$'),
    body       bytea NOT NULL CHECK (octet_length(body) <= 1048576),
    size       integer GENERATED ALWAYS AS (octet_length(body)) STORED,
    created_at timestamptz NOT NULL DEFAULT engine_now()
);

-- What was decided and done. Never changed, never deleted: so it holds codes, hashes, ids and numbers, and no words of
-- a user.
CREATE TABLE pulse_events (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope       text NOT NULL,
    kind        text NOT NULL CHECK (kind ~ '^[a-z]{2,32}(-[a-z]{2,32}){0,3}$'),
    key         text NOT NULL CHECK (octet_length(key) <= 512),
    ref         bigint REFERENCES pulse_events,    -- the effect whose execution this is about
    hash        text REFERENCES objects,
    meta        jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta) = 'object' AND octet_length(meta::text) <= 16384),
    occurred_at timestamptz NOT NULL DEFAULT engine_now()
);
CREATE INDEX pulse_events_key_idx ON pulse_events (scope, kind, key, id DESC);
CREATE INDEX pulse_events_time_idx ON pulse_events (scope, kind, occurred_at);
-- An effect ends once, and one that must not happen twice begins once.
CREATE UNIQUE INDEX pulse_events_end_idx ON pulse_events (ref) WHERE kind IN ('effect-acked', 'effect-failed');
CREATE UNIQUE INDEX pulse_events_once_idx ON pulse_events (ref)
    WHERE kind = 'effect-executing' AND (meta -> 'once') = 'true'::jsonb;

-- The rules of a scope, as they were staged.
CREATE TABLE rule_releases (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope       text NOT NULL,
    hash        text NOT NULL REFERENCES objects,
    status      text NOT NULL DEFAULT 'staged'
                CHECK (status IN ('staged', 'checked', 'shadow', 'active', 'retired', 'refused', 'rolled_back')),
    checks      jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(checks) = 'object'),
    previous    bigint REFERENCES rule_releases,   -- what it replaced
    created_at  timestamptz NOT NULL DEFAULT engine_now(),
    promoted_at timestamptz,
    retired_at  timestamptz
);
CREATE INDEX rule_releases_scope_idx ON rule_releases (scope, id DESC);
CREATE UNIQUE INDEX rule_releases_active_idx ON rule_releases (scope) WHERE status = 'active';
CREATE UNIQUE INDEX rule_releases_shadow_idx ON rule_releases (scope) WHERE status = 'shadow';

-- One row an instance of the layer: which release is in force, and who leads.
CREATE TABLE pulse_scopes (
    scope        text PRIMARY KEY CHECK (scope ~ '^[a-z0-9_-]{1,64}$'),
    release_id   bigint REFERENCES rule_releases,
    version      bigint NOT NULL DEFAULT 1,        -- of the release in force: each promotion and rollback adds one
    ticks        bigint NOT NULL DEFAULT 0,
    holder       text,
    last_tick_at timestamptz,
    created_at   timestamptz NOT NULL DEFAULT engine_now()
) WITH (fillfactor = 50);

-- Which event of a task may follow which; the first one follows ''.
CREATE TABLE task_transitions (
    from_kind text NOT NULL,
    to_kind   text NOT NULL,
    PRIMARY KEY (from_kind, to_kind)
);
INSERT INTO task_transitions (from_kind, to_kind) VALUES
('', 'task-created'),
('task-created', 'task-assigned'), ('task-created', 'task-given-up'),
('task-assigned', 'task-executing'), ('task-assigned', 'task-assigned'), ('task-assigned', 'task-given-up'),
('task-executing', 'task-acked'), ('task-executing', 'task-assigned'), ('task-executing', 'task-given-up'),
('task-acked', 'task-closed');

ALTER TABLE metrics_targets ADD COLUMN machine text, ADD COLUMN errors jsonb;
COMMENT ON COLUMN metrics_targets.machine IS 'Where the process runs; NULL from a program that does not know it.';
COMMENT ON COLUMN metrics_targets.errors IS 'How often the process logged each error since it started, by event and class.';

INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, note) VALUES
(1240, 'vitals', NULL, NULL, 'measurements of processes and machines, deleted after a day'),
(1250, 'objects', NULL, NULL, 'rules, and prompts of tasks that operators wrote; no words of users'),
(1260, 'pulse_events', NULL, NULL, 'what the autonomic layer decided and did: codes and numbers; never deleted'),
(1270, 'rule_releases', NULL, NULL, 'releases of rules'),
(1280, 'pulse_scopes', NULL, NULL, 'instances of the autonomic layer'),
(1290, 'task_transitions', NULL, NULL, 'which event of a task may follow which');
