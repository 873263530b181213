-- Facts: a ledger of statements with two clocks, and the current row that follows from it.
--
-- Each statement of a fact adds a row to `fact_versions`. What was true at a time, as it was known at a time, is the
-- last statement up to the first among those accepted by the second; `facts` is the result for now, with its vector.
-- Nothing that is written later changes what an earlier `known_at` sees.

-- One transaction at a time may change what is known of a user. Acquired after the thread's and the queue's locks,
-- before any row of facts or memories; so the order in which those are found does not matter.
CREATE OR REPLACE FUNCTION lock_user_memory(p_app_name text, p_user_id text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
AS $$
    SELECT pg_advisory_xact_lock(hashtextextended(
        concat_ws(' ', 'memory of', current_schema(), p_app_name, p_user_id), 0))
$$;

-- When something is recorded: the clock's time, since the transaction may have waited for a lock since it began.
CREATE OR REPLACE FUNCTION recording_time() RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    SELECT CASE WHEN coalesce(current_setting('hippocampus.fake_time', true), '') = '' THEN clock_timestamp()
                ELSE engine_now() END
$$;

-- A text without case and separators: a key of plain SQL, an insight. Jobs supply a more capable normal form.
CREATE OR REPLACE FUNCTION plain_key(p_key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(nullif(btrim(regexp_replace(lower(p_key), '[\s_.,;!?。，；！？、/:：-]+', ' ', 'g')), ''), p_key);

CREATE OR REPLACE FUNCTION set_normal_key() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    NEW.normal_key := coalesce(NEW.normal_key, plain_key(NEW.key));
    NEW.contrast := coalesce(NEW.contrast, '');
    IF TG_TABLE_NAME = 'fact_versions' THEN
        NEW.content := coalesce(NEW.content, '');
        NEW.written_by := coalesce(NEW.written_by, writing_by_hand());
    END IF;
    RETURN NEW;
END
$$;

-- Keeps the ledger complete when `facts` is written by plain SQL: a new value is a statement, and so is an end.
CREATE OR REPLACE FUNCTION note_fact() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_said timestamptz := NEW.valid_from;
BEGIN
    -- Written by plain SQL, unless the ledger already ends with this value: two statements may have been made at one time.
    IF TG_OP = 'UPDATE' AND NEW.value <> OLD.value AND NEW.valid_from = OLD.valid_from
       AND NEW.value IS DISTINCT FROM (
           SELECT v.value FROM fact_versions AS v
           WHERE v.fact_id = NEW.id AND v.value IS NOT NULL AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL
           ORDER BY v.valid_from DESC, v.recorded_at DESC, v.id DESC LIMIT 1)
    THEN
        v_said := greatest(recording_time(), NEW.valid_from);
    END IF;
    IF NOT EXISTS (SELECT FROM fact_versions AS v
                   WHERE v.fact_id = NEW.id AND v.value = NEW.value AND v.accepted_at IS NOT NULL
                     AND v.retracted_at IS NULL AND (v.valid_from = v_said OR TG_OP = 'UPDATE' AND NEW.value = OLD.value))
    THEN
        INSERT INTO fact_versions (fact_id, thread_id, user_id, app_name, fact_type, key, normal_key, collection, contrast, value,
                                   content, confidence, valid_from, recorded_at, accepted_at, from_seq, upto_seq,
                                   source_seqs, job_id, prompt_hash, model)
        SELECT NEW.id, NEW.thread_id, NEW.user_id, NEW.app_name, NEW.fact_type, NEW.key, NEW.normal_key, NEW.collection, NEW.contrast,
               NEW.value, NEW.content, NEW.confidence, v_said, r.at, r.at, NEW.from_seq, NEW.upto_seq, NEW.source_seqs,
               NEW.job_id, NEW.prompt_hash, NEW.model
        FROM (SELECT CASE TG_OP WHEN 'INSERT' THEN NEW.recorded_at ELSE recording_time() END AS at) AS r;
    END IF;
    IF NEW.valid_until IS NOT NULL AND NOT EXISTS (
        SELECT FROM fact_versions AS v
        WHERE v.fact_id = NEW.id AND v.value IS NULL AND v.valid_from = NEW.valid_until AND v.retracted_at IS NULL) THEN
        INSERT INTO fact_versions (fact_id, thread_id, user_id, app_name, fact_type, key, normal_key, collection, contrast, value,
                                   confidence, valid_from, recorded_at, accepted_at)
        SELECT NEW.id, NEW.thread_id, NEW.user_id, NEW.app_name, NEW.fact_type, NEW.key, NEW.normal_key, NEW.collection, NEW.contrast,
               NULL, 1, NEW.valid_until, r.at, r.at
        FROM (SELECT CASE TG_OP WHEN 'INSERT' THEN NEW.recorded_at ELSE recording_time() END AS at) AS r;
    END IF;
    RETURN NULL;
END
$$;

-- What was known of facts at a time, as periods of one value in the order of their statements. A period lasts until the
-- next one begins; value NULL: nothing held. p_fact_id NULL: all facts of the user. p_known_at NULL: now. The sources
-- are those of the thread that stated it first.
CREATE OR REPLACE FUNCTION fact_stretches(p_app_name text, p_user_id text, p_fact_id uuid, p_known_at timestamptz)
RETURNS TABLE (fact_id uuid, stretch bigint, fact_type varchar, key varchar, value jsonb, confidence double precision,
               valid_from timestamptz, valid_until timestamptz, last_said_at timestamptz, recorded_at timestamptz,
               learned_at timestamptz, thread_id uuid, source_seqs bigint[], from_seq bigint, upto_seq bigint,
               job_id uuid, prompt_hash text, model text, superseded_at timestamptz, superseded_by uuid)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    WITH believed AS (
        SELECT v.*, lag(v.id) OVER stated IS NOT NULL
                    AND v.value IS NOT DISTINCT FROM lag(v.value) OVER stated AS again
        FROM fact_versions AS v
        WHERE v.app_name = p_app_name AND v.user_id = p_user_id AND (p_fact_id IS NULL OR v.fact_id = p_fact_id)
          AND v.accepted_at <= coalesce(p_known_at, 'infinity')
          AND (v.retracted_at IS NULL OR v.retracted_at > coalesce(p_known_at, 'infinity'))
        WINDOW stated AS (PARTITION BY v.fact_id ORDER BY v.valid_from, v.recorded_at, v.id)
    ), placed AS (
        SELECT b.*, count(*) FILTER (WHERE NOT b.again)
                    OVER (PARTITION BY b.fact_id ORDER BY b.valid_from, b.recorded_at, b.id) AS stretch
        FROM believed AS b
    ), owned AS (
        -- Turns are numbered by thread: only those of one thread make a list.
        SELECT p.*, first_value(p.thread_id) OVER recorded IS NOT DISTINCT FROM p.thread_id AS by_owner,
               first_value(p.id) OVER recorded AS owner_id
        FROM placed AS p
        WINDOW recorded AS (PARTITION BY p.fact_id, p.stretch ORDER BY p.thread_id IS NULL, p.recorded_at, p.id)
    ), cited AS (
        SELECT o.fact_id, o.stretch, array_agg(DISTINCT s ORDER BY s) AS seqs
        FROM owned AS o CROSS JOIN LATERAL unnest(o.source_seqs) AS s
        WHERE o.by_owner GROUP BY o.fact_id, o.stretch
    ), stretches AS (
        SELECT o.fact_id, o.stretch, max(o.confidence) AS confidence, min(o.valid_from) AS valid_from,
               max(o.valid_from) AS last_said_at, min(o.recorded_at) AS recorded_at, min(o.accepted_at) AS learned_at,
               min(o.from_seq) FILTER (WHERE o.by_owner) AS from_seq,
               max(o.upto_seq) FILTER (WHERE o.by_owner) AS upto_seq,
               (array_agg(o.owner_id))[1] AS owner_id,
               (array_agg(o.id ORDER BY o.valid_from, o.recorded_at, o.id))[1] AS first_id,
               (array_agg(o.accepted_at ORDER BY o.valid_from, o.recorded_at, o.id))[1] AS opened_at
        FROM owned AS o GROUP BY o.fact_id, o.stretch
    )
    SELECT s.fact_id, s.stretch, v.fact_type, coalesce(f.key, v.key), v.value, s.confidence, s.valid_from,
           lead(s.valid_from) OVER w, s.last_said_at, s.recorded_at, s.learned_at, v.thread_id,
           coalesce(c.seqs, '{}'), s.from_seq, s.upto_seq, v.job_id, v.prompt_hash, v.model,
           lead(s.opened_at) OVER w, lead(s.first_id) OVER w
    FROM stretches AS s
    JOIN fact_versions AS v ON v.id = s.owner_id
    LEFT JOIN facts AS f ON f.id = s.fact_id
    LEFT JOIN cited AS c ON c.fact_id = s.fact_id AND c.stretch = s.stretch
    WINDOW w AS (PARTITION BY s.fact_id ORDER BY s.stretch)
$$;

-- What was true of a user at a time, as it was known at a time: for each key, the last statement up to the first among
-- those accepted by the second. Candidates never count.
CREATE OR REPLACE FUNCTION facts_as_of(p_app_name text, p_user_id text, p_as_of timestamptz, p_known_at timestamptz)
RETURNS TABLE (id uuid, thread_id uuid, fact_type varchar, key varchar, value jsonb, confidence double precision,
               source_seqs bigint[], valid_from timestamptz, valid_until timestamptz, recorded_at timestamptz)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT s.fact_id, s.thread_id, s.fact_type, s.key, s.value, s.confidence, s.source_seqs, s.valid_from,
           s.valid_until, s.recorded_at
    FROM fact_stretches(p_app_name, p_user_id, NULL, p_known_at) AS s
    WHERE s.value IS NOT NULL AND s.valid_from <= p_as_of AND (s.valid_until IS NULL OR s.valid_until > p_as_of)
$$;

-- The fact that a key refers to: its own, or the one that it is another spelling of. NULL: none.
CREATE OR REPLACE FUNCTION known_fact(p_app_name text, p_user_id text, p_fact_type text, p_key text) RETURNS uuid
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT k.id FROM (
        SELECT f.id, 0 AS rank FROM facts AS f
        WHERE f.user_id = p_user_id AND f.app_name = p_app_name AND f.fact_type = p_fact_type AND f.key = p_key
        UNION ALL
        SELECT f.id, 1 FROM fact_aliases AS a JOIN facts AS f ON f.id = a.fact_id
        WHERE a.user_id = p_user_id AND a.app_name = p_app_name AND a.fact_type = p_fact_type AND a.from_key = p_key
          AND a.undone_at IS NULL) AS k
    ORDER BY k.rank LIMIT 1
$$;

-- Every statement about one key, the newest first: what holds ('current'), what another statement ended ('superseded',
-- or 'out_of_order' if it was recorded after its end), what was too uncertain ('candidate'), and what a replay withdrew
-- ('retracted'). superseded_by_… is the turn that ended it.
CREATE OR REPLACE FUNCTION fact_history(p_app_name text, p_user_id text, p_fact_type text, p_key text)
RETURNS TABLE (fact_id uuid, value jsonb, confidence double precision, outcome text, valid_from timestamptz,
               valid_until timestamptz, recorded_at timestamptz, superseded_at timestamptz, thread_id uuid,
               source_seqs bigint[], job_id uuid, prompt_hash text, model text, superseded_by_thread_id uuid,
               superseded_by_seq bigint, superseded_by_event_id text)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    WITH asked AS (
        SELECT f.id FROM facts AS f
        WHERE f.app_name = p_app_name AND f.user_id = p_user_id AND f.fact_type = p_fact_type
          AND f.id = known_fact(p_app_name, p_user_id, p_fact_type, p_key)
    ), statements AS (
        SELECT s.fact_id, s.value, s.confidence,
               CASE WHEN s.valid_until IS NULL OR s.valid_until > engine_now() THEN 'current'
                    WHEN s.learned_at > s.superseded_at THEN 'out_of_order' ELSE 'superseded' END AS outcome,
               s.valid_from, s.valid_until, s.recorded_at, s.superseded_at, s.thread_id, s.source_seqs, s.job_id,
               s.prompt_hash, s.model, s.superseded_by
        FROM asked CROSS JOIN LATERAL fact_stretches(p_app_name, p_user_id, asked.id, NULL) AS s
        WHERE s.value IS NOT NULL
        UNION ALL
        SELECT v.fact_id, v.value, v.confidence,
               CASE WHEN v.retracted_at IS NOT NULL THEN 'retracted' ELSE 'candidate' END,
               v.valid_from, NULL, v.recorded_at, v.retracted_at, v.thread_id, v.source_seqs, v.job_id, v.prompt_hash,
               v.model, NULL
        FROM asked JOIN fact_versions AS v ON v.fact_id = asked.id
        WHERE v.value IS NOT NULL AND (v.retracted_at IS NOT NULL OR v.accepted_at IS NULL)
    )
    SELECT t.fact_id, t.value, t.confidence, t.outcome, t.valid_from, t.valid_until, t.recorded_at, t.superseded_at,
           t.thread_id, t.source_seqs, t.job_id, t.prompt_hash, t.model, n.thread_id, e.sequence_num, e.id
    FROM statements AS t
    LEFT JOIN fact_versions AS n ON n.id = t.superseded_by
    LEFT JOIN events AS e ON e.thread_id = n.thread_id
                         AND e.sequence_num = n.source_seqs[cardinality(n.source_seqs)]
    ORDER BY CASE t.outcome WHEN 'current' THEN 0 WHEN 'retracted' THEN 2 ELSE 1 END, t.valid_from DESC,
             t.recorded_at DESC
$$;

-- Which fact a statement is about: that of its key, of a merged key, of the key's normal form, or the one that is
-- similar enough in meaning. An element is also what its collection's own key says of one value, as it did before the key
-- held many: the same value, or that there is none. Facts of another subject, collection or user never match, nor does one
-- from which this key was parted by undo_merge. No row: it is a new fact.
CREATE OR REPLACE FUNCTION resolve_fact(p_app_name text, p_user_id text, p_fact fact_input, p_embedding_model text)
RETURNS TABLE (fact_id uuid, key varchar, method text, similarity double precision)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_fact uuid := known_fact(p_app_name, p_user_id, p_fact.fact_type, p_fact.key);
BEGIN
    IF v_fact IS NOT NULL THEN
        RETURN QUERY SELECT f.id, f.key, NULL::text, 1::double precision FROM facts AS f WHERE f.id = v_fact;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT f.id, f.key, 'normal_form', 1::double precision FROM facts AS f
        WHERE f.user_id = p_user_id AND f.app_name = p_app_name AND f.fact_type = p_fact.fact_type
          AND f.normal_key = coalesce(p_fact.normal_key, plain_key(p_fact.key))
          AND NOT is_parted(p_app_name, p_user_id, p_fact.fact_type, p_fact.key, f.id);
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT f.id, f.key, 'normal_form', 1::double precision FROM facts AS f
        WHERE f.user_id = p_user_id AND f.app_name = p_app_name AND f.fact_type = p_fact.fact_type
          AND f.normal_key = p_fact.collection AND f.collection IS NULL
          AND value_words(f.value) IN (value_words(p_fact.value), 'none', 'no', 'false', '无', '没有')
          AND NOT is_parted(p_app_name, p_user_id, p_fact.fact_type, p_fact.key, f.id);
    IF FOUND OR p_fact.embedding IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT f.id, f.key, 'meaning', s.likeness
        FROM merge_thresholds AS m
        JOIN facts AS f ON f.embedding_model = m.embedding_model
        CROSS JOIN LATERAL (SELECT model_similarity(f.embedding, f.embedding_model, p_fact.embedding, p_embedding_model)
                            AS likeness OFFSET 0) AS s
        WHERE m.embedding_model = p_embedding_model AND m.kind = 'fact'
          AND f.app_name = p_app_name AND f.user_id = p_user_id AND f.fact_type = p_fact.fact_type
          AND f.collection IS NULL AND p_fact.collection IS NULL AND f.contrast = coalesce(p_fact.contrast, '')
          AND f.value ->> 'subject' IS NOT DISTINCT FROM p_fact.value ->> 'subject'
          AND s.likeness >= m.threshold
          AND NOT is_parted(p_app_name, p_user_id, p_fact.fact_type, p_fact.key, f.id)
        ORDER BY s.likeness DESC, f.key LIMIT 1;
END
$$;

CREATE OR REPLACE FUNCTION is_parted(p_app_name text, p_user_id text, p_fact_type text, p_key text, p_fact_id uuid) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (SELECT FROM fact_aliases AS a
                   WHERE a.app_name = p_app_name AND a.user_id = p_user_id AND a.fact_type = p_fact_type
                     AND a.from_key = p_key AND a.fact_id = p_fact_id AND a.undone_at IS NOT NULL)
$$;

-- The thread, or NULL if it is being deleted: that waits for the user's memory, which we hold, so it counts as gone.
-- PostgreSQL checks the foreign key of a row that its own transaction writes twice, which would wait for the deletion.
CREATE OR REPLACE FUNCTION standing_thread(p_thread_id uuid) RETURNS uuid
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    SELECT t.id FROM threads AS t WHERE t.id = p_thread_id FOR KEY SHARE SKIP LOCKED
$$;

-- Rebuilds the row of a fact from its ledger: creates it if it is missing, deletes it if no statement is left.
-- If only candidates are left, the first one recorded counts, since nothing contradicts it. The caller holds the row.
-- p_content, p_embedding, p_embedding_model: an available vector, of that text.
CREATE OR REPLACE FUNCTION rebuild_fact(p_fact_id uuid, p_content text DEFAULT NULL, p_embedding vector DEFAULT NULL,
                             p_embedding_model text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_scope fact_versions;
    v_ends  timestamptz;
    v_text  text;
    v_now   timestamptz := recording_time();
    f       facts;
    s       record;
BEGIN
    SELECT * INTO v_scope FROM fact_versions WHERE fact_id = p_fact_id ORDER BY recorded_at, id LIMIT 1;
    SELECT * INTO f FROM facts WHERE id = p_fact_id;
    SELECT * INTO s FROM fact_stretches(v_scope.app_name, v_scope.user_id, p_fact_id, NULL) AS t
    WHERE t.value IS NOT NULL ORDER BY t.stretch DESC LIMIT 1;
    IF NOT FOUND THEN
        UPDATE fact_versions SET accepted_at = v_now WHERE id = (
            SELECT id FROM fact_versions
            WHERE fact_id = p_fact_id AND accepted_at IS NULL AND retracted_at IS NULL
            ORDER BY recorded_at, id LIMIT 1);
        IF FOUND THEN
            PERFORM rebuild_fact(p_fact_id, p_content, p_embedding, p_embedding_model);
        ELSE
            DELETE FROM facts WHERE id = p_fact_id;
        END IF;
        RETURN;
    END IF;
    s.thread_id := standing_thread(s.thread_id);
    v_ends := CASE WHEN s.valid_until > s.valid_from THEN s.valid_until END;
    SELECT v.content INTO v_text FROM fact_versions AS v
    WHERE v.fact_id = p_fact_id AND v.value = s.value AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL
      AND v.content <> '' ORDER BY v.valid_from DESC, v.recorded_at DESC, v.id DESC LIMIT 1;
    -- A vector of the same value is kept, whatever the words of its key were; an available one is used.
    IF f.id IS NOT NULL AND f.value = s.value AND f.embedding IS NOT NULL THEN
        v_text := f.content;
    ELSIF p_embedding IS NOT NULL AND p_content = v_text THEN
        f.embedding := p_embedding;
        f.embedding_model := p_embedding_model;
    ELSE
        f.embedding := NULL;
        f.embedding_model := NULL;
    END IF;
    IF f.id IS NULL THEN
        INSERT INTO facts (id, thread_id, user_id, app_name, fact_type, key, normal_key, collection, contrast, value, content,
                           embedding, embedding_model, confidence, valid_from, valid_until, last_said_at, recorded_at,
                           from_seq, upto_seq, source_seqs, job_id, prompt_hash, model, created_at, updated_at)
        VALUES (p_fact_id, s.thread_id, v_scope.user_id, v_scope.app_name, v_scope.fact_type, v_scope.key,
                v_scope.normal_key, v_scope.collection, v_scope.contrast, s.value, coalesce(v_text, v_scope.key), f.embedding,
                f.embedding_model, s.confidence, s.valid_from, v_ends, s.last_said_at, s.recorded_at, s.from_seq,
                s.upto_seq, s.source_seqs, s.job_id, s.prompt_hash, s.model, v_now, v_now);
        RETURN;
    END IF;
    UPDATE facts AS x SET
        thread_id = s.thread_id, value = s.value, content = coalesce(v_text, x.content), embedding = f.embedding,
        embedding_model = f.embedding_model, confidence = s.confidence, valid_from = s.valid_from,
        valid_until = v_ends, last_said_at = s.last_said_at, recorded_at = s.recorded_at, from_seq = s.from_seq,
        upto_seq = s.upto_seq, source_seqs = s.source_seqs, job_id = s.job_id, prompt_hash = s.prompt_hash,
        model = s.model, updated_at = v_now
    WHERE x.id = p_fact_id;
END
$$;

-- A statement for the ledger, as yet about no fact.
CREATE OR REPLACE FUNCTION statement_of(p_thread threads, p_origin slice_origin, p_fact fact_input) RETURNS fact_versions
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    fresh fact_versions;
BEGIN
    fresh.id := new_id();
    fresh.thread_id := p_thread.id;
    fresh.user_id := p_thread.user_id;
    fresh.app_name := p_thread.app_name;
    fresh.fact_type := p_fact.fact_type;
    fresh.key := p_fact.key;
    fresh.normal_key := coalesce(p_fact.normal_key, plain_key(p_fact.key));
    fresh.collection := p_fact.collection;
    fresh.contrast := coalesce(p_fact.contrast, '');
    fresh.value := p_fact.value;
    fresh.content := p_fact.content;
    fresh.confidence := p_fact.confidence;
    fresh.from_seq := p_origin.from_seq;
    fresh.upto_seq := p_origin.upto_seq;
    fresh.source_seqs := p_fact.source_seqs;
    fresh.job_id := p_origin.job_id;
    fresh.prompt_hash := p_origin.prompt_hash;
    fresh.model := p_origin.model;
    RETURN fresh;
END
$$;

-- When a statement was made: at the time of its turns. A turn that is dated in the future must not outrank everything
-- stated until then: it was made when it was recorded.
CREATE OR REPLACE FUNCTION stated_at(fresh fact_versions, p_said timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_said <= fresh.recorded_at THEN
        RETURN p_said;
    END IF;
    RETURN least(fresh.recorded_at, (SELECT max(e.created_at) FROM events AS e
                                     WHERE e.thread_id = fresh.thread_id AND e.sequence_num = ANY (fresh.source_seqs)));
END
$$;

-- Stores the first statement of a fact; returns it with its fact_id, NULL if another transaction has just stored one.
CREATE OR REPLACE FUNCTION add_fact(fresh fact_versions, p_origin slice_origin, p_fact fact_input) RETURNS fact_versions
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    -- What was stated of a key before it was retracted belongs to its history.
    fresh.fact_id := coalesce((SELECT v.fact_id FROM fact_versions AS v
                               WHERE v.app_name = fresh.app_name AND v.user_id = fresh.user_id
                                 AND v.fact_type = fresh.fact_type
                                 AND (v.key = fresh.key OR v.normal_key = fresh.normal_key)
                                 AND NOT EXISTS (SELECT FROM facts AS f WHERE f.id = v.fact_id)
                               ORDER BY v.key = fresh.key DESC, v.recorded_at DESC LIMIT 1), new_id());
    fresh.recorded_at := recording_time();
    fresh.accepted_at := fresh.recorded_at;
    fresh.valid_from := stated_at(fresh, p_fact.valid_from);
    INSERT INTO facts (id, thread_id, user_id, app_name, fact_type, key, normal_key, collection, contrast, value, content,
                       embedding, embedding_model, confidence, valid_from, last_said_at, recorded_at, from_seq,
                       upto_seq, source_seqs, job_id, prompt_hash, model)
    VALUES (fresh.fact_id, fresh.thread_id, fresh.user_id, fresh.app_name, fresh.fact_type, fresh.key,
            CASE WHEN EXISTS (SELECT FROM fact_aliases AS a
                              WHERE a.app_name = fresh.app_name AND a.user_id = fresh.user_id
                                AND a.fact_type = fresh.fact_type AND a.from_key = fresh.key
                                AND a.undone_at IS NOT NULL)
                 THEN '=' || fresh.key ELSE fresh.normal_key END,
            fresh.collection, fresh.contrast, fresh.value, fresh.content, p_fact.embedding,
            CASE WHEN p_fact.embedding IS NOT NULL THEN p_origin.embedding_model END, fresh.confidence,
            fresh.valid_from, fresh.valid_from, fresh.recorded_at, fresh.from_seq, fresh.upto_seq,
            fresh.source_seqs, fresh.job_id, fresh.prompt_hash, fresh.model)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        fresh.fact_id := NULL;
    ELSIF EXISTS (SELECT FROM fact_versions AS v WHERE v.fact_id = fresh.fact_id AND v.value IS NULL
                                                   AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL) THEN
        -- Someone ended it meanwhile, as yet without any statement to end.
        PERFORM rebuild_fact(fresh.fact_id);
    END IF;
    RETURN fresh;
END
$$;

-- Records what a user stated, under the thread's app and user, whatever the text claims.
--
--   no such fact yet                                       'created'
--   nothing held at that time, it had ended                'reopened'
--   the value that holds, stated again                     'confirmed'
--   another value, not much less certain, stated later     'updated'
--   the same, but stated before what holds                 'out_of_order'  history: what holds stays
--   less certain by over 0.1 than what held at that time   'candidate'     stored beside it, never counts
--   so, but its candidates together are certain enough     'promoted'      they count from when they were stated
--   stated before the fact was erased on request           'forgotten'     nothing is stored, fact_id is NULL
--   value NULL: it no longer holds, or never did           see end_fact
--
-- The rival is what held when it was stated; before the first statement, the first. Candidates of one value that other
-- turns stated since the rival count together: 1 - (1 - c1)(1 - c2)… Models rate the same certainty slightly
-- differently each time, hence the margin of 0.1.
CREATE OR REPLACE FUNCTION record_fact(p_thread threads, p_origin slice_origin, p_fact fact_input)
RETURNS TABLE (fact_id uuid, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_said     timestamptz;
    v_target   record;
    v_rival    record;
    v_earlier  uuid[];
    v_joint    double precision;
    v_head     record;
    v_accepted boolean;
    fresh      fact_versions;
BEGIN
    IF p_fact.value IS NULL THEN
        RETURN QUERY SELECT * FROM end_fact(p_thread, p_origin, p_fact);
        RETURN;
    END IF;
    fresh := statement_of(p_thread, p_origin, p_fact);
    LOOP
        SELECT * INTO v_target FROM resolve_fact(p_thread.app_name, p_thread.user_id, p_fact, p_origin.embedding_model);
        IF FOUND THEN
            PERFORM FROM facts WHERE id = v_target.fact_id FOR UPDATE;
            CONTINUE WHEN NOT FOUND;
        END IF;
        -- After the wait for the row: its holder may have erased it.
        IF p_thread.id IS NOT NULL AND is_forgotten_fact(p_thread, p_fact) THEN
            RETURN QUERY SELECT NULL::uuid, 'forgotten';
            RETURN;
        END IF;
        EXIT WHEN v_target.fact_id IS NOT NULL;
        fresh := add_fact(fresh, p_origin, p_fact);
        IF fresh.fact_id IS NOT NULL THEN
            RETURN QUERY SELECT fresh.fact_id, 'created';   -- note_fact() has added its statement to the ledger
            RETURN;
        END IF;
    END LOOP;

    -- Without a thread, no turn is known.
    fresh.fact_id := v_target.fact_id;
    fresh.recorded_at := greatest(recording_time(),
                                  (SELECT max(v.recorded_at) FROM fact_versions AS v WHERE v.fact_id = fresh.fact_id));
    fresh.valid_from := stated_at(fresh, p_fact.valid_from);
    v_said := fresh.valid_from;
    SELECT s.* INTO v_head FROM fact_stretches(fresh.app_name, fresh.user_id, fresh.fact_id, NULL) AS s
    WHERE s.value IS NOT NULL ORDER BY s.stretch DESC LIMIT 1;
    SELECT s.* INTO v_rival FROM fact_stretches(fresh.app_name, fresh.user_id, fresh.fact_id, NULL) AS s
    ORDER BY s.valid_from <= v_said DESC,
             CASE WHEN s.valid_from <= v_said THEN s.stretch END DESC, s.stretch LIMIT 1;
    v_accepted := v_rival.value IS NULL OR v_rival.value = fresh.value
                  OR fresh.confidence >= v_rival.confidence - 0.1 - 1e-9;
    SELECT array_agg(v.id), 1 - (1 - fresh.confidence) * coalesce(exp(sum(ln(greatest(1 - v.confidence, 1e-9)))), 1)
    INTO v_earlier, v_joint
    FROM fact_versions AS v
    WHERE v.fact_id = fresh.fact_id AND v.accepted_at IS NULL AND v.retracted_at IS NULL AND v.value = fresh.value
      AND v.valid_from <= v_said AND (v_rival.valid_from > v_said OR v.valid_from >= v_rival.valid_from)
      AND (v.thread_id IS DISTINCT FROM fresh.thread_id OR NOT v.source_seqs && fresh.source_seqs);
    v_accepted := v_accepted OR (v_earlier IS NOT NULL AND v_joint >= v_rival.confidence - 0.1 - 1e-9);

    fresh.accepted_at := CASE WHEN v_accepted THEN fresh.recorded_at END;
    INSERT INTO fact_versions SELECT fresh.*;
    IF v_target.method IS NOT NULL THEN
        INSERT INTO fact_aliases AS a (app_name, user_id, fact_type, from_key, to_key, fact_id, method, similarity,
                                       embedding_model, job_id)
        VALUES (fresh.app_name, fresh.user_id, fresh.fact_type, fresh.key, v_target.key, fresh.fact_id, v_target.method,
                v_target.similarity, CASE v_target.method WHEN 'meaning' THEN p_origin.embedding_model END, fresh.job_id)
        ON CONFLICT (app_name, user_id, fact_type, from_key, fact_id) DO NOTHING;
    END IF;
    fact_id := fresh.fact_id;
    IF NOT v_accepted THEN
        outcome := 'candidate';
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE fact_versions AS v SET accepted_at = fresh.recorded_at, thread_id = standing_thread(v.thread_id)
    WHERE id = ANY (v_earlier);
    -- An end in the future was the end of what held until now.
    UPDATE fact_versions AS v SET retracted_at = fresh.recorded_at, thread_id = standing_thread(v.thread_id)
    WHERE v.fact_id = fresh.fact_id AND v.value IS NULL AND v.retracted_at IS NULL
      AND v.valid_from > fresh.recorded_at AND v_said >= v_head.last_said_at;
    PERFORM rebuild_fact(fresh.fact_id, fresh.content, p_fact.embedding,
                         CASE WHEN p_fact.embedding IS NOT NULL THEN p_origin.embedding_model END);
    outcome := CASE
        WHEN v_rival.value IS NULL AND v_said >= v_head.last_said_at THEN 'reopened'
        WHEN v_earlier IS NOT NULL AND v_rival.value <> fresh.value THEN 'promoted'
        WHEN v_head.value = fresh.value AND EXISTS (
            SELECT FROM facts AS f WHERE f.id = fresh.fact_id AND f.valid_from <= v_said
                                     AND f.last_said_at >= v_head.last_said_at) THEN 'confirmed'
        WHEN v_said < v_head.last_said_at THEN 'out_of_order'
        ELSE 'updated' END;
    RETURN NEXT;
END
$$;

-- The words of a value, to compare: a text, or the text of a statement about a person.
CREATE OR REPLACE FUNCTION value_words(p_value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN plain_key(coalesce(p_value ->> 'text', p_value #>> '{}'));

-- Whether two values are worded alike: the same, or the words of one begin, end or are within the other's.
CREATE OR REPLACE FUNCTION worded_alike(p_one text, p_other text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN strpos(' ' || p_one || ' ', ' ' || p_other || ' ') > 0 OR strpos(' ' || p_other || ' ', ' ' || p_one || ' ') > 0
    -- Chinese and Japanese have no spaces between words.
    OR p_one ~ '[\u3040-\u9fff]' AND p_other ~ '[\u3040-\u9fff]' AND (strpos(p_one, p_other) > 0 OR strpos(p_other, p_one) > 0);

-- The facts that a retraction may be about: that of its key, in any spelling; of a collection's own key every element;
-- of an element also those that are worded alike, and what the collection's own key says of one value or of a list.
CREATE OR REPLACE FUNCTION retraction_targets(p_app_name text, p_user_id text, p_fact fact_input, p_embedding_model text)
RETURNS SETOF facts
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    WITH named AS MATERIALIZED (
        SELECT r.fact_id FROM resolve_fact(p_app_name, p_user_id, p_fact, p_embedding_model) AS r
    )
    SELECT f.* FROM facts AS f
    WHERE f.app_name = p_app_name AND f.user_id = p_user_id AND f.fact_type = p_fact.fact_type
      AND (f.id IN (SELECT fact_id FROM named)
           OR f.collection = p_fact.collection
              AND (p_fact.content = '' OR NOT EXISTS (SELECT FROM named)
                   AND worded_alike(value_words(f.value), plain_key(p_fact.content)))
           OR f.collection IS NULL AND f.normal_key = p_fact.collection)
    ORDER BY f.fact_type, f.key
$$;

-- Records that something no longer holds, or never did: a statement without a value ends what holds, and its history
-- stays. p_fact.content is the text of what ended, '' for whatever holds.
--
--   it held at that time                                   'ended'
--   the same, but another statement followed               'out_of_order'  what holds stays
--   less certain by over 0.1 than what held                'candidate'     stored beside it, never counts
--   it did not hold at that time, or something else did    'unknown'       nothing is stored, fact_id is NULL
--
-- If the value is a list, only what ended is taken out of it.
CREATE OR REPLACE FUNCTION end_fact(p_thread threads, p_origin slice_origin, p_fact fact_input)
RETURNS TABLE (fact_id uuid, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    f       facts;
    v_rival record;
    v_rest  jsonb;
    fresh   fact_versions;
BEGIN
    outcome := 'unknown';
    FOR f IN SELECT * FROM retraction_targets(p_thread.app_name, p_thread.user_id, p_fact, p_origin.embedding_model) LOOP
        PERFORM FROM facts WHERE id = f.id FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        fresh := statement_of(p_thread, p_origin, p_fact);
        fresh.fact_id := f.id;
        fresh.recorded_at := greatest(recording_time(),
                                      (SELECT max(v.recorded_at) FROM fact_versions AS v WHERE v.fact_id = f.id));
        fresh.valid_from := stated_at(fresh, p_fact.valid_from);
        SELECT s.* INTO v_rival FROM fact_stretches(f.app_name, f.user_id, f.id, NULL) AS s
        WHERE s.valid_from <= fresh.valid_from ORDER BY s.stretch DESC LIMIT 1;
        CONTINUE WHEN NOT FOUND OR v_rival.value IS NULL;
        IF p_fact.content <> '' AND jsonb_typeof(v_rival.value) = 'array' THEN
            SELECT jsonb_agg(e) INTO v_rest FROM jsonb_array_elements(v_rival.value) AS e
            WHERE NOT worded_alike(value_words(e), plain_key(p_fact.content));
            CONTINUE WHEN v_rest = v_rival.value;
            fresh.value := v_rest;
            fresh.content := CASE WHEN v_rest IS NULL THEN p_fact.content ELSE fact_text(f.key, v_rest) END;
        ELSIF p_fact.content <> '' THEN
            CONTINUE WHEN NOT worded_alike(value_words(v_rival.value), plain_key(p_fact.content));
        END IF;
        -- What was stated at the same moment held for that moment.
        IF EXISTS (SELECT FROM fact_versions AS v WHERE v.fact_id = f.id AND v.valid_from = fresh.valid_from) THEN
            fresh.valid_from := fresh.valid_from + interval '1 microsecond';
            fresh.recorded_at := greatest(fresh.recorded_at, fresh.valid_from);
        END IF;
        fresh.accepted_at := CASE WHEN fresh.confidence >= v_rival.confidence - 0.1 - 1e-9 THEN fresh.recorded_at END;
        INSERT INTO fact_versions SELECT fresh.*;
        fact_id := f.id;
        IF fresh.accepted_at IS NULL THEN
            outcome := 'candidate';
        ELSE
            PERFORM rebuild_fact(f.id);
            outcome := CASE WHEN EXISTS (SELECT FROM fact_versions AS v
                                         WHERE v.fact_id = f.id AND v.valid_from > fresh.valid_from
                                           AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL)
                            THEN 'out_of_order' ELSE 'ended' END;
            PERFORM enqueue_embedding_backfill() WHERE fresh.value IS NOT NULL;
        END IF;
    END LOOP;
    RETURN NEXT;
END
$$;

-- Accepts a candidate from now on; it was true from when it was stated. Errors: HP041 no such candidate of this user.
CREATE OR REPLACE FUNCTION promote_candidate(p_app_name text, p_user_id text, p_id uuid) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    v_fact uuid;
BEGIN
    PERFORM lock_user_memory(p_app_name, p_user_id);
    UPDATE fact_versions SET accepted_at = greatest(recording_time(), recorded_at)
    WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id AND accepted_at IS NULL AND retracted_at IS NULL
    RETURNING fact_id INTO v_fact;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no candidate % of app % and user %', p_id, quote_nullable(p_app_name),
            quote_nullable(p_user_id) USING ERRCODE = 'HP041';
    END IF;
    PERFORM FROM facts WHERE id = v_fact FOR UPDATE;
    PERFORM rebuild_fact(v_fact);
    PERFORM enqueue_embedding_backfill();
    RETURN v_fact;
END
$$;

-- Parts a key from the fact that it was merged into: its statements become a fact of their own, and the two are never
-- merged again. Returns the new fact; NULL if there was no statement under the key. Errors: HP041 no such merge.
CREATE OR REPLACE FUNCTION undo_merge(p_app_name text, p_user_id text, p_id uuid) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    a      fact_aliases;
    v_fact uuid := new_id();
BEGIN
    PERFORM lock_user_memory(p_app_name, p_user_id);
    UPDATE fact_aliases SET undone_at = engine_now()
    WHERE id = p_id AND app_name = p_app_name AND user_id = p_user_id AND undone_at IS NULL
    RETURNING * INTO a;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no merge % of app % and user % to undo', p_id, quote_nullable(p_app_name),
            quote_nullable(p_user_id) USING ERRCODE = 'HP041';
    END IF;
    PERFORM FROM facts WHERE id = a.fact_id FOR UPDATE;
    UPDATE fact_versions SET fact_id = v_fact, normal_key = '=' || a.from_key
    WHERE fact_id = a.fact_id AND key = a.from_key;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM rebuild_fact(a.fact_id);
    PERFORM rebuild_fact(v_fact);
    PERFORM enqueue_embedding_backfill();
    RETURN v_fact;
END
$$;

-- A fact as it is embedded and searched.
CREATE OR REPLACE FUNCTION fact_text(p_key text, p_value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_key || ': ' || CASE jsonb_typeof(p_value -> 'text') WHEN 'string'
    THEN CASE coalesce(p_value ->> 'subject', 'user') WHEN 'user' THEN '' ELSE (p_value ->> 'subject')
         || CASE WHEN 'rule' = ANY (string_to_array(p_key, ':')) THEN ': ' ELSE ' ' END END
         || (p_value ->> 'text')
    ELSE p_value #>> '{}' END;
