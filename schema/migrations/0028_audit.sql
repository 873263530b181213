-- Who did what in administration, and when. Ids and names of fields; no word of a user.

CREATE TABLE audit_log (
    id       uuid PRIMARY KEY DEFAULT new_id(),
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor    text NOT NULL,      -- key:<id>, cli:<user of the system>, library, worker, sql:<role>
    action   text NOT NULL,
    app_name varchar(255),                           -- NULL: of every app
    user_id  varchar(255),
    target   jsonb NOT NULL DEFAULT '{}',
    outcome  text NOT NULL DEFAULT 'done'
);
COMMENT ON TABLE audit_log IS 'Administrative acts, append-only: see refuse_audit_change.';
CREATE INDEX audit_log_app_idx ON audit_log (app_name, id);
CREATE INDEX audit_log_at_idx ON audit_log (at);

-- What was done here stays here.
INSERT INTO data_catalogue (place, table_name, app_rows, note) VALUES
(1340, 'audit_log', 'false', 'who did what: ids alone; rows go after the days of engine_settings (''audit_days''), by default 400');
