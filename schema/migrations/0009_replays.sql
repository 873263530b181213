-- Drawing anew. Draws gather in `replay_draws`, one slice at a time and outside any transaction with a model; then
-- `swap_replay` puts them in the place of what is stored, all at once. Nothing is changed before.
CREATE TABLE replays (
    id          uuid PRIMARY KEY DEFAULT new_id(),
    app_name    varchar(255) NOT NULL,
    user_id     varchar(255) NOT NULL,
    thread_id   uuid REFERENCES threads ON DELETE CASCADE,   -- NULL: all of the user's
    fingerprint text NOT NULL,                               -- of the provider, its prompts and its vectors
    created_at  timestamptz NOT NULL DEFAULT engine_now(),
    applied_at  timestamptz                                  -- NULL: draws wait
);
CREATE UNIQUE INDEX replays_open_idx ON replays (app_name, user_id, coalesce(thread_id::text, ''), fingerprint)
    WHERE applied_at IS NULL;
CREATE INDEX replays_thread_idx ON replays (thread_id);

CREATE TABLE replay_draws (
    replay_id  uuid NOT NULL REFERENCES replays ON DELETE CASCADE,
    thread_id  uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    stage      text NOT NULL CHECK (stage IN ('fast', 'deep')),
    from_seq   bigint NOT NULL,
    upto_seq   bigint NOT NULL CHECK (upto_seq >= from_seq),
    said       text NOT NULL,             -- slice_digest() of its turns when they were read
    input_hash text NOT NULL,             -- of everything that the answer depends on
    origin     slice_origin NOT NULL,
    memories   memory_input[] NOT NULL DEFAULT '{}',
    vectors    message_vector[] NOT NULL DEFAULT '{}',
    facts      fact_input[] NOT NULL DEFAULT '{}',
    vectorless boolean NOT NULL DEFAULT false,
    PRIMARY KEY (replay_id, thread_id, stage, from_seq)
);
CREATE INDEX replay_draws_thread_idx ON replay_draws (thread_id);
CREATE INDEX replay_draws_input_idx ON replay_draws (input_hash);
