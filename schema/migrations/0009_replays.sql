-- Replays: memories extracted again from the same turns.

-- Results accumulate in `replay_draws`, one slice at a time, and no transaction is open while a model is called. Then
-- `swap_replay` replaces what is stored, all at once; until then nothing changes.
CREATE TABLE replays (
    id          uuid PRIMARY KEY DEFAULT new_id(),
    app_name    varchar(255) NOT NULL,
    user_id     varchar(255) NOT NULL,
    thread_id   uuid REFERENCES threads ON DELETE CASCADE,   -- NULL: all threads of the user
    fingerprint text NOT NULL,                               -- of the provider, its prompts and its vectors
    created_at  timestamptz NOT NULL DEFAULT engine_now(),
    applied_at  timestamptz                                  -- NULL: not yet swapped in
);
CREATE UNIQUE INDEX replays_open_idx ON replays (app_name, user_id, coalesce(thread_id::text, ''), fingerprint)
    WHERE applied_at IS NULL;
CREATE INDEX replays_thread_idx ON replays (thread_id);

-- What was extracted from one slice.
CREATE TABLE replay_draws (
    replay_id  uuid NOT NULL REFERENCES replays ON DELETE CASCADE,
    thread_id  uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    stage      text NOT NULL CHECK (stage IN ('fast', 'deep')),
    from_seq   bigint NOT NULL,
    upto_seq   bigint NOT NULL CHECK (upto_seq >= from_seq),
    said       text NOT NULL,             -- slice_digest() of its turns when they were read
    input_hash text NOT NULL,             -- of everything that the reply depends on
    origin     slice_origin NOT NULL,
    memories   memory_input[] NOT NULL DEFAULT '{}',
    vectors    message_vector[] NOT NULL DEFAULT '{}',
    facts      fact_input[] NOT NULL DEFAULT '{}',
    vectorless boolean NOT NULL DEFAULT false,
    PRIMARY KEY (replay_id, thread_id, stage, from_seq)
);
CREATE INDEX replay_draws_thread_idx ON replay_draws (thread_id);
CREATE INDEX replay_draws_input_idx ON replay_draws (input_hash);
