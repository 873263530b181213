-- The arguments of a tool's call are streamed as text is, with what the event of the call will name.

ALTER TABLE live_messages
    ADD COLUMN meta jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta) = 'object'),
    DROP CONSTRAINT live_messages_kind_check,
    ADD CONSTRAINT live_messages_kind_check CHECK (kind IN ('text', 'thought', 'act'));
