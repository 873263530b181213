-- Webhooks: each event goes to each endpoint that wants it, by a job of its own.
--
-- A delivery that finds its endpoint at its limit of attempts at once is parked: its job ends, and the next attempt that
-- ends starts a new one. So a dead address holds no more than its share of the senders, and nothing polls.

-- Enqueues the delivery of an event to an endpoint, and returns its id.
CREATE OR REPLACE FUNCTION enqueue_webhook(p_event_id uuid, p_endpoint_id uuid) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_id uuid := new_id();
BEGIN
    INSERT INTO webhook_deliveries (id, event_id, endpoint_id, procrastinate_job_id)
    VALUES (v_id, p_event_id, p_endpoint_id, defer_webhook(v_id));
    RETURN v_id;
END
$$;

-- The job that carries a delivery.
CREATE OR REPLACE FUNCTION defer_webhook(p_delivery_id uuid) RETURNS bigint
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    SELECT (procrastinate_defer_jobs_v1(ARRAY[ROW('webhooks', 'deliver_webhook', 0, NULL, NULL,
        jsonb_build_object('delivery_id', p_delivery_id), NULL)::procrastinate_job_to_defer_v1]))[1]
$$;

-- Held by whatever changes which deliveries are being sent, so that the limits hold and no parked one is left behind.
-- After the job's row, before the deliveries.
CREATE OR REPLACE FUNCTION lock_webhooks() RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$ SELECT pg_advisory_xact_lock(hashtextextended('webhooks of ' || current_schema(), 0)) $$;

-- How many attempts at once an endpoint may have: one while it does not answer.
CREATE OR REPLACE FUNCTION webhook_share(p_failures_in_row integer, p_limit integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_failures_in_row >= 3 THEN 1 ELSE p_limit END;

-- Starts the jobs of parked deliveries, the oldest of each endpoint, as far as the limits allow. The caller holds
-- lock_webhooks. Returns how many.
CREATE OR REPLACE FUNCTION unpark_webhooks(p_endpoint_limit integer, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_free  integer := p_limit - (SELECT count(*) FROM webhook_deliveries WHERE status = 'sending');
    v_count integer;
BEGIN
    IF v_free <= 0 OR NOT EXISTS (SELECT FROM webhook_deliveries WHERE status = 'parked') THEN
        RETURN 0;
    END IF;
    WITH started AS (
        SELECT d.id
        FROM (SELECT DISTINCT p.endpoint_id FROM webhook_deliveries AS p WHERE p.status = 'parked') AS w
        JOIN webhook_endpoints AS e ON e.id = w.endpoint_id
        CROSS JOIN LATERAL (
            SELECT p.id FROM webhook_deliveries AS p
            WHERE p.status = 'parked' AND p.endpoint_id = e.id ORDER BY p.id
            LIMIT greatest(0, webhook_share(e.failures_in_row, p_endpoint_limit) - (
                SELECT count(*) FROM webhook_deliveries AS s
                WHERE s.status = 'sending' AND s.endpoint_id = e.id))) AS d
        ORDER BY d.id LIMIT v_free
    )
    UPDATE webhook_deliveries AS d SET status = 'waiting', procrastinate_job_id = defer_webhook(d.id)
    FROM started AS s WHERE d.id = s.id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

-- Begins an attempt at a delivery for the attempt at its job: what to send, to where, and what to sign it with, at the
-- database's time. No row, and the job is finished: the delivery was parked or is over. Error: HP010.
CREATE OR REPLACE FUNCTION begin_webhook(
    p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer,
    p_delivery_id uuid, p_endpoint_limit integer, p_limit integer)
RETURNS TABLE (endpoint_id uuid, url text, secrets bytea[], event_id uuid, event_type text, created_at timestamptz,
               data jsonb, attempt integer, sent_at bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    d webhook_deliveries;
    e webhook_endpoints;
BEGIN
    PERFORM own_job(p_procrastinate_job_id, p_worker_id, p_attempts);
    PERFORM lock_webhooks();
    SELECT * INTO d FROM webhook_deliveries WHERE id = p_delivery_id FOR NO KEY UPDATE;
    -- It is over, was erased, or another job carries it.
    IF d.id IS NULL OR d.status NOT IN ('waiting', 'sending') OR d.procrastinate_job_id <> p_procrastinate_job_id THEN
        PERFORM move_job(p_procrastinate_job_id, 'succeeded', true);
        -- It may have been started in another's place.
        PERFORM unpark_webhooks(p_endpoint_limit, p_limit);
        RETURN;
    END IF;
    SELECT * INTO STRICT e FROM webhook_endpoints WHERE id = d.endpoint_id;
    IF e.disabled_at IS NOT NULL THEN
        UPDATE webhook_deliveries SET status = 'cancelled', error_code = 'endpoint_disabled', next_attempt_at = NULL,
                                      ended_at = clock_timestamp()
        WHERE id = d.id OR endpoint_id = e.id AND status = 'parked';
        PERFORM move_job(p_procrastinate_job_id, 'succeeded', true);
        PERFORM unpark_webhooks(p_endpoint_limit, p_limit);
        RETURN;
    ELSIF d.status = 'waiting' AND (
        (SELECT count(*) FROM webhook_deliveries WHERE status = 'sending') >= p_limit
        OR (SELECT count(*) FROM webhook_deliveries AS s WHERE s.status = 'sending' AND s.endpoint_id = e.id)
           >= webhook_share(e.failures_in_row, p_endpoint_limit)) THEN
        UPDATE webhook_deliveries SET status = 'parked' WHERE id = d.id;
        PERFORM move_job(p_procrastinate_job_id, 'succeeded', true);
        RETURN;
    END IF;
    UPDATE webhook_deliveries SET status = 'sending', attempts = attempts + 1, last_attempt_at = clock_timestamp()
    WHERE id = d.id;
    RETURN QUERY
        SELECT e.id, e.url::text,
               ARRAY(SELECT s.secret FROM webhook_secrets AS s
                     WHERE s.endpoint_id = e.id AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
                     ORDER BY s.created_at DESC, s.id DESC),
               v.id, v.event_type, v.created_at, v.data, d.attempts + 1, floor(extract(epoch FROM clock_timestamp()))::bigint
        FROM webhook_events AS v WHERE v.id = d.event_id;
END
$$;

-- Ends an attempt at a delivery together with the attempt at its job, and starts what waited for it.
--
--   p_outcome 'delivered'   it is over
--   'retried'               another attempt, p_delay_seconds from now
--   'failed'                no further attempt
--   'gone'                  as failed, and the endpoint is disabled: nothing more is sent to it
--
-- Errors: HP010, and nothing was recorded.
CREATE OR REPLACE FUNCTION end_webhook(
    p_procrastinate_job_id bigint, p_worker_id bigint, p_attempts integer,
    p_delivery_id uuid, p_outcome text, p_response_status integer, p_error_code text, p_delay_seconds double precision,
    p_endpoint_limit integer, p_limit integer)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_next     timestamptz := CASE p_outcome WHEN 'retried' THEN clock_timestamp() + make_interval(secs => p_delay_seconds) END;
    v_endpoint uuid;
BEGIN
    PERFORM own_job(p_procrastinate_job_id, p_worker_id, p_attempts);
    PERFORM lock_webhooks();
    UPDATE webhook_deliveries SET
        status          = CASE p_outcome WHEN 'retried' THEN 'waiting' WHEN 'delivered' THEN 'delivered' ELSE 'failed' END,
        next_attempt_at = v_next,
        response_status = p_response_status,
        error_code      = p_error_code,
        ended_at        = CASE WHEN p_outcome <> 'retried' THEN clock_timestamp() END
    WHERE id = p_delivery_id RETURNING endpoint_id INTO v_endpoint;
    IF v_endpoint IS NULL OR p_outcome <> 'retried' THEN
        PERFORM move_job(p_procrastinate_job_id, 'succeeded', true);
    ELSE
        -- Attempts of a delivery follow its own schedule: they do not count as attempts at the job.
        UPDATE procrastinate_jobs SET args = args || jsonb_build_object('tried', p_attempts + 1)
        WHERE id = p_procrastinate_job_id;
        PERFORM move_job(p_procrastinate_job_id, 'todo', true, v_next);
    END IF;
    UPDATE webhook_endpoints SET
        failures_in_row = CASE p_outcome WHEN 'delivered' THEN 0 ELSE least(failures_in_row, 1000000) + 1 END,
        disabled_at     = CASE p_outcome WHEN 'gone' THEN coalesce(disabled_at, engine_now()) ELSE disabled_at END,
        disabled_reason = CASE p_outcome WHEN 'gone' THEN coalesce(disabled_reason, 'it answered with 410 Gone')
                                         ELSE disabled_reason END
    WHERE id = v_endpoint AND (p_outcome <> 'delivered' OR failures_in_row > 0);
    PERFORM unpark_webhooks(p_endpoint_limit, p_limit);
END
$$;

-- Gives deliveries a new job whose job was lost or has failed, and starts parked ones that nothing else would. Returns
-- how many.
CREATE OR REPLACE FUNCTION reconcile_webhooks(p_endpoint_limit integer, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    PERFORM lock_webhooks();
    UPDATE webhook_deliveries AS d SET status = 'waiting', procrastinate_job_id = defer_webhook(d.id)
    WHERE d.status IN ('waiting', 'sending')
      AND NOT EXISTS (SELECT FROM procrastinate_jobs AS j
                      WHERE j.id = d.procrastinate_job_id AND j.status IN ('todo', 'doing'));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count + unpark_webhooks(p_endpoint_limit, p_limit);
END
$$;

-- Deletes at most p_limit events, with their deliveries, p_keep after they happened. Returns how many it deleted.
CREATE OR REPLACE FUNCTION prune_webhooks(p_keep interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_count integer;
BEGIN
    DELETE FROM webhook_events AS v WHERE v.id IN (
        SELECT o.id FROM webhook_events AS o WHERE o.created_at <= engine_now() - p_keep
        ORDER BY o.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

-- Enqueues the deliveries of an app's stored events to an endpoint again: those from p_since up to but not including
-- p_until, or one. Events that are not sent to the endpoint are left out, unless one is named. Returns how many.
-- Errors: HP070 no such endpoint or event; HP007 the endpoint is disabled, or the range has over p_limit events.
CREATE OR REPLACE FUNCTION replay_webhooks(
    p_app_name text, p_endpoint_id uuid, p_event_id uuid, p_since timestamptz, p_until timestamptz, p_limit integer)
RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e        webhook_endpoints := open_webhook(p_app_name, p_endpoint_id);
    v_events uuid[];
BEGIN
    IF p_event_id IS NOT NULL THEN
        SELECT array_agg(v.id) INTO v_events FROM webhook_events AS v WHERE v.id = p_event_id AND v.app_name = p_app_name;
        IF v_events IS NULL THEN
            RAISE EXCEPTION 'app % has no webhook event %', quote_literal(p_app_name), p_event_id USING ERRCODE = 'HP070';
        END IF;
    ELSE
        SELECT array_agg(f.id) INTO v_events
        FROM (SELECT v.id FROM webhook_events AS v
              WHERE v.app_name = p_app_name AND v.created_at >= p_since AND v.created_at < p_until
                AND (e.event_types = '{}' OR v.event_type = ANY (e.event_types)) AND v.event_type <> 'webhook.ping'
              ORDER BY v.created_at, v.id LIMIT p_limit + 1) AS f;
        IF cardinality(v_events) > p_limit THEN
            RAISE EXCEPTION 'the range has more than % events, and nothing was replayed: choose a shorter one', p_limit
                USING ERRCODE = 'HP007';
        END IF;
    END IF;
    PERFORM enqueue_webhook(i, p_endpoint_id) FROM unnest(v_events) AS i;
    RETURN coalesce(cardinality(v_events), 0);
END
$$;

-- An endpoint to which events are sent. Errors: HP070 no such endpoint; HP007 it is disabled.
CREATE OR REPLACE FUNCTION open_webhook(p_app_name text, p_endpoint_id uuid) RETURNS webhook_endpoints
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
DECLARE
    e webhook_endpoints;
BEGIN
    SELECT * INTO e FROM webhook_endpoints WHERE id = p_endpoint_id AND app_name = p_app_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'app % has no webhook endpoint %', quote_literal(p_app_name), p_endpoint_id USING ERRCODE = 'HP070';
    ELSIF e.disabled_at IS NOT NULL THEN
        RAISE EXCEPTION 'webhook endpoint % is disabled (%): enable it first', p_endpoint_id, e.disabled_reason
            USING ERRCODE = 'HP007';
    END IF;
    RETURN e;
END
$$;

-- Sends a test event to one endpoint, whatever its filter. Returns the delivery. Errors: as open_webhook.
CREATE OR REPLACE FUNCTION ping_webhook(p_app_name text, p_endpoint_id uuid) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    e       webhook_endpoints := open_webhook(p_app_name, p_endpoint_id);
    v_event uuid;
BEGIN
    INSERT INTO webhook_events (app_name, event_type, data)
    VALUES (p_app_name, 'webhook.ping', jsonb_build_object('app_name', p_app_name, 'endpoint_id', e.id))
    RETURNING id INTO v_event;
    RETURN enqueue_webhook(v_event, e.id);
END
$$;

-- How long the delivery that is overdue for longest has waited, in seconds; 0 if none is.
CREATE OR REPLACE FUNCTION oldest_webhook_seconds() RETURNS double precision
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(d.next_attempt_at)), 0))::double precision
    FROM webhook_deliveries AS d WHERE d.status IN ('waiting', 'parked', 'sending')
$$;

-- Gives an endpoint a new secret; the former ones sign beside it for p_seconds more. Returns how many sign now; NULL if
-- there is no such endpoint. Its row is locked first: of two rotations at once, the later one retires both others.
CREATE OR REPLACE FUNCTION rotate_webhook_secret(p_app_name text, p_endpoint_id uuid, p_secret bytea, p_seconds double precision)
RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_now timestamptz;
BEGIN
    PERFORM FROM webhook_endpoints WHERE id = p_endpoint_id AND app_name = p_app_name FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    v_now := clock_timestamp();
    DELETE FROM webhook_secrets WHERE endpoint_id = p_endpoint_id AND expires_at <= v_now;
    UPDATE webhook_secrets SET expires_at = least(expires_at, v_now + make_interval(secs => p_seconds))
    WHERE endpoint_id = p_endpoint_id;
    INSERT INTO webhook_secrets (endpoint_id, secret) VALUES (p_endpoint_id, p_secret);
    RETURN (SELECT count(*) FROM webhook_secrets WHERE endpoint_id = p_endpoint_id
                                                   AND (expires_at IS NULL OR expires_at > clock_timestamp()));
END
$$;

-- Removes an endpoint with its secrets and deliveries; events that no delivery needs stay until they are pruned.
-- Returns whether there was one.
CREATE OR REPLACE FUNCTION remove_webhook(p_app_name text, p_endpoint_id uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    -- An attempt that ends locks its delivery before its endpoint.
    PERFORM lock_webhooks();
    DELETE FROM webhook_endpoints WHERE id = p_endpoint_id AND app_name = p_app_name;
    RETURN FOUND;
END
$$;
