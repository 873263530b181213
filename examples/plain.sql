-- Everything from psql: sessions, memory and context without a line of Python.
--
--     psql "$DATABASE_URL" -f examples/plain.sql
--
-- The database's workers run what is enqueued here. Errors have SQLSTATEs of class HP: see schema/README.md.
\set ON_ERROR_STOP on

\echo == A session, with state in two scopes
SELECT version, user_state FROM create_session('psql', 'ann', 'visit-1', '{"step": 1}', '{"language": "en"}');

\echo == Two events; the second only if the session is still at version 1
SELECT sequence_num, version FROM append_event('psql', 'ann', 'visit-1', NULL, 'e1', 'user', 'user_message',
    '{"text": "I am allergic to peanuts."}', 'user', 'I am allergic to peanuts.');
SELECT sequence_num, version FROM append_event('psql', 'ann', 'visit-1', 1, 'e2', 'model', 'assistant_message',
    '{"text": "I will remember that."}', 'assistant', 'I will remember that.', '{"step": 2}');

\echo == The same event again changes nothing
SELECT sequence_num, appended FROM append_event('psql', 'ann', 'visit-1', NULL, 'e1', 'user', 'user_message',
    '{"text": "I am allergic to peanuts."}', 'user', 'I am allergic to peanuts.');

\echo == Found at once, by its words
SELECT source, content, matched_terms FROM search_memory('psql', 'ann', 'what is she allergic to?', p_limit => 1);

\echo == A context window of at most 100 tokens
SELECT context_type, content, token_estimate FROM get_context_window('ann', 'psql', 'allergic', NULL, 100);

\echo == The session is over: jobs for the workers
SELECT job_type, created FROM finalize_session('psql', 'ann', 'visit-1') ORDER BY job_type;

\echo == How strong a memory is that was used five times, three days after
SELECT round(calculate_retention_score(5, now() - interval '3 days')::numeric, 4) AS classic;

SELECT delete_session('psql', 'ann', 'visit-1');
