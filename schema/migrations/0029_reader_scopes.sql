-- What each login that only reads may see: one app, or one user of it. Row-level security follows it; see grant_roles.

CREATE TABLE reader_scopes (
    role_name  name PRIMARY KEY,
    app_name   varchar(255) NOT NULL,
    user_id    varchar(255)             -- NULL: the user of the setting hippocampus.user_id, one at a time
);
COMMENT ON TABLE reader_scopes IS 'What row-level security lets the members of hippocampus_reader see.';

INSERT INTO data_catalogue (place, table_name, app_rows, note) VALUES
(1350, 'reader_scopes', 'false', 'which logins may read what: names, set by people who run the installation');
