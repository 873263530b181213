-- What each app does about secrets in what its users and agents write.

ALTER TABLE app_policies ADD COLUMN redaction text NOT NULL DEFAULT 'off'
    CONSTRAINT app_policies_redaction CHECK (redaction IN ('off', 'mask', 'refuse'));
COMMENT ON COLUMN app_policies.redaction IS
    'Secrets in what is stored: off stores them, mask stores [redacted:KIND] in their place, refuse refuses the call.';
