-- Keys that act for one user, as programs need that send no more than a key.
--
-- Programs that do not know this column refuse such a key: its hash covers the user.

ALTER TABLE api_keys ADD COLUMN user_id varchar(255) CHECK (user_id <> '');
ALTER TABLE api_keys ADD CONSTRAINT api_keys_user_has_app CHECK (user_id IS NULL OR app_name IS NOT NULL);
COMMENT ON COLUMN api_keys.user_id IS 'NULL: every user of the app';

UPDATE data_catalogue SET user_rows = 'app_name = $1 AND user_id = $2',
                          note = 'made by people who run the app; a user''s own are deleted with the user'
WHERE table_name = 'api_keys';
