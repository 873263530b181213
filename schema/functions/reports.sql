-- What is reported to webhooks: each event is written in the transaction that it reports. webhooks.sql delivers it.

-- Whether an app has an endpoint for events of a type, disabled ones included: their events can be replayed.
CREATE OR REPLACE FUNCTION wants_webhook(p_app_name text, p_type text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (SELECT FROM webhook_endpoints AS e
                   WHERE e.app_name = p_app_name AND (e.event_types = '{}' OR p_type = ANY (e.event_types)))
$$;

-- Records an event, and enqueues its delivery to each endpoint that wants it; nothing if there is none. p_data without
-- user_id and session_id, which are added.
CREATE OR REPLACE FUNCTION note_webhook_event(p_app_name text, p_user_id text, p_thread_id uuid, p_type text, p_data jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_event uuid;
BEGIN
    IF NOT wants_webhook(p_app_name, p_type) THEN
        RETURN;
    END IF;
    INSERT INTO webhook_events (app_name, user_id, thread_id, event_type, data)
    VALUES (p_app_name, p_user_id, p_thread_id, p_type, p_data || jsonb_strip_nulls(jsonb_build_object(
        'app_name', p_app_name, 'user_id', p_user_id,
        'session_id', (SELECT t.session_id FROM threads AS t WHERE t.id = p_thread_id))))
    RETURNING id INTO v_event;
    PERFORM enqueue_webhook(v_event, e.id) FROM webhook_endpoints AS e
    WHERE e.app_name = p_app_name AND e.disabled_at IS NULL
      AND (e.event_types = '{}' OR p_type = ANY (e.event_types));
END
$$;

-- Reports memories that were stored now; what an import or the archive brings back was stored before.
CREATE OR REPLACE FUNCTION note_new_memories() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM note_webhook_event(f.app_name, f.user_id, f.thread_id, 'memory.created',
                               jsonb_build_object('memory_id', f.id, 'memory_type', f.memory_type))
    FROM fresh AS f
    WHERE f.created_at >= engine_now() AND EXISTS (SELECT FROM webhook_endpoints AS e WHERE e.app_name = f.app_name);
    RETURN NULL;
END
$$;

-- Reports a fact that was stored now, holds another value, has ended or holds again.
CREATE OR REPLACE FUNCTION note_changed_fact() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF TG_OP = 'UPDATE' OR NEW.created_at >= engine_now() THEN
        PERFORM note_webhook_event(NEW.app_name, NEW.user_id, NEW.thread_id, 'fact.changed', jsonb_build_object(
            'fact_id', NEW.id, 'fact_type', NEW.fact_type,
            'change', CASE WHEN TG_OP = 'INSERT' THEN 'created'
                           WHEN NEW.valid_until IS NOT NULL THEN 'ended'
                           WHEN OLD.valid_until IS NOT NULL THEN 'reopened'
                           ELSE 'updated' END));
    END IF;
    RETURN NULL;
END
$$;

-- Reports an erasure. Its report is not reached by itself: the receiver has to erase, too.
CREATE OR REPLACE FUNCTION note_erasure() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM note_webhook_event(NEW.app_name, NEW.user_id, NEW.thread_id, 'erasure.completed', jsonb_strip_nulls(
        jsonb_build_object('erasure_id', NEW.id, 'scope', NEW.scope, 'sequence_nums', NEW.sequence_nums,
                           'target_id', NEW.target_id)));
    RETURN NULL;
END
$$;

-- Reports a consolidation job that ended; and that nothing of its session is left to consolidate.
CREATE OR REPLACE FUNCTION note_ended_job() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    t threads;
BEGIN
    SELECT * INTO t FROM threads WHERE id = NEW.thread_id;
    PERFORM note_webhook_event(t.app_name, t.user_id, t.id, 'job.' || NEW.status, jsonb_build_object(
        'job_id', NEW.id, 'job_type', NEW.job_type, 'attempts', NEW.attempts, 'upto_sequence_num', NEW.upto_seq));
    IF NEW.status = 'completed' AND least(t.fast_upto_seq, t.deep_upto_seq) >= t.last_seq THEN
        PERFORM note_webhook_event(t.app_name, t.user_id, t.id, 'session.consolidated',
                                   jsonb_build_object('job_id', NEW.id, 'upto_sequence_num', t.last_seq));
    END IF;
    RETURN NULL;
END
$$;
