-- Context windows.

-- What a window shows of a fact: its text, without the key where the value is a sentence that stands by itself.
CREATE OR REPLACE FUNCTION fact_line(p_key text, p_value jsonb, p_content text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(p_value -> 'text') = 'string' AND starts_with(p_content, p_key || ': ')
            THEN substr(p_content, char_length(p_key) + 3) ELSE p_content END;

-- The terms of a text that tell it from others: words and Chinese pairs, not the characters of these pairs.
CREATE OR REPLACE FUNCTION telling_terms(p_text text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT coalesce(array_agg(t.term) FILTER (WHERE length(t.term) > 1 OR octet_length(t.term) = 1), '{}')
    FROM unnest(tsvector_to_array(search_document(coalesce(p_text, '')))) AS t (term)
$$;

-- Whether a rule or preference is only stated again: 'No calls before 9, same as always' after 'don't call me before 9'.
-- The two tell the same, apart from words of repetition, and deny as often.
CREATE OR REPLACE FUNCTION says_again(p_before text, p_now text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
    SELECT count(*) = 1 AND min(cardinality(d.terms)) > 0
    FROM (SELECT DISTINCT regexp_count(s.plain, '\m(no|not|never|none|without|stop|avoid)\M|n''t\M|[不没别勿]') AS denials,
                 ARRAY(SELECT t.term FROM unnest(telling_terms(regexp_replace(s.plain,
                           '\m((same )?as (always|ever|before|usual)|always|still|again|no|not|never|none|without)\M'
                           '|\w+n''t\M|还是|仍然|一直|总是|照旧', ' ', 'g'))) AS t (term) ORDER BY t.term) AS terms
          FROM (SELECT lower(replace(x.text, '’', '''')) AS plain FROM unnest(ARRAY[p_before, p_now]) AS x (text)) AS s) AS d
$$;

-- The turns whose statement no longer holds: a fact that was extracted from them has another value now, or has ended.
-- said: the value they state; holds: the fact's present text, NULL if it ended; since: when it changed.
CREATE OR REPLACE FUNCTION outdated_turns(p_app_name text, p_user_id text)
RETURNS TABLE (thread_id uuid, sequence_num bigint, said text, holds text, since timestamptz, changed_in uuid)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT DISTINCT ON (v.thread_id, s.seq, f.id) v.thread_id, s.seq, coalesce(v.value ->> 'text', v.value #>> '{}'),
           CASE WHEN f.valid_until IS NULL OR f.valid_until > engine_now() THEN fact_line(f.key, f.value, f.content) END,
           CASE WHEN f.valid_until IS NULL OR f.valid_until > engine_now() THEN f.valid_from ELSE f.valid_until END,
           CASE WHEN f.valid_until IS NULL OR f.valid_until > engine_now() THEN f.thread_id
                ELSE (SELECT e.thread_id FROM fact_versions AS e
                      WHERE e.fact_id = f.id AND e.value IS NULL AND e.valid_from = f.valid_until
                        AND e.accepted_at IS NOT NULL AND e.retracted_at IS NULL LIMIT 1) END
    FROM fact_versions AS v JOIN facts AS f ON f.id = v.fact_id CROSS JOIN unnest(v.source_seqs) AS s (seq)
    WHERE v.app_name = p_app_name AND v.user_id = p_user_id AND f.app_name = p_app_name AND f.user_id = p_user_id
      AND v.thread_id IS NOT NULL AND v.value IS NOT NULL AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL
      AND v.valid_from <= engine_now() AND (v.value <> f.value OR f.valid_until <= engine_now())
      AND NOT (f.fact_type IN ('rule', 'preference') AND (f.valid_until IS NULL OR f.valid_until > engine_now())
               AND says_again(coalesce(v.value ->> 'text', v.value #>> '{}'), coalesce(f.value ->> 'text', f.value #>> '{}')))
      -- A correction cites the turn that it corrects, too.
      AND NOT (f.thread_id IS NOT DISTINCT FROM v.thread_id AND s.seq = ANY (f.source_seqs)
               AND v.valid_from = f.valid_from AND (f.valid_until IS NULL OR f.valid_until > engine_now()))
    ORDER BY v.thread_id, s.seq, f.id, v.valid_from DESC
$$;

-- Whether a text has the words of another; Chinese and Japanese have no spaces between words. '' is in no text.
CREATE OR REPLACE FUNCTION says_words(p_content text, p_words text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
BEGIN
    IF btrim(p_words) = '' OR is_cjk(left(btrim(p_words), 1)) THEN
        RETURN btrim(p_words) <> '' AND strpos(lower(p_content), lower(btrim(p_words))) > 0;
    END IF;
    RETURN strpos(' ' || plain_key(p_content) || ' ', ' ' || plain_key(p_words) || ' ') > 0;
END
$$;

-- Whether a memory says what a fact's former value was extracted from: it quotes the turn, or a sentence of it says the
-- value. That takes most of the words that the value has and what holds now (p_holds, '' for nothing) has not, and beside
-- them another one of the value or, as far as the turn has any beside the value, of the turn: 'It rains in Porto' does not
-- say who lives there. A value without telling words ('猫') is said where it stands and what holds now does not.
-- p_search: the terms of the memory. Of a turn that is too long to be quoted, the beginning counts.
CREATE OR REPLACE FUNCTION states_value(
    p_content text, p_search tsvector, p_turn text, p_said text, p_holds text) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
DECLARE
    v_start  constant text := left(p_turn, 30000);
    v_quoted constant text := CASE WHEN octet_length(p_turn) <= octet_length(p_content) + 64
                                   THEN lower(btrim(p_turn, E' \n\t.!?。！？')) ELSE '' END;
    v_turn   text[];
    v_value  text[];
    v_held   text;
    v_new    text[];
    v_own    text[];
    v_least  integer;
    v_terms  text[];
BEGIN
    IF v_quoted <> '' AND strpos(lower(p_content), v_quoted) > 0 THEN
        v_turn := telling_terms(v_start);
        IF cardinality(v_turn) > 1 THEN
            RETURN true;
        END IF;
    END IF;
    v_value := telling_terms(p_said);
    -- Without its key, if it has one.
    v_held := regexp_replace(p_holds, '^[^:]{1,255}: ', '');
    IF v_value = '{}' THEN
        RETURN says_words(p_content, p_said) AND NOT says_words(p_content, v_held)
               AND (is_cjk(left(p_said, 1)) OR coalesce(v_turn, telling_terms(v_start)) && tsvector_to_array(p_search));
    END IF;
    IF NOT v_value && tsvector_to_array(p_search) THEN
        RETURN false;
    END IF;
    v_own := ARRAY(SELECT unnest(v_value) EXCEPT SELECT unnest(telling_terms(v_held)));
    -- Only the pairs without a character of the current value: from '住在北京' before '住在上海' that is '北京'.
    v_own := coalesce(nullif(ARRAY(SELECT o.term FROM unnest(v_own) AS o (term)
                                   WHERE NOT is_cjk(left(o.term, 1)) OR v_held !~ ('[' || o.term || ']')), '{}'),
                      nullif(v_own, '{}'), v_value);
    IF NOT v_own && tsvector_to_array(p_search) THEN
        RETURN false;
    END IF;
    v_turn := coalesce(v_turn, telling_terms(v_start));
    v_new := ARRAY(SELECT unnest(telling_terms(v_held)) EXCEPT SELECT unnest(v_value));
    v_least := CASE WHEN cardinality(v_own) <= 2 THEN cardinality(v_own)
                    WHEN is_cjk(left(v_own[1], 1)) THEN (cardinality(v_own) + 1) / 2
                    ELSE cardinality(v_own) / 2 + 1 END;
    FOR v_terms IN
        SELECT telling_terms(regexp_replace(s.sentence, '^\s*[^:：。,，]{1,40}[:：]', ''))
        FROM regexp_split_to_table(p_content, '[.!?;。！？；\n]+') AS s (sentence)
    LOOP
        CONTINUE WHEN (SELECT count(*) FROM unnest(v_own) AS o (term) WHERE o.term = ANY (v_terms)) < v_least;
        -- 'We moved from Porto to Lisbon' says what holds now.
        CONTINUE WHEN v_new <> '{}' AND v_new <@ v_terms;
        IF v_value <@ v_own AND (cardinality(v_value) > 1 OR NOT v_value <@ v_turn OR v_turn <@ v_value)
           OR v_terms <@ (v_turn || v_value)
           OR EXISTS (SELECT FROM unnest(v_terms) AS t (term)
                      WHERE t.term = ANY (v_turn || v_value) AND t.term <> ALL (v_own)) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;

-- Whether a fact has its place in every window: allergies, diets and rules, whosever they are, by the words of the key in
-- any of its forms: 'allergy:nuts', 'caroline_allergy', 'foodIntolerances', 'dietary_restrictions', '饮食禁忌'.
-- What is planned, liked or came about is named by its words: 'event:started_a_diet'. So is what has its name from them:
-- 'diet_coke_preference', 'game_rules'.
CREATE OR REPLACE FUNCTION is_standing(p_fact_type text, p_key text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_fact_type = 'rule'
       OR lower(CASE WHEN p_key ~ '[a-z][A-Z]' THEN regexp_replace(p_key, '([a-z])([A-Z])', '\1_\2', 'g') ELSE p_key END)
          ~ ('(^|[^a-z])(allerg(y|ies|ic|ens?)|intoleran(t|ces?)|diets?|dietary|(food|eating)[^a-z]+restrictions?|rules?)($|[^a-z])'
             || '|过敏|不耐受|忌口|忌食|禁忌|饮食|素食|清真|规则|规矩')
          AND lower(p_key) !~ '(^|:)(event|plan|goal|(dis)?likes?|hobby|hobbies):'
          AND lower(regexp_replace(p_key, '([a-z])([A-Z])', '\1_\2', 'g'))
              !~ ('diets?[^a-z:]+(coke|cola|pepsi|sodas?)|rules?[^a-z:]+engines?'
                  || '|(projects?|games?|grammar|engine|firewall)[^a-z:]+rules?|(游戏|项目|语法|比赛)的?规则');

-- Candidates for a context window, in one round trip: what matches the query and the newest summaries ('memory'), facts
-- that match, the standing ones and the most certain ones ('fact'), the newest turns of the session ('history'). place
-- is the rank within each kind, and within memories among the turns and among the rest: 1 is taken first; history
-- counts from the newest turn. A blank query matches nothing. Errors: HP001 unknown session.
--
-- p_passages: how many turns that match are wanted, from all of the user's sessions. Then slices are left out, since
-- their turns are found by themselves, and the turns before and after each of the best 10 follow, with `beside`, the turn
-- that they are next to. 0: only turns that fast_replay has not reached are found, among the p_memories.
-- p_said_…: the times that the query names, as in search_memory.
-- content: at most 500,001 characters, one more than is packed: a turn may have megabytes.
-- changed: what holds instead of what a turn or a memory states ('' if nothing does), since changed_at.
CREATE OR REPLACE FUNCTION context_candidates(
    p_app_name text, p_user_id text, p_session_id text, p_query text,
    p_embedding vector DEFAULT NULL, p_embedding_model text DEFAULT NULL,
    p_memories integer DEFAULT 20, p_facts integer DEFAULT 20, p_turns integer DEFAULT 30,
    p_passages integer DEFAULT 0,
    p_said_since timestamptz[] DEFAULT NULL, p_said_until timestamptz[] DEFAULT NULL, p_said_words text[] DEFAULT NULL,
    p_said_weights double precision[] DEFAULT NULL)
RETURNS TABLE (
    context_type text, place bigint, source text, id uuid, kind text, author text, content text,
    relevance double precision, thread_id uuid, from_seq bigint, upto_seq bigint, occurred_at timestamptz,
    score double precision, session_id text, source_seqs bigint[], fact_key text, is_standing boolean, beside uuid,
    changed text, changed_at timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_thread uuid;
    outdated record;
BEGIN
    SELECT array_agg(o.thread_id) AS threads, array_agg(o.sequence_num) AS seqs, array_agg(o.said) AS said,
           array_agg(coalesce(o.holds, '')) AS holds, array_agg(o.since) AS since, array_agg(o.changed_in) AS changed_in
    INTO outdated FROM outdated_turns(p_app_name, p_user_id) AS o;
    IF p_session_id IS NOT NULL THEN
        SELECT t.id INTO v_thread FROM threads AS t
        WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND t.session_id = p_session_id AND NOT has_expired(t);
        IF NOT FOUND THEN
            PERFORM refuse_missing_session(p_app_name, p_user_id, p_session_id);
        END IF;
    END IF;
    IF btrim(p_query) <> '' THEN
        RETURN QUERY
            WITH changes AS MATERIALIZED (
                SELECT * FROM unnest(outdated.threads, outdated.seqs, outdated.said, outdated.holds, outdated.since,
                                     outdated.changed_in) AS o (thread_id, sequence_num, said, holds, since, changed_in)
            ), found AS MATERIALIZED (
                SELECT s.source, s.id, s.score, s.relevance, s.occurred_at,
                       CASE WHEN s.source = 'fact' THEN 'fact'
                            WHEN s.source = 'message' AND p_passages > 0 THEN 'turn' ELSE 'memory' END AS group_of
                FROM search_memory(p_app_name, p_user_id, p_query, p_embedding, p_embedding_model,
                                   least(4 * (p_memories + p_facts) + p_passages, 4000),
                                   p_messages => CASE WHEN p_passages > 0 THEN 'all' ELSE 'recent' END,
                                   p_said_since => p_said_since, p_said_until => p_said_until,
                                   p_said_words => p_said_words, p_said_weights => p_said_weights, p_bare => true) AS s
            ), ranked AS MATERIALIZED (
                SELECT r.* FROM (
                    SELECT f.*, row_number() OVER (PARTITION BY f.group_of ORDER BY f.score DESC, f.id) AS nth
                    FROM found AS f) AS r
                WHERE r.nth <= CASE r.group_of WHEN 'fact' THEN p_facts WHEN 'turn' THEN p_passages ELSE p_memories END
            ), read AS MATERIALIZED (
                -- A table is not asked for the rows of another: nothing has the id NULL.
                SELECT r.*, coalesce(m.memory_type, f.fact_type, g.role)::text AS kind, g.author,
                       left(CASE WHEN f.id IS NULL THEN coalesce(m.content, g.content)
                                 ELSE fact_line(f.key, f.value, f.content) END, 500001) AS content,
                       coalesce(m.thread_id, f.thread_id, g.thread_id) AS thread_id,
                       coalesce(m.from_seq, f.from_seq, g.sequence_num) AS from_seq,
                       coalesce(m.upto_seq, f.upto_seq, g.sequence_num) AS upto_seq,
                       coalesce(m.source_seqs, f.source_seqs, ARRAY[g.sequence_num]) AS source_seqs,
                       f.key AS fact_key, is_standing(f.fact_type, f.key) AS is_standing, m.search
                FROM ranked AS r
                LEFT JOIN messages AS g ON g.id = CASE WHEN r.source = 'message' THEN r.id END
                LEFT JOIN memories AS m ON m.id = CASE WHEN r.source = 'memory' THEN r.id END
                LEFT JOIN facts AS f ON f.id = CASE WHEN r.source = 'fact' THEN r.id END
            ), beside AS (
                SELECT DISTINCT ON (g.id) g.*, r.id AS beside, r.nth
                FROM read AS r CROSS JOIN LATERAL (
                    (SELECT m.* FROM messages AS m
                     WHERE m.thread_id = r.thread_id AND m.sequence_num < r.from_seq
                     ORDER BY m.sequence_num DESC LIMIT 1)
                    UNION ALL
                    (SELECT m.* FROM messages AS m
                     WHERE m.thread_id = r.thread_id AND m.sequence_num > r.from_seq
                     ORDER BY m.sequence_num LIMIT 1)) AS g
                WHERE r.group_of = 'turn' AND r.nth <= 10
                  AND NOT EXISTS (SELECT FROM ranked AS k WHERE k.source = 'message' AND k.id = g.id)
                ORDER BY g.id, r.nth
            ), candidates AS (
                SELECT CASE r.group_of WHEN 'fact' THEN 'fact' ELSE 'memory' END AS context_type, r.nth AS place, r.source,
                       r.id, r.kind, r.author, r.content, r.relevance, r.thread_id, r.from_seq, r.upto_seq, r.occurred_at,
                       r.score, r.source_seqs, r.fact_key, r.is_standing, NULL::uuid AS beside, r.search
                FROM read AS r
                UNION ALL
                SELECT 'memory', 100000 + b.nth, 'message', b.id, b.role::text, b.author, left(b.content, 500001), 0, b.thread_id,
                       b.sequence_num, b.sequence_num, b.occurred_at, 0, ARRAY[b.sequence_num], NULL, NULL, b.beside,
                       NULL
                FROM beside AS b
            )
            SELECT c.context_type, c.place, c.source, c.id, c.kind, c.author, c.content, c.relevance, c.thread_id,
                   c.from_seq, c.upto_seq, c.occurred_at, c.score, t.session_id::text, c.source_seqs, c.fact_key::text,
                   coalesce(c.is_standing, false), c.beside, coalesce(l.holds, o.holds), coalesce(l.since, o.since)
            FROM candidates AS c LEFT JOIN threads AS t ON t.id = c.thread_id
            LEFT JOIN (SELECT DISTINCT ON (o.thread_id, o.sequence_num) o.* FROM changes AS o
                       ORDER BY o.thread_id, o.sequence_num, o.since DESC) AS l
                ON c.source = 'message' AND l.thread_id = c.thread_id AND l.sequence_num = c.from_seq
            LEFT JOIN LATERAL (
                SELECT o.holds, o.since
                FROM changes AS o
                WHERE o.thread_id = c.thread_id AND c.source = 'memory'
                  -- A summary is of a range; an insight, of some turns of one.
                  AND CASE WHEN c.kind <> 'semantic' AND o.sequence_num BETWEEN c.from_seq AND c.upto_seq
                                OR o.sequence_num = ANY (c.source_seqs)
                           THEN states_value(c.content, c.search,
                                             (SELECT g.content FROM messages AS g
                                              WHERE g.thread_id = o.thread_id AND g.sequence_num = o.sequence_num),
                                             o.said, o.holds) END
                ORDER BY o.since DESC LIMIT 1) AS o
                ON c.context_type = 'memory';
    END IF;
    RETURN QUERY
        WITH changes AS MATERIALIZED (
            SELECT * FROM unnest(outdated.threads, outdated.seqs, outdated.said, outdated.holds, outdated.since,
                                 outdated.changed_in) AS o (thread_id, sequence_num, said, holds, since, changed_in)
        )
        (SELECT 'memory', 1000 + m.nth, 'memory', m.id, m.memory_type::text, NULL::text, m.content, 0::double precision,
                m.thread_id, m.from_seq, m.upto_seq, m.occurred_at, 0::double precision, t.session_id::text, m.source_seqs,
                NULL::text, false, NULL::uuid, o.holds, o.since
         FROM (SELECT n.*, row_number() OVER (ORDER BY n.occurred_at DESC, n.id DESC) AS nth
               FROM (SELECT * FROM memories WHERE app_name = p_app_name AND user_id = p_user_id
                     ORDER BY created_at DESC LIMIT 50) AS n
               WHERE n.memory_type = 'summary' ORDER BY nth LIMIT 3) AS m
         LEFT JOIN threads AS t ON t.id = m.thread_id
         LEFT JOIN LATERAL (
             SELECT o.holds, o.since
             FROM changes AS o
             WHERE o.thread_id = m.thread_id
               AND CASE WHEN o.sequence_num BETWEEN m.from_seq AND m.upto_seq OR o.sequence_num = ANY (m.source_seqs)
                        THEN states_value(m.content, m.search,
                                          (SELECT g.content FROM messages AS g
                                           WHERE g.thread_id = o.thread_id AND g.sequence_num = o.sequence_num),
                                          o.said, o.holds) END
             ORDER BY o.since DESC LIMIT 1) AS o ON true)
        UNION ALL
        (SELECT 'fact', CASE WHEN k.is_standing THEN 0 ELSE 1000 END
                        + row_number() OVER (ORDER BY k.confidence DESC, k.updated_at DESC, k.id), 'fact', k.id,
                k.fact_type, NULL, fact_line(k.key, k.value, k.content), 0, k.thread_id, k.from_seq, k.upto_seq,
                k.valid_from, 0, t.session_id::text,
                k.source_seqs, k.key::text, k.is_standing, NULL, NULL, NULL
         FROM (
             SELECT f.*, row_number() OVER (PARTITION BY s.is_standing
                                            ORDER BY f.confidence DESC, f.updated_at DESC, f.id) AS nth, s.is_standing
             FROM facts AS f, LATERAL (SELECT is_standing(f.fact_type, f.key)) AS s (is_standing)
             WHERE f.app_name = p_app_name AND f.user_id = p_user_id
               AND (f.valid_until IS NULL OR f.valid_until > engine_now())) AS k
         LEFT JOIN threads AS t ON t.id = k.thread_id
         WHERE k.nth <= CASE WHEN k.is_standing THEN 50 ELSE p_facts END)
        UNION ALL
        (SELECT 'history', row_number() OVER (ORDER BY g.sequence_num DESC), 'message', g.id, g.role, g.author,
                left(g.content, 500001), 1, g.thread_id, g.sequence_num, g.sequence_num, g.occurred_at, 1, p_session_id,
                ARRAY[g.sequence_num], NULL, false, NULL, o.holds, o.since
         FROM (SELECT * FROM messages AS g
               WHERE g.thread_id = v_thread AND g.app_name = p_app_name AND g.user_id = p_user_id
               ORDER BY g.sequence_num DESC LIMIT p_turns) AS g
         LEFT JOIN LATERAL (
             -- What was changed in the session itself is said there, further down.
             SELECT o.holds, o.since
             FROM changes AS o
             WHERE o.thread_id = g.thread_id AND o.sequence_num = g.sequence_num
               AND o.changed_in IS DISTINCT FROM g.thread_id
             ORDER BY o.since DESC LIMIT 1) AS o ON true);
END
$$;

-- How many tokens a text costs, overestimated rather than underestimated; equals count_tokens in hippocampus/text/tokens.py.
CREATE OR REPLACE FUNCTION count_tokens(body text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ceil((100 * regexp_count(body, '[A-Za-z]+') + 11 * regexp_count(body, '(?<=[A-Za-z]{5})[A-Za-z]')
             + 8 * regexp_count(body, '[A-Z]') + 100 * regexp_count(body, '[0-9\u0080-\u07ff]')
             + 75 * regexp_count(body, '[\u0001-\u0008\u000e-\u001f!-/:-@\[-`{-\u007f]')
             + 90 * regexp_count(body, '[\n\v\f\r]') + 110 * regexp_count(body, '[\u0800-\uffff]')
             + 300 * regexp_count(body, '[\U00010000-\U0010ffff]')) / 100.0)::integer;

-- The longest beginning of a turn that costs at most p_tokens, with a mark at its end; NULL if too little would be
-- left.
CREATE OR REPLACE FUNCTION cut_turn(p_content text, p_tokens integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
AS $$
DECLARE
    c_mark   constant text := ' […]';
    -- Prose has fewer than eight characters a token, so only a bounded beginning is measured.
    v_low    integer := 0;
    v_high   integer := least(char_length(p_content), 8 * greatest(p_tokens, 0));
    v_middle integer;
BEGIN
    IF p_tokens < 16 THEN
        RETURN NULL;
    END IF;
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high + 1) / 2;
        IF count_tokens(left(p_content, v_middle) || c_mark) <= p_tokens THEN
            v_low := v_middle;
        ELSE
            v_high := v_middle - 1;
        END IF;
    END LOOP;
    RETURN CASE WHEN v_low > 0 THEN left(p_content, v_low) || c_mark END;
END
$$;

-- The language that most words of texts are in, 'zh' or else 'en'; NULL if there is no word. Equals language_of in
-- hippocampus/text/languages.py.
CREATE OR REPLACE FUNCTION language_of(p_texts text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
    SELECT CASE WHEN sum(n.chinese + n.other) > 0
                THEN CASE WHEN sum(n.chinese) >= sum(n.other) THEN 'zh' ELSE 'en' END END
    FROM unnest(p_texts) AS t (body),
         LATERAL (SELECT left(t.body, 300) AS body) AS b,
         LATERAL (SELECT regexp_count(b.body, '[\u3400-\u4dbf\u4e00-\u9fff]') AS han,
                         b.body ~ '[\u3040-\u30ff\uac00-\ud7af]' AS is_not_chinese,
                         regexp_count(b.body, '[A-Za-z\u00c0-\u024f]+') AS words) AS c,
         LATERAL (SELECT CASE WHEN c.is_not_chinese THEN 0 ELSE c.han END AS chinese,
                         c.words + CASE WHEN c.is_not_chinese THEN c.han + 1 ELSE 0 END AS other) AS n);

-- A speaker and a type of facts as a window shows them. Equal speaker and fact_kind in hippocampus/context/languages.py.
CREATE OR REPLACE FUNCTION window_speaker(p_author text, p_language text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN lower(btrim(p_author)) IN ('user', '用户')
                THEN CASE p_language WHEN 'zh' THEN '用户' ELSE 'user' END
            WHEN lower(btrim(p_author)) IN ('model', 'agent', 'assistant', '助手')
                THEN CASE p_language WHEN 'zh' THEN '助手' ELSE 'assistant' END
            WHEN lower(btrim(p_author)) IN ('tool', '工具')
                THEN CASE p_language WHEN 'zh' THEN '工具' ELSE 'tool' END
            ELSE p_author END;

CREATE OR REPLACE FUNCTION window_fact_kind(p_fact_type text, p_language text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(CASE p_language WHEN 'zh' THEN
    CASE p_fact_type WHEN 'rule' THEN '规则' WHEN 'preference' THEN '偏好' WHEN 'profile' THEN '资料'
                     WHEN 'custom' THEN '其他' WHEN 'insight' THEN '见解' WHEN 'instruction' THEN '指令' END
    END, p_fact_type);

-- A context window for callers of plain SQL, from the same candidates. The sum of token_estimate is at most
-- p_max_tokens; facts get what the two ratios leave. Each section first fills its own share; unspent tokens go to the
-- history, then to the memories, then to the facts. Standing facts come before memories and other facts, in at most half
-- of the window, which the history leaves them. The newest turn is cut rather than left out; a memory or a fact
-- that is too long is skipped, as is a text that the window contains already.
-- Turns that match the query are memories, with their date in UTC and their speaker; every fifth memory is another one.
-- Turns of the session have it where a day begins that is not today's, if p_max_tokens is at least 100.
-- What no longer holds is followed by what does. Roles and types of facts are in the language of the history and the
-- query, or else of what was found.
-- p_session_id NULL: the user's latest session. p_embedding_model NULL: the model of the newest memory.
CREATE OR REPLACE FUNCTION get_context_window(
    p_user_id text, p_app_name text, p_query text, p_query_embedding vector DEFAULT NULL,
    p_max_tokens integer DEFAULT 4000, p_memory_ratio double precision DEFAULT 0.3,
    p_history_ratio double precision DEFAULT 0.5, p_session_id text DEFAULT NULL, p_embedding_model text DEFAULT NULL)
RETURNS TABLE (context_type text, content text, relevance_score double precision, token_estimate integer)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    c_kinds constant text[] := '{history,standing,memory,fact}';
    v_session text := coalesce(p_session_id, (
        SELECT t.session_id FROM threads AS t
        WHERE t.app_name = p_app_name AND t.user_id = p_user_id AND NOT has_expired(t)
        ORDER BY last_event_at DESC NULLS LAST, id DESC LIMIT 1));
    v_model text := coalesce(p_embedding_model, (
        SELECT embedding_model FROM memories WHERE app_name = p_app_name AND user_id = p_user_id
        ORDER BY created_at DESC LIMIT 1));
    v_growth constant double precision := least(greatest(sqrt(greatest(p_max_tokens, 0) / 8000.0), 1), 4);
    v_shares integer[];
    v_used   integer[] := '{0,0,0,0}';
    v_kept   integer := 0;     -- reserved for the newest turn until it is packed
    v_kinds  text[];
    v_ids    uuid[];
    v_texts  text[];
    v_scores double precision[];
    v_tokens integer[];
    v_taken  boolean[];
    v_room   integer;
    v_cut    text;
    v_dates  text[];           -- of turns of the session that are not today's
    v_dated  integer := 0;     -- reserved for that of the first one
    v_oldest integer;
BEGIN
    IF p_max_tokens < 0 OR p_memory_ratio < 0 OR p_history_ratio < 0 OR p_memory_ratio + p_history_ratio > 1 THEN
        RAISE EXCEPTION 'max_tokens must not be negative, and the two ratios are shares of 1' USING ERRCODE = 'HP007';
    END IF;
    WITH candidates AS MATERIALIZED (
        SELECT * FROM context_candidates(p_app_name, p_user_id, v_session, p_query, p_query_embedding, v_model, (10 * v_growth)::integer,
                                         (10 * v_growth)::integer, (20 * v_growth)::integer,
                                         least(greatest(p_max_tokens / 30, 20), (400 * v_growth)::integer))
    ), spoken AS (
        SELECT coalesce(language_of(array_agg(c.content) FILTER (WHERE c.context_type = 'history') || p_query),
                        language_of(array_agg(c.content)), 'en') AS language
        FROM candidates AS c
    ), days AS (
        SELECT d.id, d.date, d.date <> lag(d.date) OVER (ORDER BY d.from_seq) AS is_first
        FROM (SELECT c.id, c.from_seq, (c.occurred_at AT TIME ZONE 'UTC')::date AS date FROM candidates AS c
              WHERE c.context_type = 'history' AND p_max_tokens >= 100) AS d
    ), found AS (
        SELECT DISTINCT ON (c.context_type, c.id)
               CASE WHEN c.is_standing THEN 'standing' ELSE c.context_type END AS context_type,
               c.id, c.place, c.source <> 'message' AS is_derived, c.relevance,
               '(' || nullif(d.date, (engine_now() AT TIME ZONE 'UTC')::date) || ') ' AS date,
               CASE WHEN c.context_type = 'fact' THEN '[' || window_fact_kind(c.kind, l.language) || '] '
                    WHEN c.source = 'message' THEN
                        CASE WHEN c.context_type = 'memory' OR d.is_first
                             THEN '(' || (c.occurred_at AT TIME ZONE 'UTC')::date || ') ' ELSE '' END
                        || '[' || window_speaker(c.author, l.language) || ']: '
                    ELSE '' END
               || c.content
               || coalesce(' (→ ' || coalesce(nullif(c.changed, ''), '∅') || ', '
                           || (c.changed_at AT TIME ZONE 'UTC')::date || ')', '') AS body
        FROM candidates AS c CROSS JOIN spoken AS l
        LEFT JOIN days AS d ON c.context_type = 'history' AND d.id = c.id
        ORDER BY c.context_type, c.id, c.place
    ), ordered AS (
        SELECT f.*, row_number() OVER (ORDER BY array_position(c_kinds, f.context_type),
                                          CASE WHEN f.is_derived THEN 4 * f.place ELSE f.place END, f.id) AS nth
        FROM found AS f
    )
    SELECT array_agg(o.context_type ORDER BY o.nth), array_agg(o.body ORDER BY o.nth),
           array_agg(o.relevance ORDER BY o.nth), array_agg(count_tokens(o.body) ORDER BY o.nth),
           array_agg(false ORDER BY o.nth), array_agg(o.id ORDER BY o.nth), array_agg(o.date ORDER BY o.nth)
    INTO v_kinds, v_texts, v_scores, v_tokens, v_taken, v_ids, v_dates FROM ordered AS o;
    v_dated := coalesce((SELECT max(count_tokens(d.date)) FROM unnest(v_dates) AS d (date)), 0);
    v_shares := ARRAY[floor(p_max_tokens * p_history_ratio),
                      least((SELECT coalesce(sum(t.tokens), 0) FROM unnest(v_kinds, v_tokens) AS t (kind, tokens)
                             WHERE t.kind = 'standing'), p_max_tokens / 2),
                      floor(p_max_tokens * p_memory_ratio),
                      floor(p_max_tokens * (1 - p_memory_ratio - p_history_ratio))];
    v_shares[1] := least(v_shares[1], p_max_tokens - v_shares[2]);

    FOR within_share IN REVERSE 1 .. 0 LOOP
        FOR k IN 1 .. 4 LOOP
            IF k = 1 THEN
                v_kept := 0;
            END IF;
            FOR i IN 1 .. coalesce(cardinality(v_kinds), 0) LOOP
                CONTINUE WHEN v_kinds[i] <> c_kinds[k] OR v_taken[i];
                v_room := greatest(p_max_tokens - v_used[1] - v_used[2] - v_used[3] - v_used[4] - v_kept - v_dated, 0);
                IF within_share = 1 THEN
                    v_room := least(v_room, v_shares[k] - v_used[k]);
                END IF;
                IF v_tokens[i] <= v_room THEN
                    CONTINUE WHEN k > 1 AND EXISTS (
                        SELECT FROM unnest(v_texts, v_taken, v_ids) AS t (body, taken, id)
                        WHERE t.taken AND (t.body = v_texts[i] OR t.id = v_ids[i]));
                ELSIF k > 1 THEN
                    CONTINUE;
                ELSIF within_share = 1 THEN
                    IF v_used[1] = 0 THEN
                        v_kept := greatest(v_room, 16);
                    END IF;
                    EXIT;
                ELSE
                    v_cut := cut_turn(v_texts[i], v_room);
                    EXIT WHEN v_cut IS NULL;
                    v_texts[i] := v_cut;
                    v_tokens[i] := count_tokens(v_cut);
                END IF;
                v_taken[i] := true;
                v_used[k] := v_used[k] + v_tokens[i];
                EXIT WHEN k = 1 AND v_cut IS NOT NULL;
            END LOOP;
        END LOOP;
    END LOOP;
    v_oldest := (SELECT max(t.nth) FROM unnest(v_kinds, v_taken) WITH ORDINALITY AS t (kind, taken, nth)
                 WHERE t.kind = 'history' AND t.taken);
    IF v_dates[v_oldest] IS NOT NULL AND NOT starts_with(v_texts[v_oldest], v_dates[v_oldest]) THEN
        v_texts[v_oldest] := v_dates[v_oldest] || v_texts[v_oldest];
        v_tokens[v_oldest] := count_tokens(v_texts[v_oldest]);
    END IF;
    RETURN QUERY
        SELECT CASE w.kind WHEN 'standing' THEN 'fact' ELSE w.kind END, w.body, w.score, w.tokens
        FROM unnest(v_kinds, v_texts, v_scores, v_tokens, v_taken) WITH ORDINALITY
             AS w (kind, body, score, tokens, taken, nth)
        WHERE w.taken
        ORDER BY array_position(ARRAY['standing', 'fact', 'memory', 'history'], w.kind),
                 CASE w.kind WHEN 'history' THEN -w.nth ELSE w.nth END;
END
$$;
