-- Calls of a model: a rate limit that all processes share, and a circuit breaker for each pool of workers.
--
-- Everything here reads clock_timestamp(), not engine_now(): a caller that waited for a row's lock must see the time
-- after the wait, whereas now() is the start of its transaction; and a test's fake clock must not open or close a real
-- breaker. Call these functions in transactions of their own: every call of every process needs the same rows.

-- Reserves the next free slot of a limit if it comes within p_wait_seconds_max: at most p_per_second calls of cost 1
-- start in a second, after p_burst at once (the generic cell rate algorithm; slots go to callers in the order of their
-- requests). Returns how long to wait before the call may start; if that is longer than the maximum, is_reserved is
-- false and nothing changed. A rate of 0 means no limit: then only a penalty makes callers wait.
CREATE OR REPLACE FUNCTION reserve_call(p_name text, p_per_second double precision, p_burst integer DEFAULT 1,
                             p_cost integer DEFAULT 1, p_wait_seconds_max double precision DEFAULT 5,
                             OUT wait_seconds double precision, OUT is_reserved boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_cost  interval;
    v_burst interval;
BEGIN
    IF p_per_second < 0 OR p_burst < 1 OR p_cost < 1 THEN
        RAISE EXCEPTION 'a rate of %, a burst of %, a cost of %: the rate must be at least 0, the others at least 1',
            p_per_second, p_burst, p_cost USING ERRCODE = 'HP007';
    END IF;
    IF p_per_second > 0 THEN
        v_cost := make_interval(secs => p_cost / p_per_second);
        v_burst := make_interval(secs => p_burst / p_per_second);
        -- The row's lock is held until the commit, and every caller waits for it: it must not wait for the disk as
        -- well. A crash of the server forgets the last calls, as if there had been none for a moment.
        PERFORM set_config('synchronous_commit', 'off', true);
        LOOP
            UPDATE call_limits AS l SET
                full_at = greatest(l.full_at, l.blocked_until + v_burst, clock_timestamp()) + v_cost
            WHERE l.name = p_name
              AND greatest(l.full_at, l.blocked_until + v_burst, clock_timestamp()) + v_cost - v_burst
                  <= clock_timestamp() + make_interval(secs => p_wait_seconds_max)
            RETURNING extract(epoch FROM l.full_at - v_burst - clock_timestamp()) INTO wait_seconds;
            is_reserved := FOUND;
            EXIT WHEN FOUND;
            SELECT extract(epoch FROM greatest(l.full_at, l.blocked_until + v_burst, clock_timestamp()) + v_cost - v_burst
                                      - clock_timestamp())
            INTO wait_seconds FROM call_limits AS l WHERE l.name = p_name;
            EXIT WHEN FOUND;
            INSERT INTO call_limits (name) VALUES (p_name) ON CONFLICT DO NOTHING;
        END LOOP;
    ELSE
        wait_seconds := blocked_seconds(p_name);
        is_reserved := wait_seconds <= p_wait_seconds_max;
    END IF;
    wait_seconds := greatest(wait_seconds, 0);
END
$$;

-- How long the provider has asked not to be called; 0 if it has not.
CREATE OR REPLACE FUNCTION blocked_seconds(p_name text) RETURNS double precision
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    SELECT coalesce((SELECT greatest(0, extract(epoch FROM l.blocked_until - clock_timestamp()))::double precision
                     FROM call_limits AS l WHERE l.name = p_name AND l.blocked_until > clock_timestamp()), 0)
$$;

-- The provider refused a call: no call starts for that long, and then the burst refills only with time. A shorter
-- penalty never ends a longer one.
CREATE OR REPLACE FUNCTION penalise_limit(p_name text, p_seconds double precision, p_reason text DEFAULT NULL) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    INSERT INTO call_limits AS l (name, blocked_until, reason)
    VALUES (p_name, clock_timestamp() + make_interval(secs => p_seconds), p_reason)
    ON CONFLICT (name) DO UPDATE SET blocked_until = EXCLUDED.blocked_until, reason = EXCLUDED.reason
    WHERE EXCLUDED.blocked_until > l.blocked_until
$$;

-- Requests to call a model: checks the breaker first, then the limit, then the breaker again if the call would be its
-- probe. Returns the wait before the call and `probe`, the number to report with (NULL on a closed breaker); or, in
-- `refusal`, why not: 'limited', 'breaker_open', 'breaker_half_open', with the time after which to request again.
-- `failures` says whether a success needs to be reported.
-- closed -> closed; open, half_open with a lost probe -> half_open
CREATE OR REPLACE FUNCTION admit_call(p_limit text, p_breaker text, p_per_second double precision, p_burst integer,
                           p_wait_seconds_max double precision, p_probe_seconds_max double precision,
                           OUT wait_seconds double precision, OUT refusal text, OUT probe bigint, OUT failures integer)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    b          call_breakers;
    v_reserved boolean;
BEGIN
    SELECT * INTO b FROM call_breakers AS k WHERE k.name = p_breaker;
    failures := coalesce(b.failures, 0);
    IF b.state <> 'closed' AND b.next_probe_at > clock_timestamp() THEN
        refusal := 'breaker_' || b.state;
        wait_seconds := greatest(0, extract(epoch FROM b.next_probe_at - clock_timestamp()));
        RETURN;
    END IF;
    SELECT r.wait_seconds, r.is_reserved INTO wait_seconds, v_reserved
    FROM reserve_call(p_limit, p_per_second, p_burst, 1, p_wait_seconds_max) AS r;
    IF NOT v_reserved THEN
        refusal := 'limited';
    ELSIF b.state <> 'closed' THEN
        UPDATE call_breakers AS k SET
            state = 'half_open', probes = k.probes + 1, changed_at = clock_timestamp(),
            next_probe_at = clock_timestamp() + make_interval(secs => admit_call.wait_seconds + p_probe_seconds_max)
        WHERE k.name = p_breaker AND k.state <> 'closed' AND k.next_probe_at <= clock_timestamp()
        RETURNING k.probes INTO probe;
        -- Another process is the probe, or has just closed the breaker.
        IF NOT FOUND THEN
            SELECT * INTO b FROM call_breakers AS k WHERE k.name = p_breaker;
            IF b.state <> 'closed' THEN
                refusal := 'breaker_' || b.state;
                wait_seconds := greatest(0, extract(epoch FROM b.next_probe_at - clock_timestamp()));
            END IF;
        END IF;
    END IF;
END
$$;

-- The provider replied. A half-open breaker is closed by its probe, not by the reply to an earlier call.
CREATE OR REPLACE FUNCTION report_success(p_breaker text, p_probe bigint DEFAULT NULL) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    UPDATE call_breakers AS b SET
        state = 'closed', failures = 0, first_failure_at = NULL, openings = 0, next_probe_at = NULL,
        reason = CASE b.state WHEN 'closed' THEN b.reason ELSE 'a probe was answered' END,
        changed_at = CASE b.state WHEN 'closed' THEN b.changed_at ELSE clock_timestamp() END
    WHERE b.name = p_breaker
      AND ((b.state = 'closed' AND b.failures > 0) OR (b.state = 'half_open' AND b.probes = p_probe))
$$;

-- The provider did not reply (`p_reason`: how). The last of p_failures_max failures in a row within p_window_seconds
-- opens the breaker for p_open_seconds; each failed probe doubles that time, up to 16 times it.
-- Returns after how many seconds the breaker admits a probe; NULL if it is closed.
CREATE OR REPLACE FUNCTION report_failure(p_breaker text, p_probe bigint, p_reason text, p_failures_max integer,
                               p_window_seconds double precision, p_open_seconds double precision)
RETURNS double precision
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    b     call_breakers;
    v_now timestamptz;
BEGIN
    INSERT INTO call_breakers (name) VALUES (p_breaker) ON CONFLICT DO NOTHING;
    SELECT * INTO b FROM call_breakers AS k WHERE k.name = p_breaker FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    IF b.state = 'closed' THEN
        IF b.failures = 0 OR b.first_failure_at <= v_now - make_interval(secs => p_window_seconds) THEN
            b.failures := 0;
            b.first_failure_at := v_now;
        END IF;
        b.failures := b.failures + 1;
        IF b.failures >= p_failures_max THEN
            b.state := 'open';
            b.reason := b.failures || ' calls in a row failed, the last with ' || p_reason;
        END IF;
    ELSIF b.state = 'half_open' AND b.probes = p_probe THEN
        b.state := 'open';
        b.reason := 'a probe failed with ' || p_reason;
    ELSE
        RETURN greatest(0, extract(epoch FROM b.next_probe_at - v_now));
    END IF;
    IF b.state = 'open' THEN
        b.next_probe_at := v_now + make_interval(secs => p_open_seconds * 2 ^ least(b.openings, 4));
        b.openings := b.openings + 1;
        b.changed_at := v_now;
    END IF;
    UPDATE call_breakers AS k SET
        state = b.state, failures = b.failures, first_failure_at = b.first_failure_at, openings = b.openings,
        next_probe_at = b.next_probe_at, reason = b.reason, changed_at = b.changed_at
    WHERE k.name = p_breaker;
    RETURN CASE WHEN b.state <> 'closed' THEN extract(epoch FROM b.next_probe_at - v_now) END;
END
$$;

-- A probe was cancelled before its outcome was known: the next one may start at once.
CREATE OR REPLACE FUNCTION release_probe(p_breaker text, p_probe bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    UPDATE call_breakers SET state = 'open', next_probe_at = clock_timestamp(), reason = 'a probe was cancelled'
    WHERE name = p_breaker AND state = 'half_open' AND probes = p_probe
$$;

-- What `status` and the gauges show: limits of models, not those of tools, which are one for each user.
CREATE OR REPLACE FUNCTION call_limit_states() RETURNS TABLE (name text, blocked_seconds double precision, reason text)
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    SELECT l.name, blocked_seconds(l.name), l.reason FROM call_limits AS l WHERE l.name NOT LIKE 'tool:%' ORDER BY l.name
$$;

CREATE OR REPLACE FUNCTION call_breaker_states()
RETURNS TABLE (name text, state text, reason text, probe_seconds double precision, since_seconds double precision)
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    SELECT b.name, b.state, b.reason,
           greatest(0, extract(epoch FROM b.next_probe_at - clock_timestamp()))::double precision,
           extract(epoch FROM clock_timestamp() - b.changed_at)::double precision
    FROM call_breakers AS b ORDER BY b.name
$$;
