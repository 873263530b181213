-- Retention: strength is computed when it is read, and what became too weak is archived in small batches.
--
-- Functions of a single expression have no pinned search_path: a function with a SET clause is never inlined, and costs
-- ten times more per row. Their bodies follow RETURN, so every name in them was resolved when they were created.

-- A memory's score between 0 and 1, by one of two curves:
--   strength: initial_score * exp(-decay_rate * days / (1 + ln(1 + access_count)))
--   classic:  min(1, exp(-decay_rate * days) * (1 + ln(1 + access_count)) / 5)
-- days are those since the last access, with their fraction. Defined for every input: an unknown or future access
-- counts as one just now, a missing or negative count as 0, an unknown rate as 0.1, a negative one as 0.
-- The bounds 1e-100, 1e6 and 200 prevent underflow and overflow, which are errors in PostgreSQL and would end a whole
-- clean-up; exp(-200) is 0 for every purpose.
-- tstzrange_subdiff: the seconds between two times; date_part would look up its unit's name for each row.
-- An argument that may be costly (p_now) appears only once in the body; otherwise it could not be inlined.
CREATE OR REPLACE FUNCTION retention_score(
    p_curve text, p_initial_score double precision, p_access_count integer, p_last_accessed_at timestamptz,
    p_decay_rate double precision, p_now timestamptz)
RETURNS double precision
LANGUAGE sql STABLE PARALLEL SAFE
RETURN least(1,
    CASE p_curve WHEN 'classic' THEN (1 + ln(1::double precision + greatest(p_access_count, 0))) / 5
                 ELSE greatest(coalesce(p_initial_score, 0.5), 1e-100) END
    * exp(-least(200,
        least(greatest(coalesce(p_decay_rate, 0.1), 1e-100), 1e6)
        * greatest(tstzrange_subdiff(p_now, p_last_accessed_at), 0) / 86400
        / CASE p_curve WHEN 'classic' THEN 1
                       ELSE 1 + ln(1::double precision + greatest(p_access_count, 0)) END)));

-- A memory's score under a policy. Over many rows, put the policy and the clock in FROM:
--   SELECT m.id, retention_score(m, p, n) FROM memories AS m, app_policy('shop') AS p, engine_now() AS n
CREATE OR REPLACE FUNCTION retention_score(m memories, p app_policies, p_now timestamptz DEFAULT engine_now())
RETURNS double precision
LANGUAGE sql STABLE PARALLEL SAFE
-- An unknown access counts as one just now: what is pinned never decays.
RETURN retention_score(p.retention_curve, m.initial_score, m.access_count,
                       CASE WHEN NOT m.pinned THEN m.last_accessed_at END, p.decay_rate, p_now);

-- The classic score: 0.2 for a fresh memory without accesses, 1 for a fresh one after 54 accesses.
CREATE OR REPLACE FUNCTION calculate_retention_score(
    p_access_count integer, p_last_accessed_at timestamptz, p_decay_rate double precision DEFAULT 0.1)
RETURNS double precision
LANGUAGE sql STABLE PARALLEL SAFE
RETURN retention_score('classic', NULL, p_access_count, p_last_accessed_at, p_decay_rate, engine_now());

-- The forgetting curve with a memory's own strength: importance sets where it starts, each access restarts it and makes
-- it flatter.
CREATE OR REPLACE FUNCTION memory_strength(
    p_initial_score double precision, p_access_count integer, p_last_accessed_at timestamptz,
    p_decay_rate double precision DEFAULT 0.1)
RETURNS double precision
LANGUAGE sql STABLE PARALLEL SAFE
RETURN retention_score('strength', p_initial_score, p_access_count, p_last_accessed_at, p_decay_rate, engine_now());

-- Whether a clean-up archives a memory of this score: it is below the threshold, not pinned, and old enough.
CREATE OR REPLACE FUNCTION is_weak(
    p_score double precision, p_threshold double precision, p_pinned boolean, p_created_at timestamptz,
    p_min_age_days double precision, p_now timestamptz)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN p_score < p_threshold AND NOT p_pinned
    AND p_created_at <= p_now - make_interval(secs => 86400 * p_min_age_days);

-- Checks the values that a caller of the clean-up sets in place of the apps' policies; NULL: each app's own.
-- Errors: HP007.
CREATE OR REPLACE FUNCTION check_cleanup_arguments(
    p_threshold double precision, p_min_age_days double precision, p_decay_rate double precision, p_limit integer)
RETURNS void
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT p_threshold BETWEEN 0 AND 1 THEN
        RAISE EXCEPTION 'threshold must be from 0 to 1, not %', p_threshold USING ERRCODE = 'HP007';
    ELSIF NOT p_min_age_days BETWEEN 0 AND 36500 THEN
        RAISE EXCEPTION 'min_age_days must be from 0 to 36500, not %', p_min_age_days USING ERRCODE = 'HP007';
    ELSIF NOT p_decay_rate BETWEEN 0 AND 100 THEN
        RAISE EXCEPTION 'decay_rate must be from 0 to 100, not %', p_decay_rate USING ERRCODE = 'HP007';
    ELSIF p_limit IS NULL OR NOT p_limit BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'limit must be from 1 to 1000, not %', coalesce(p_limit::text, 'NULL') USING ERRCODE = 'HP007';
    ELSIF NOT EXISTS (SELECT FROM app_policies WHERE app_name = '*') THEN
        RAISE EXCEPTION 'app_policies has no row ''*'', the policy of every app without its own: insert it'
            USING ERRCODE = 'HP007';
    END IF;
END
$$;

-- The dry run: the memories that a clean-up would archive now, and why, in the order of their ids.
-- At most p_limit rows; the next page starts after the last id of this one.
CREATE OR REPLACE FUNCTION weak_memories(
    p_app_name text DEFAULT NULL, p_limit integer DEFAULT 1000,
    p_after uuid DEFAULT '00000000-0000-0000-0000-000000000000', p_threshold double precision DEFAULT NULL,
    p_min_age_days double precision DEFAULT NULL, p_decay_rate double precision DEFAULT NULL)
RETURNS TABLE (id uuid, app_name varchar, user_id varchar, memory_type varchar, content text, score double precision,
               threshold double precision, curve text, decay_rate double precision, age_days double precision,
               idle_days double precision, access_count integer, initial_score double precision,
               created_at timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := engine_now();
BEGIN
    PERFORM check_cleanup_arguments(p_threshold, p_min_age_days, p_decay_rate, p_limit);
    RETURN QUERY
        SELECT m.id, m.app_name, m.user_id, m.memory_type, m.content, s.score, s.threshold, s.curve, s.decay_rate,
               (date_part('epoch', v_now) - date_part('epoch', m.created_at)) / 86400,
               (date_part('epoch', v_now) - date_part('epoch', m.last_accessed_at)) / 86400,
               m.access_count, m.initial_score, m.created_at
        FROM memories AS m
        JOIN app_policies AS rest ON rest.app_name = '*'
        LEFT JOIN app_policies AS own ON own.app_name = m.app_name
        CROSS JOIN LATERAL (SELECT
            retention_score(coalesce(own.retention_curve, rest.retention_curve), m.initial_score, m.access_count,
                            CASE WHEN NOT m.pinned THEN m.last_accessed_at END,
                            coalesce(p_decay_rate, own.decay_rate, rest.decay_rate), v_now),
            coalesce(p_threshold, own.cleanup_threshold, rest.cleanup_threshold),
            coalesce(own.retention_curve, rest.retention_curve),
            coalesce(p_decay_rate, own.decay_rate, rest.decay_rate)
        ) AS s (score, threshold, curve, decay_rate)
        WHERE m.id > p_after AND (p_app_name IS NULL OR m.app_name = p_app_name)
          AND is_weak(s.score, s.threshold, m.pinned, m.created_at,
                      coalesce(p_min_age_days, own.min_age_days, rest.min_age_days), v_now)
        ORDER BY m.id LIMIT p_limit;
END
$$;

-- One batch of the clean-up: archives, then deletes, at most p_limit memories that are too weak and old enough under
-- their own app's policy. It reads at most 20 memories for each that it may archive, and at most 10,000, in the order
-- of their ids after p_after, so that each call is short and a whole run reads each memory once; call it again with
-- p_after => last_id until that is NULL.
-- A locked memory (by an access, or another clean-up) is skipped; one that was accessed in the meantime is judged by
-- its new state. last_id: where to continue, NULL at the end. by_app: how many of each app, as {"shop": 3}. Errors:
-- HP007.
CREATE OR REPLACE FUNCTION archive_weak_memories(
    p_app_name text DEFAULT NULL, p_limit integer DEFAULT 500,
    p_after uuid DEFAULT '00000000-0000-0000-0000-000000000000', p_threshold double precision DEFAULT NULL,
    p_min_age_days double precision DEFAULT NULL, p_decay_rate double precision DEFAULT NULL,
    OUT last_id uuid, OUT archived integer, OUT by_app jsonb)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_now     timestamptz := engine_now();
    v_upto    uuid;
    v_ids     uuid[];
    v_scores  double precision[];
    v_reasons text[];
BEGIN
    PERFORM check_cleanup_arguments(p_threshold, p_min_age_days, p_decay_rate, p_limit);
    SELECT m.id INTO v_upto FROM memories AS m WHERE m.id > p_after ORDER BY m.id
    OFFSET least(20 * p_limit, 10000) - 1 LIMIT 1;

    SELECT coalesce(array_agg(w.id ORDER BY w.id), '{}'), array_agg(w.score ORDER BY w.id),
           array_agg(w.reason ORDER BY w.id)
    INTO v_ids, v_scores, v_reasons
    FROM (
        SELECT m.id, s.score,
               coalesce(own.retention_curve, rest.retention_curve) || ' < ' || s.threshold || ' at rate '
               || coalesce(p_decay_rate, own.decay_rate, rest.decay_rate) AS reason
        FROM memories AS m
        JOIN app_policies AS rest ON rest.app_name = '*'
        LEFT JOIN app_policies AS own ON own.app_name = m.app_name
        CROSS JOIN LATERAL (SELECT
            retention_score(coalesce(own.retention_curve, rest.retention_curve), m.initial_score, m.access_count,
                            CASE WHEN NOT m.pinned THEN m.last_accessed_at END,
                            coalesce(p_decay_rate, own.decay_rate, rest.decay_rate), v_now),
            coalesce(p_threshold, own.cleanup_threshold, rest.cleanup_threshold)
        ) AS s (score, threshold)
        WHERE m.id > p_after AND m.id <= coalesce(v_upto, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
          AND (p_app_name IS NULL OR m.app_name = p_app_name)
          AND is_weak(s.score, s.threshold, m.pinned, m.created_at,
                      coalesce(p_min_age_days, own.min_age_days, rest.min_age_days), v_now)
        ORDER BY m.id LIMIT p_limit
        FOR UPDATE OF m SKIP LOCKED
    ) AS w;
    archived := cardinality(v_ids);
    last_id := CASE WHEN archived = p_limit THEN v_ids[archived] ELSE v_upto END;

    -- A memory that was restored by hand may still be in the archive: the later state is kept.
    DELETE FROM memories_archive AS a WHERE a.id = ANY (v_ids);
    INSERT INTO memories_archive (
        id, thread_id, user_id, app_name, memory_type, content, embedding, embedding_model, metadata, initial_score, pinned,
        access_count, last_accessed_at, from_seq, upto_seq, source_seqs, job_id, prompt_hash, model, occurred_at,
        created_at, archive_reason, score, archived_at)
    SELECT m.id, m.thread_id, m.user_id, m.app_name, m.memory_type, m.content, m.embedding, m.embedding_model,
           m.metadata, m.initial_score, m.pinned, m.access_count, m.last_accessed_at, m.from_seq, m.upto_seq,
           m.source_seqs, m.job_id, m.prompt_hash, m.model, m.occurred_at, m.created_at, w.reason, w.score, v_now
    FROM unnest(v_ids, v_scores, v_reasons) AS w (id, score, reason) JOIN memories AS m ON m.id = w.id;
    WITH gone AS (DELETE FROM memories AS m WHERE m.id = ANY (v_ids) RETURNING m.app_name)
    SELECT coalesce(jsonb_object_agg(g.app_name, g.memories), '{}') INTO by_app
    FROM (SELECT gone.app_name, count(*) AS memories FROM gone GROUP BY gone.app_name) AS g;
END
$$;

-- For psql and cron: one clean-up of up to 1,000 memories in the caller's transaction. Returns how many were archived;
-- call it again, each time in a transaction of its own, until it returns 0. An argument that is NULL leaves the value
-- to each app's policy (by default 0.1 and 7 days); one that is given applies to every app. The curve and its rate are
-- always the app's own.
CREATE OR REPLACE FUNCTION cleanup_low_value_memories(
    p_threshold double precision DEFAULT NULL, p_min_age_days integer DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_after   uuid := '00000000-0000-0000-0000-000000000000';
    v_batch   integer;
    v_removed integer := 0;
BEGIN
    WHILE v_after IS NOT NULL AND v_removed < 1000 LOOP
        SELECT b.last_id, b.archived INTO v_after, v_batch
        FROM archive_weak_memories(NULL, 1000 - v_removed, v_after, p_threshold, p_min_age_days) AS b;
        v_removed := v_removed + v_batch;
    END LOOP;
    RETURN v_removed;
END
$$;

-- How many memories there are, how strong, and how many a clean-up would archive now: one snapshot.
-- high from 0.7, medium from 0.3, low below. average is NULL if there are none. Errors: HP007.
CREATE OR REPLACE FUNCTION retention_stats(
    p_app_name text DEFAULT NULL, p_user_id text DEFAULT NULL, p_threshold double precision DEFAULT NULL,
    p_min_age_days double precision DEFAULT NULL, p_decay_rate double precision DEFAULT NULL)
RETURNS TABLE (app_name varchar, total bigint, high bigint, medium bigint, low bigint, score_sum double precision,
               weak bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := engine_now();
BEGIN
    PERFORM check_cleanup_arguments(p_threshold, p_min_age_days, p_decay_rate, 1);
    RETURN QUERY
        SELECT m.app_name, count(*), count(*) FILTER (WHERE s.score >= 0.7),
               count(*) FILTER (WHERE s.score >= 0.3 AND s.score < 0.7), count(*) FILTER (WHERE s.score < 0.3),
               sum(s.score),
               count(*) FILTER (WHERE is_weak(
                   s.score, coalesce(p_threshold, own.cleanup_threshold, rest.cleanup_threshold), m.pinned,
                   m.created_at, coalesce(p_min_age_days, own.min_age_days, rest.min_age_days), v_now))
        FROM memories AS m
        JOIN app_policies AS rest ON rest.app_name = '*'
        LEFT JOIN app_policies AS own ON own.app_name = m.app_name
        CROSS JOIN LATERAL (SELECT
            retention_score(coalesce(own.retention_curve, rest.retention_curve), m.initial_score, m.access_count,
                            CASE WHEN NOT m.pinned THEN m.last_accessed_at END,
                            coalesce(p_decay_rate, own.decay_rate, rest.decay_rate), v_now)
        ) AS s (score)
        WHERE (p_app_name IS NULL OR m.app_name = p_app_name) AND (p_user_id IS NULL OR m.user_id = p_user_id)
        GROUP BY m.app_name;
END
$$;

-- Restores archived memories of a user, as if they were accessed now: those of p_ids, or if NULL the first p_limit.
-- One whose slice was derived again since is skipped. Returns the ids.
CREATE OR REPLACE FUNCTION restore_memories(p_app_name text, p_user_id text, p_ids uuid[] DEFAULT NULL, p_limit integer DEFAULT 1000)
RETURNS SETOF uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 OR cardinality(p_ids) > 1000 THEN
        RAISE EXCEPTION 'at most 1000 memories are restored in one call' USING ERRCODE = 'HP007';
    END IF;
    RETURN QUERY
        WITH wanted AS (
            SELECT a.* FROM memories_archive AS a
            WHERE a.app_name = p_app_name AND a.user_id = p_user_id AND (a.id = ANY (p_ids) OR p_ids IS NULL AND NOT is_by_hand(a.archive_reason))
              AND NOT EXISTS (
                  SELECT FROM memories AS m
                  WHERE m.id = a.id OR (m.thread_id = a.thread_id AND m.memory_type = a.memory_type
                                        AND m.from_seq = a.from_seq AND a.memory_type IN ('episodic', 'summary')))
            ORDER BY a.id LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), back AS (
            INSERT INTO memories (
                id, thread_id, user_id, app_name, memory_type, content, embedding, embedding_model, metadata,
                initial_score, pinned, access_count, last_accessed_at, from_seq, upto_seq, source_seqs, job_id,
                prompt_hash, model, occurred_at, created_at)
            SELECT w.id, t.id, w.user_id, w.app_name, w.memory_type, w.content, w.embedding, w.embedding_model,
                   w.metadata, w.initial_score, w.pinned, w.access_count, engine_now(), w.from_seq, w.upto_seq,
                   w.source_seqs, w.job_id, w.prompt_hash, w.model, w.occurred_at, w.created_at
            FROM wanted AS w LEFT JOIN threads AS t ON t.id = w.thread_id
            ON CONFLICT DO NOTHING
            RETURNING memories.id
        ), gone AS (
            DELETE FROM memories_archive AS a USING back AS b WHERE a.id = b.id
        )
        SELECT b.id FROM back AS b;
END
$$;

-- Deletes at most p_limit archived memories whose app's policy no longer keeps them. What people retired or corrected
-- stays: without it a replay would bring it back. Returns how many; call it again,
-- each time in a transaction of its own, until it returns 0.
CREATE OR REPLACE FUNCTION purge_archive(p_app_name text DEFAULT NULL, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_now   timestamptz := engine_now();
    v_count integer;
BEGIN
    PERFORM check_cleanup_arguments(NULL, NULL, NULL, p_limit);
    DELETE FROM memories_archive WHERE id = ANY (ARRAY(
        SELECT a.id FROM memories_archive AS a
        JOIN app_policies AS rest ON rest.app_name = '*'
        LEFT JOIN app_policies AS own ON own.app_name = a.app_name
        WHERE (p_app_name IS NULL OR a.app_name = p_app_name) AND NOT is_by_hand(a.archive_reason)
          AND a.archived_at <= v_now - make_interval(secs => 86400 * coalesce(own.archive_days, rest.archive_days))
        ORDER BY a.archived_at LIMIT p_limit FOR UPDATE OF a SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
