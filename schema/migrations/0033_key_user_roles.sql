-- Keys that bound which roles of a user their holder may name, for tools and corpora.
--
-- Programs that do not know this column refuse such a key: its hash covers the roles.

ALTER TABLE api_keys ADD COLUMN user_roles text[] CHECK (cardinality(user_roles) <= 100);
COMMENT ON COLUMN api_keys.user_roles IS
    'NULL: a key of one user names none, any other key any role; of one user, those that its calls have';
