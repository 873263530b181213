-- Calls of a model: the rate limit that all processes share, and circuit breakers.

-- One row per model. Each call rewrites it: free space on its page keeps the new versions there.
CREATE TABLE call_limits (
    name          text PRIMARY KEY,
    full_at       timestamptz NOT NULL DEFAULT '-infinity', -- when every admitted call is accounted for
    blocked_until timestamptz NOT NULL DEFAULT '-infinity', -- as the provider requested
    reason        text
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- One row per pool and model that has ever failed; without a row the breaker is closed.
CREATE TABLE call_breakers (
    name             text PRIMARY KEY,
    state            text NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'half_open')),
    failures         integer NOT NULL DEFAULT 0 CHECK (failures >= 0), -- in a row, since first_failure_at
    first_failure_at timestamptz,
    openings         integer NOT NULL DEFAULT 0 CHECK (openings >= 0), -- since it was last closed
    probes           bigint NOT NULL DEFAULT 0,  -- how many probes there were; the number of the last one
    next_probe_at    timestamptz,                -- not before then; while half open: when the probe counts as lost
    reason           text,
    changed_at       timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
