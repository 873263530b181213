-- What consolidation costs: calls and tokens by thread, and replies that are paid for once.

ALTER TABLE threads
    ADD COLUMN generate_calls bigint NOT NULL DEFAULT 0,
    ADD COLUMN embed_calls    bigint NOT NULL DEFAULT 0,
    ADD COLUMN prompt_tokens  bigint NOT NULL DEFAULT 0,
    ADD COLUMN output_tokens  bigint NOT NULL DEFAULT 0,
    ADD COLUMN reused_replies bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN threads.generate_calls IS 'Replies of the generating model that became memories; see memory_costs.';

-- A reply that was paid for and is not stored as memories yet: at most one for each stage of a thread. Whoever retries
-- the same slice takes it. Gone with the commit of the slice, or with the thread.
CREATE TABLE model_replies (
    thread_id     uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
    stage         text NOT NULL CHECK (stage IN ('fast', 'deep')),
    input_hash    text NOT NULL,             -- SHA-256, hex, of the provider's name and of the slice's turns
    reply         jsonb NOT NULL CHECK (jsonb_typeof(reply) = 'object'),
    created_at    timestamptz NOT NULL DEFAULT engine_now(),
    PRIMARY KEY (thread_id, stage)
);

INSERT INTO data_catalogue (place, table_name, user_rows, thread_rows, event_rows, event_change, cascades,
                            export_kind, export_rows, note) VALUES
(305, 'model_replies', 'thread_id IN (SELECT id FROM threads WHERE app_name = $1 AND user_id = $2)', 'thread_id = $1',
 'thread_id = $1', NULL, true, NULL, NULL, 'replies that wait for their commit quote what was said');

-- Keeps a reply in place of an earlier one of its stage. The commit does not wait for the disk: what a crash of the
-- server forgets is asked for again. A thread that is gone, or of which something was erased since, keeps nothing.
CREATE FUNCTION save_model_reply(p_thread_id uuid, p_stage text, p_erasures integer, p_input_hash text, p_reply jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO model_replies (thread_id, stage, input_hash, reply)
    SELECT t.id, p_stage, p_input_hash, p_reply FROM threads AS t
    WHERE t.id = p_thread_id AND t.erasures = p_erasures FOR SHARE
    ON CONFLICT (thread_id, stage) DO UPDATE
        SET input_hash = excluded.input_hash, reply = excluded.reply, created_at = excluded.created_at;
END
$$;

-- Books what a slice cost, in the transaction that stores it and after its thread is locked.
CREATE FUNCTION record_cost(
    p_thread_id uuid, p_stage text, p_generate_calls integer, p_embed_calls integer, p_prompt_tokens bigint,
    p_output_tokens bigint, p_reused_replies integer)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM model_replies WHERE thread_id = p_thread_id AND stage = p_stage;
    UPDATE threads SET
        generate_calls = generate_calls + p_generate_calls, embed_calls = embed_calls + p_embed_calls,
        prompt_tokens = prompt_tokens + p_prompt_tokens, output_tokens = output_tokens + p_output_tokens,
        reused_replies = reused_replies + p_reused_replies
    WHERE id = p_thread_id AND (p_generate_calls > 0 OR p_embed_calls > 0);
END
$$;

-- What each thread cost, in calls and tokens. A call that was tried again after a fault counts once, and a call whose
-- reply became nothing not at all: the metrics count those. events_per_call: consolidated events per generate call.
CREATE VIEW memory_costs AS
SELECT t.app_name, t.user_id, t.session_id, t.id AS thread_id, t.last_seq AS events,
       greatest(t.fast_upto_seq, t.deep_upto_seq) AS consolidated_events, t.token_count AS message_tokens,
       t.generate_calls, t.embed_calls, t.prompt_tokens, t.output_tokens, t.reused_replies,
       round(greatest(t.fast_upto_seq, t.deep_upto_seq)::numeric / nullif(t.generate_calls, 0), 1) AS events_per_call
FROM threads AS t;
