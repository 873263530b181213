-- One row per model. It is rewritten by each call: room on its page keeps every new version in place.
CREATE TABLE call_limits (
    name          text PRIMARY KEY,
    full_at       timestamptz NOT NULL DEFAULT '-infinity', -- when every call that was let through is paid for
    blocked_until timestamptz NOT NULL DEFAULT '-infinity', -- the provider said so
    reason        text
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- One row per pool and model that has ever failed; no row is a closed breaker.
CREATE TABLE call_breakers (
    name             text PRIMARY KEY,
    state            text NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'half_open')),
    failures         integer NOT NULL DEFAULT 0 CHECK (failures >= 0), -- in a row, since first_failure_at
    first_failure_at timestamptz,
    openings         integer NOT NULL DEFAULT 0 CHECK (openings >= 0), -- since it was closed last
    probes           bigint NOT NULL DEFAULT 0,  -- how many calls were ever let through on trial; the last one's number
    next_probe_at    timestamptz,                -- not before; while half open, when its probe counts as lost
    reason           text,
    changed_at       timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
