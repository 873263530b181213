-- The record of the autonomic layer by month, so that old months move to an archive whole: nothing in it is deleted.

-- Their files, which are applied again after the migrations, make them on the new table. Only those of this schema: a
-- new one has none, and another installation's may be on the search path.
DO $$
BEGIN
    EXECUTE format('DROP VIEW IF EXISTS %1$I.pulse_agent_stats, %1$I.pulse_pending_tasks, %1$I.pulse_tasks,
                                        %1$I.pulse_task_events', current_schema());
    EXECUTE format('DROP FUNCTION IF EXISTS %I.open_effect(bigint)', current_schema());
END
$$;

ALTER TABLE pulse_events RENAME TO pulse_events_whole;
ALTER TABLE pulse_events_whole RENAME CONSTRAINT pulse_events_pkey TO pulse_events_whole_pkey;
ALTER SEQUENCE pulse_events_id_seq RENAME TO pulse_events_whole_id_seq;
DROP INDEX pulse_events_key_idx, pulse_events_time_idx, pulse_events_end_idx, pulse_events_once_idx;

-- Not an identity column: a partition has one since PostgreSQL 17 alone.
CREATE SEQUENCE pulse_events_id_seq;
CREATE TABLE pulse_events (
    id          bigint NOT NULL DEFAULT nextval('pulse_events_id_seq'),
    scope       text NOT NULL,
    kind        text NOT NULL CHECK (kind ~ '^[a-z]{2,32}(-[a-z]{2,32}){0,3}$'),
    key         text NOT NULL CHECK (octet_length(key) <= 512),
    ref         bigint,                 -- the effect whose execution this is about; of the same month's partition
    hash        text REFERENCES objects,
    meta        jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta) = 'object' AND octet_length(meta::text) <= 16384),
    occurred_at timestamptz NOT NULL DEFAULT engine_now(),
    -- The first day of the month, in UTC, in which what it is about began: an effect with its executions and its end,
    -- and a task with all that became of it, are in one partition. Thus an index can say that an effect ends once.
    month       date NOT NULL DEFAULT date_trunc('month', engine_now() AT TIME ZONE 'UTC')::date,
    PRIMARY KEY (id, month)
) PARTITION BY LIST (month);
ALTER SEQUENCE pulse_events_id_seq OWNED BY pulse_events.id;
CREATE INDEX pulse_events_key_idx ON pulse_events (scope, kind, key, id DESC);
CREATE INDEX pulse_events_time_idx ON pulse_events (scope, kind, occurred_at);
-- An effect ends once, and one that must not happen twice begins once.
CREATE UNIQUE INDEX pulse_events_end_idx ON pulse_events (ref, month) WHERE kind IN ('effect-acked', 'effect-failed');
CREATE UNIQUE INDEX pulse_events_once_idx ON pulse_events (ref, month)
    WHERE kind = 'effect-executing' AND (meta -> 'once') = 'true'::jsonb;

-- What no month's partition takes: before the upkeep has made it.
CREATE TABLE pulse_events_default PARTITION OF pulse_events DEFAULT;

-- Months that moved out of the record. Ticks do not read them.
CREATE TABLE pulse_events_archive (
    id          bigint NOT NULL,
    scope       text NOT NULL,
    kind        text NOT NULL,
    key         text NOT NULL,
    ref         bigint,
    hash        text,
    meta        jsonb NOT NULL,
    occurred_at timestamptz NOT NULL,
    month       date NOT NULL,
    PRIMARY KEY (id, month)
) PARTITION BY LIST (month);

INSERT INTO pulse_events (id, scope, kind, key, ref, hash, meta, occurred_at, month)
SELECT o.id, o.scope, o.kind, o.key, o.ref, o.hash, o.meta, o.occurred_at,
       date_trunc('month', coalesce(e.occurred_at, c.occurred_at, o.occurred_at) AT TIME ZONE 'UTC')::date
FROM pulse_events_whole AS o
LEFT JOIN pulse_events_whole AS e ON e.id = o.ref
LEFT JOIN pulse_events_whole AS c ON o.kind LIKE 'task-%' AND c.scope = o.scope AND c.kind = 'task-created' AND c.key = o.key;
SELECT setval('pulse_events_id_seq', max(id)) FROM pulse_events HAVING max(id) IS NOT NULL;
DROP TABLE pulse_events_whole;

UPDATE data_catalogue SET note = 'what the autonomic layer decided and did: codes and numbers; moves to the archive by month'
WHERE table_name = 'pulse_events';
INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, note) VALUES
(1500, 'pulse_events_default', NULL, NULL, 'a partition of pulse_events'),
(1510, 'pulse_events_archive', NULL, NULL, 'months of pulse_events that moved out: codes and numbers; people move them to files');
