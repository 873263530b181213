-- The usual append, in three statements: one new event, by a writer who has read everything before it.

-- An event's message may be stored before the event, so that the longest part of an append is done before the state that
-- all sessions of an app share is locked. Only the end of the transaction must have both.
ALTER TABLE messages ALTER CONSTRAINT messages_thread_id_sequence_num_fkey DEFERRABLE INITIALLY DEFERRED;

-- append_events with one event, at the version that its writer knows. Whatever is not as usual is left to append_events
-- (an id that is stored already, another version or thread, no such session, too large an event): it says what is wrong.
-- Errors: as append_events.
CREATE FUNCTION append_next_event(
    p_app_name text, p_user_id text, p_session_id text, p_expected_version integer, i event_input,
    p_notify boolean DEFAULT true, p_thread_id uuid DEFAULT NULL, p_event_time double precision DEFAULT NULL,
    OUT sequence_num bigint, OUT occurred_at timestamptz, OUT created_at timestamptz, OUT appended boolean,
    OUT thread_id uuid, OUT version integer, OUT last_seq bigint, OUT user_version bigint, OUT app_version bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_now              timestamptz := engine_now();
    v_tokens           integer := coalesce(estimate_tokens(i.message), 0);
    v_bytes            bigint := greatest(octet_length(i.content::text) + coalesce(octet_length(i.actions::text), 0),
                                          octet_length(i.message));
    v_state_bytes      integer;
    v_max_state_bytes  integer;
    v_needs_snapshot   boolean;
    v_needs_replay     boolean;
    v_needs_reflection boolean;
    v_user             jsonb;
    v_app              jsonb;
    v_notify           text;
BEGIN
    -- Nobody can have stored this id since the version that is compared.
    UPDATE threads AS t SET
        last_seq = t.last_seq + 1, version = t.version + 1, token_count = t.token_count + v_tokens,
        state = CASE WHEN i.session_delta IS NULL THEN t.state ELSE t.state || i.session_delta END,
        state_seq = CASE WHEN i.session_delta IS NULL THEN t.state_seq ELSE t.last_seq + 1 END,
        last_event_at = greatest(v_now, t.last_event_at), updated_at = greatest(v_now, t.last_event_at),
        event_time = p_event_time, finalized_at = NULL,
        fast_due_at = coalesce(t.fast_due_at,
                               greatest(v_now, t.last_event_at) + make_interval(secs => p.fast_idle_seconds)),
        deep_due_at = coalesce(t.deep_due_at,
                               greatest(v_now, t.last_event_at) + make_interval(secs => p.deep_idle_seconds))
    FROM app_policies AS p
    WHERE p.app_name = coalesce((SELECT o.app_name FROM app_policies AS o WHERE o.app_name = p_app_name), '*')
      AND t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id
      AND t.version = p_expected_version AND (p_thread_id IS NULL OR t.id = p_thread_id) AND NOT has_expired(t)
      AND v_bytes <= p.max_event_bytes AND i.id <> ''
      AND NOT EXISTS (SELECT FROM events AS e WHERE e.thread_id = t.id AND e.id = i.id AND e.id <> '')
    RETURNING t.id, t.version, t.last_seq, t.last_seq, t.last_event_at, coalesce(i.occurred_at, t.last_event_at), true,
              pg_column_size(t.state), p.max_state_bytes,
              t.state_seq > t.snapshot_seq AND t.last_seq - t.snapshot_seq >= p.snapshot_events,
              p.consolidate AND (t.last_seq - t.fast_queued_seq >= p.fast_events
                                 OR t.token_count - t.fast_queued_tokens >= p.fast_tokens),
              p.consolidate AND t.token_count - t.deep_queued_tokens >= p.deep_tokens
    INTO thread_id, version, sequence_num, last_seq, created_at, occurred_at, appended,
         v_state_bytes, v_max_state_bytes, v_needs_snapshot, v_needs_replay, v_needs_reflection;
    IF NOT FOUND THEN
        SELECT s.sequence_num, s.occurred_at, s.created_at, s.appended, s.thread_id, s.version, s.last_seq,
               s.user_version, s.app_version
        FROM append_events(p_app_name, p_user_id, p_session_id, p_expected_version, ARRAY[i], p_notify,
                           p_thread_id => p_thread_id, p_event_time => p_event_time) AS s
        INTO sequence_num, occurred_at, created_at, appended, thread_id, version, last_seq, user_version, app_version;
        RETURN;
    END IF;

    IF i.message IS NOT NULL THEN
        INSERT INTO messages (thread_id, sequence_num, event_id, app_name, user_id, role, author, content,
                              token_estimate, occurred_at, created_at)
        VALUES (append_next_event.thread_id, append_next_event.sequence_num, i.id, p_app_name, p_user_id, i.role,
                i.author, i.message, v_tokens, append_next_event.occurred_at, append_next_event.created_at);
    END IF;
    IF coalesce(i.user_delta, i.app_delta) IS NOT NULL THEN
        SELECT s.user_state, s.app_state, CASE WHEN i.user_delta IS NOT NULL THEN s.user_version END,
               CASE WHEN i.app_delta IS NOT NULL THEN s.app_version END
        INTO v_user, v_app, user_version, app_version
        FROM merge_shared_states(p_app_name, p_user_id, i.user_delta, i.app_delta) AS s;
    END IF;
    IF greatest(v_state_bytes, pg_column_size(v_user), pg_column_size(v_app)) > v_max_state_bytes THEN
        PERFORM check_state_size(v_max_state_bytes, (SELECT state FROM threads WHERE id = append_next_event.thread_id),
                                 v_user, v_app);
    END IF;
    IF NOT p_notify THEN
        v_notify := set_config('hippocampus.notify', 'off', true);
    END IF;
    INSERT INTO events (thread_id, sequence_num, id, invocation_id, author, event_type, content, actions,
                        version, session_delta, user_delta, app_delta, user_version, app_version,
                        occurred_at, created_at)
    VALUES (append_next_event.thread_id, append_next_event.sequence_num, i.id, coalesce(i.invocation_id, ''), i.author,
            i.event_type, i.content, coalesce(i.actions, '{}'), append_next_event.version,
            i.session_delta, i.user_delta, i.app_delta,
            append_next_event.user_version, append_next_event.app_version,
            append_next_event.occurred_at, append_next_event.created_at);
    IF NOT p_notify THEN
        v_notify := set_config('hippocampus.notify', '', true);
    END IF;
    IF v_needs_snapshot THEN
        PERFORM take_snapshot(thread_id);
    END IF;
    IF v_needs_replay THEN
        PERFORM enqueue_consolidation(thread_id, 'fast_replay');
    END IF;
    IF v_needs_reflection THEN
        PERFORM enqueue_consolidation(thread_id, 'deep_reflection');
    END IF;
END
$$;
