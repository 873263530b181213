-- What every table needs: ids, the clock, documents for text search, policies.
--
-- Functions that columns and indexes are computed with are made here, not in functions/: stored values depend on them,
-- so they change only together with those, by a migration.

CREATE TABLE engine_settings (
    name  text PRIMARY KEY,
    value jsonb NOT NULL
);
COMMENT ON TABLE engine_settings IS 'Facts about this database that only its owner sets, such as test_clock.';

-- Policies: one row per app; the row '*' applies to every app without its own.
CREATE TABLE app_policies (
    app_name            varchar(255) PRIMARY KEY,
    consolidate         boolean NOT NULL DEFAULT true,
    fast_events         integer NOT NULL DEFAULT 20      CHECK (fast_events > 0),
    fast_tokens         integer NOT NULL DEFAULT 1500    CHECK (fast_tokens > 0),
    fast_idle_seconds   integer NOT NULL DEFAULT 120     CHECK (fast_idle_seconds > 0),
    deep_tokens         integer NOT NULL DEFAULT 8000    CHECK (deep_tokens > 0),
    deep_idle_seconds   integer NOT NULL DEFAULT 1800    CHECK (deep_idle_seconds > 0),
    max_state_bytes     integer NOT NULL DEFAULT 1048576 CHECK (max_state_bytes > 0),
    max_event_bytes     integer NOT NULL DEFAULT 8388608 CHECK (max_event_bytes > 0),
    max_artifact_bytes  integer NOT NULL DEFAULT 67108864 CHECK (max_artifact_bytes BETWEEN 1 AND 536870912),
    snapshot_events     integer NOT NULL DEFAULT 100     CHECK (snapshot_events > 0),
    retention_curve     text    NOT NULL DEFAULT 'strength' CHECK (retention_curve IN ('strength', 'classic')),
    decay_rate          double precision NOT NULL DEFAULT 0.1 CHECK (decay_rate >= 0 AND decay_rate <= 100),
    cleanup_threshold   double precision NOT NULL DEFAULT 0.1 CHECK (cleanup_threshold BETWEEN 0 AND 1),
    min_age_days        double precision NOT NULL DEFAULT 7   CHECK (min_age_days >= 0 AND min_age_days <= 36500),
    archive_days        double precision NOT NULL DEFAULT 90  CHECK (archive_days >= 0 AND archive_days <= 36500),
    updated_at          timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN app_policies.consolidate IS 'Whether appends, idle timers and ends of sessions enqueue jobs; explicit requests do always.';
COMMENT ON COLUMN app_policies.fast_events IS 'fast_replay is enqueued after this many new events.';
COMMENT ON COLUMN app_policies.fast_tokens IS 'fast_replay is enqueued after this many new tokens of text.';
COMMENT ON COLUMN app_policies.deep_tokens IS 'deep_reflection is enqueued after this many new tokens of text.';
COMMENT ON COLUMN app_policies.archive_days IS 'How long an archived memory can be restored before it is purged.';
COMMENT ON COLUMN app_policies.snapshot_events IS
    'A snapshot of a session''s state is taken when it changed and this many events were appended since the last.';

INSERT INTO app_policies (app_name) VALUES ('*');

-- A version 7 UUID (RFC 9562, section 5.7 and method 3 of 6.2): 48 bits of Unix milliseconds, 12 bits of the
-- millisecond's fraction, 62 random bits. Ids of one session sort in the order of their creation.
CREATE FUNCTION new_id() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (overlay(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 4096000)::bigint), 15, '0') PLACING '7' FROM 13 FOR 0)
        || substr(gen_random_uuid()::text, 20))::uuid;

-- The time that a test set with hippocampus.fake_time. It is the real time unless the caller owns the database and
-- engine_settings has test_clock.
CREATE FUNCTION fake_time() RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
BEGIN
    IF EXISTS (SELECT FROM engine_settings WHERE name = 'test_clock' AND value = 'true')
       AND session_user = (SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database())
    THEN
        RETURN current_setting('hippocampus.fake_time')::timestamptz;
    END IF;
    RETURN now();
END
$$;

-- The clock that every function here reads.
CREATE FUNCTION engine_now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN coalesce(current_setting('hippocampus.fake_time', true), '') = '' THEN now() ELSE fake_time() END;

-- Chinese, Japanese and Korean text has no spaces to split at: each character and each pair of neighbours is a term.
CREATE FUNCTION is_cjk(letter text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ascii(letter) BETWEEN 12352 AND 12543    -- Hiragana, Katakana
    OR ascii(letter) BETWEEN 13312 AND 19903    -- Han, extension A
    OR ascii(letter) BETWEEN 19968 AND 40959    -- Han
    OR ascii(letter) BETWEEN 44032 AND 55215    -- Hangul
    OR ascii(letter) BETWEEN 63744 AND 64255    -- Han, compatibility
    OR ascii(letter) BETWEEN 131072 AND 205743; -- Han, extensions B to H

CREATE FUNCTION cjk_terms(body text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(string_agg(
               letter || ':' || least(place, 16383)
               || CASE WHEN is_cjk(following) THEN ' ' || letter || following || ':' || least(place, 16383) ELSE '' END,
               ' '), '')::tsvector
    FROM (
        SELECT letter, place, lead(letter, 1, ' ') OVER (ORDER BY place) AS following
        FROM unnest(string_to_array(body, NULL)) WITH ORDINALITY AS letters (letter, place)
    ) AS pairs
    WHERE is_cjk(letter)
$$;

-- The searchable terms of a text: English stems, CJK characters and pairs. Only a prefix is indexed, since a tsvector
-- holds at most 1 MB; the text itself is stored whole.
CREATE FUNCTION search_document(body text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT CASE
        WHEN octet_length(body) = char_length(body) THEN to_tsvector('english', left(body, 30000))
        ELSE (
            SELECT to_tsvector('english', regexp_replace(n.text,
                       '[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af]+', ' ', 'g'))
                   || cjk_terms(left(n.text, 10000))
            -- An accented letter may be one character or two.
            FROM (SELECT CASE WHEN s IS NFC NORMALIZED THEN s ELSE normalize(s, NFC) END
                  FROM left(body, 30000) AS s) AS n (text))
    END
$$;
