-- Triggers, apart from their functions: CREATE TRIGGER locks its table against writers, so this file changes rarely.


CREATE OR REPLACE TRIGGER threads_updated_at BEFORE UPDATE OF state, metadata, version ON threads
    FOR EACH ROW WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION update_updated_at();

CREATE OR REPLACE TRIGGER user_states_updated_at BEFORE UPDATE ON user_states
    FOR EACH ROW WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION update_updated_at();

CREATE OR REPLACE TRIGGER app_states_updated_at BEFORE UPDATE ON app_states
    FOR EACH ROW WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION update_updated_at();

CREATE OR REPLACE TRIGGER app_policies_updated_at BEFORE UPDATE ON app_policies
    FOR EACH ROW WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION update_updated_at();

CREATE OR REPLACE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION refuse_event_change();

CREATE OR REPLACE TRIGGER notify_event_insert AFTER INSERT ON events
    FOR EACH ROW WHEN (current_setting('hippocampus.notify', true) IS DISTINCT FROM 'off')
    EXECUTE FUNCTION notify_event_insert();

CREATE OR REPLACE TRIGGER mirror_job_status AFTER UPDATE OF status ON procrastinate_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION mirror_job_status();

CREATE OR REPLACE TRIGGER wake_next_job AFTER UPDATE OF status ON procrastinate_jobs
    FOR EACH ROW WHEN (OLD.status <> NEW.status AND NEW.status <> 'doing') EXECUTE FUNCTION wake_next_job();

-- An erasure may still empty the error of a failed run, which may quote the user.
CREATE OR REPLACE TRIGGER runs_end_once BEFORE UPDATE OF status, completed_at ON runs
    FOR EACH ROW WHEN (OLD.status <> 'running') EXECUTE FUNCTION refuse_run_revival();

CREATE OR REPLACE TRIGGER release_artifact_blob AFTER DELETE ON artifact_versions
    FOR EACH ROW WHEN (OLD.sha256 IS NOT NULL) EXECUTE FUNCTION release_artifact_blob();

CREATE OR REPLACE TRIGGER facts_normal_key BEFORE INSERT ON facts FOR EACH ROW EXECUTE FUNCTION set_normal_key();

CREATE OR REPLACE TRIGGER fact_versions_normal_key BEFORE INSERT ON fact_versions
    FOR EACH ROW EXECUTE FUNCTION set_normal_key();

CREATE OR REPLACE TRIGGER note_fact AFTER INSERT OR UPDATE OF value, valid_until ON facts
    FOR EACH ROW EXECUTE FUNCTION note_fact();

CREATE OR REPLACE TRIGGER threads_gone AFTER DELETE ON threads
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION notify_thread_gone();

CREATE OR REPLACE TRIGGER index_vector AFTER INSERT ON memories
    FOR EACH ROW WHEN (NEW.embedding IS NOT NULL) EXECUTE FUNCTION index_vector();

CREATE OR REPLACE TRIGGER index_changed_vector AFTER UPDATE OF embedding, embedding_model ON memories
    FOR EACH ROW WHEN (OLD.embedding IS NOT NULL OR NEW.embedding IS NOT NULL) EXECUTE FUNCTION index_vector();

CREATE OR REPLACE TRIGGER index_vector AFTER INSERT ON messages
    FOR EACH ROW WHEN (NEW.embedding IS NOT NULL) EXECUTE FUNCTION index_vector();

CREATE OR REPLACE TRIGGER index_changed_vector AFTER UPDATE OF embedding, embedding_model ON messages
    FOR EACH ROW WHEN (OLD.embedding IS NOT NULL OR NEW.embedding IS NOT NULL) EXECUTE FUNCTION index_vector();

CREATE OR REPLACE TRIGGER index_vector AFTER INSERT ON facts
    FOR EACH ROW WHEN (NEW.embedding IS NOT NULL) EXECUTE FUNCTION index_vector();

CREATE OR REPLACE TRIGGER index_changed_vector AFTER UPDATE OF embedding, embedding_model ON facts
    FOR EACH ROW WHEN (OLD.embedding IS NOT NULL OR NEW.embedding IS NOT NULL) EXECUTE FUNCTION index_vector();
