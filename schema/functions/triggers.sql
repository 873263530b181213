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

CREATE OR REPLACE TRIGGER note_new_memories AFTER INSERT ON memories
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION note_new_memories();

CREATE OR REPLACE TRIGGER note_new_fact AFTER INSERT ON facts FOR EACH ROW EXECUTE FUNCTION note_changed_fact();

CREATE OR REPLACE TRIGGER note_changed_fact AFTER UPDATE OF value, valid_until ON facts
    FOR EACH ROW WHEN (OLD.value IS DISTINCT FROM NEW.value OR OLD.valid_until IS DISTINCT FROM NEW.valid_until)
    EXECUTE FUNCTION note_changed_fact();

CREATE OR REPLACE TRIGGER note_erasure AFTER INSERT ON erasures
    FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL) EXECUTE FUNCTION note_erasure();

CREATE OR REPLACE TRIGGER note_finished_erasure AFTER UPDATE OF finished_at ON erasures
    FOR EACH ROW WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION note_erasure();

CREATE OR REPLACE TRIGGER note_ended_job AFTER UPDATE OF status ON consolidation_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('completed', 'failed'))
    EXECUTE FUNCTION note_ended_job();

CREATE OR REPLACE TRIGGER pulse_events_append_only BEFORE UPDATE OR DELETE ON pulse_events
    FOR EACH ROW EXECUTE FUNCTION refuse_pulse_change();

CREATE OR REPLACE TRIGGER pulse_events_not_emptied BEFORE TRUNCATE ON pulse_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_pulse_change();

-- A trigger on TRUNCATE is not inherited: keep_pulse_partitions makes that of each month.
CREATE OR REPLACE TRIGGER pulse_events_not_emptied BEFORE TRUNCATE ON pulse_events_default
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_pulse_change();

CREATE OR REPLACE TRIGGER pulse_archive_append_only BEFORE UPDATE OR DELETE ON pulse_events_archive
    FOR EACH ROW EXECUTE FUNCTION refuse_pulse_change();

CREATE OR REPLACE TRIGGER pulse_archive_not_emptied BEFORE TRUNCATE ON pulse_events_archive
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_pulse_change();

CREATE OR REPLACE TRIGGER objects_written_once BEFORE UPDATE OR DELETE ON objects
    FOR EACH ROW EXECUTE FUNCTION refuse_pulse_change();

CREATE OR REPLACE TRIGGER objects_not_emptied BEFORE TRUNCATE ON objects
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_pulse_change();

CREATE OR REPLACE TRIGGER number_tool_change BEFORE INSERT OR UPDATE OF name, display_name, description, openapi_schema,
    permissions, is_active, is_gone, kind, input_schema, output_schema, operation, nature, timeout_seconds, version ON tools
    FOR EACH ROW EXECUTE FUNCTION number_tool_change();

CREATE OR REPLACE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();

CREATE OR REPLACE TRIGGER audit_log_not_truncated BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

CREATE OR REPLACE TRIGGER audit_api_keys AFTER INSERT OR DELETE OR UPDATE OF revoked_at, roles, app_name, user_id, user_roles
    ON api_keys FOR EACH ROW EXECUTE FUNCTION audit_act();

CREATE OR REPLACE TRIGGER audit_erasures AFTER INSERT ON erasures FOR EACH ROW EXECUTE FUNCTION audit_act();

CREATE OR REPLACE TRIGGER audit_replays AFTER INSERT OR UPDATE OF applied_at ON replays
    FOR EACH ROW EXECUTE FUNCTION audit_act();

CREATE OR REPLACE TRIGGER audit_app_policies AFTER INSERT OR UPDATE OR DELETE ON app_policies
    FOR EACH ROW EXECUTE FUNCTION audit_act();

CREATE OR REPLACE TRIGGER audit_webhook_endpoints AFTER INSERT OR DELETE OR UPDATE OF url, event_types, disabled_at
    ON webhook_endpoints FOR EACH ROW EXECUTE FUNCTION audit_act();

CREATE OR REPLACE TRIGGER audit_webhook_secrets AFTER INSERT ON webhook_secrets
    FOR EACH ROW EXECUTE FUNCTION audit_act();

CREATE OR REPLACE TRIGGER knowledge_documents_gone AFTER DELETE ON knowledge_documents
    FOR EACH ROW WHEN (OLD.procrastinate_job_id IS NOT NULL) EXECUTE FUNCTION cancel_ingest();
