"""What the statements of the program take: an app and a user, or why they do not.

`tests/system/test_roles.py` sends every statement that takes an app and a user with the names of others. Here are those
that do nothing with the right names, and those that ask for no user, each with its reason.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

_NOW: Final = datetime.datetime.now(datetime.UTC)
_EVENT: Final = ("e9", "user", "user_message", "", '{"text": "x"}', "{}", {"k": 1}, None, None, "user", "x", None)
_MEMORY: Final = (uuid.uuid4(), "x", {}, 1.0, None)
_TURNS: Final = ["user_message"]

#: The arguments of statements whose comment describes them otherwise, in their order.
WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hippocampus.retention/retention.record_access": "ids, app, user",
        "hippocampus.retention/retention.time_slice": "app, user",
        "hippocampus.retention/retention.stats": "app or null, user or null",
        "hippocampus.retention/retention.differing_verdicts": "app, user or null",
        "hippocampus.retention/retention.archive_batch": "app or null",
        "hippocampus.retention/retention.weak_page": "app or null",
        "hippocampus.retention/retention.get_policy": "app",
        "hippocampus.retention/retention.set_policy": "app",
        "hippocampus.retention/retention.reset_policy": "app",
        "hippocampus.knowledge/knowledge.retry_document": "app, caller, roles, document",
        "hippocampus.knowledge/knowledge.remove_document": "app, caller, roles, corpus, document",
        "hippocampus.webhooks/webhooks.list_endpoints": "app or null",
        "hippocampus.webhooks/webhooks.get_endpoint": "id, app or null",
        "pulse/api_keys.list_api_keys": "app or null",
        "pulse/cells.app_cell": "app",
        "pulse.tools/tools.begin_tool_call": "app, user",
        "workers.transfer/moves.threads_of": "app",
        "workers.transfer/moves.is_expiring": "app",
        "workers.transfer/moves.drop_queued": "app",
        "workers.transfer/moves.serve_app": "app",
        "workers.transfer/moves.enqueue_documents": "app",
    }
)

#: Arguments by their place, where what fits their type does nothing.
GIVEN: Final[Mapping[str, Mapping[int, Any]]] = MappingProxyType(
    {
        "pulse/sessions.append_events": {3: None, 4: [_EVENT], 5: None, 6: None, 7: "off"},
        "pulse/sessions.append_next_event": {3: 2, 4: _EVENT, 5: "off"},
        "pulse.adk/sessions.append_adk_event": {3: 2, 4: _EVENT, 5: None, 7: "off"},
        "pulse.adk/sessions.append_seen_event": {3: ["e1", "e2"], 4: _EVENT, 5: None, 6: "off"},
        "workers.adk/importing.append_past_events": {3: [_EVENT], 4: True, 5: "off"},
        "pulse/sessions.create_session": {2: "new", 7: "off"},
        "pulse.adk/sessions.create_adk_session": {2: "new", 7: None, 8: "off"},
        "workers.adk/importing.import_session": {2: "new", 3: {}, 4: _NOW},
        "workers.adk/importing.import_state": {2: {"note": "x"}, 3: True},
        "pulse.runs/runs.start_run": {
            3: "new", 4: "holder", 5: 60.0, 6: [(*_EVENT[:3], "new", *_EVENT[4:])], 7: False, 8: None, 9: "off",
        },
        "pulse.runs/runs.get_run": {2: "r1"},
        "pulse.runs/runs.request_cancel": {2: "r1"},
        "pulse.runs/runs.list_runs": {3: None},
        "pulse/tickets.issue_ticket": {0: b"h" * 32, 4: None, 5: 60, 6: False},
        "pulse/artifacts.save_artifact": {2: None, 3: "a.txt", 4: '{"text": "x"}', 5: None, 6: "text/plain", 7: "{}"},
        "pulse/artifacts.read_artifact": {2: None, 3: "f.txt", 4: None, 5: True},
        "pulse/artifacts.list_artifact_keys": {2: None},
        "pulse/artifacts.delete_artifact": {2: None, 3: "f.txt"},
        "pulse/timeline.list_timeline": {3: 0, 5: _TURNS},
        "pulse/timeline.list_timeline_before": {3: 1000, 6: _TURNS, 5: _TURNS},
        "pulse.sandbox/sandbox.begin_execution": {0: None, 3: "monty", 4: "1", 5: {}},
        "pulse.state/state.changes_since": {3: 0, 4: 0, 5: 0},
        "pulse.state/state.list_changes": {3: None},
        "hippocampus/by_hand.write_facts": {
            2: "cli:x", 3: None, 5: None, 6: None, 7: "off",
            4: [("preference", "allergy", "none", "x", None, 1.0, [], _NOW, None, None, None)],
        },
        "hippocampus/memory.fact_history": {
            2: "profile", 3: "allergy:peanuts_make_me_sneeze", 5: None, 6: None, 7: None, 8: None,
        },
        "hippocampus/jobs.list_jobs": {3: None, 4: None, 5: None, 6: None},
        "hippocampus/search.search_memory": {
            3: None, 4: None, 7: "all", 13: 0.0, 14: None, 15: None, 16: None, 17: None, 18: None, 19: None, 20: None,
            21: False, 22: False,
        },
        "hippocampus/messages.read_conversation": {3: [], 4: _TURNS, 5: 100},
        "hippocampus/adk.running_session": {2: "peanuts make me sneeze", 3: 22},
        "hippocampus.facts/facts.list_candidates": {2: None, 4: None, 5: None, 6: None, 7: None},
        "hippocampus.facts/facts.list_merges": {2: None, 4: None, 5: None},
        "hippocampus.erasure/erasure.event_numbers": {3: [1], 4: ["e1"]},
        "hippocampus.erasure/provenance.find_event": {3: 1, 4: None},
        "hippocampus.erasure/provenance.drawn_from": {3: 1},
        "hippocampus.erasure/provenance.source_events": {3: [1], 4: [1], 5: ["[1]"], 6: 10},
        "hippocampus.retention/retention.pin_memory": {3: True},
        "hippocampus.retention/retention.compare_policies": {2: {}, 3: {}, 4: 100.0},
        "hippocampus.integrations/pydantic_ai.line": {2: None, 3: "e1", 4: _TURNS, 5: None, 6: 100},
        "hippocampus.integrations/claude_agent_sdk.read_known": {3: ["e1"]},
        "hippocampus.integrations/claude_agent_sdk.load": {3: "", 4: "user_message"},
        "hippocampus.transfer/memory_file.export_lines": {2: "memory", 3: False, 4: None},
        "hippocampus.transfer/given_memories.sources": {3: ["s"]},
        "hippocampus/by_hand.write_memory": {2: "cli:x", 3: _MEMORY, 4: "off"},
        "hippocampus.transfer/memory_file.import_lines": {2: "memory", 3: []},
        "hippocampus.transfer/given_memories.give_memories": {2: [_MEMORY]},
        "hippocampus.knowledge/knowledge.list_corpora": {2: [], 3: None, 4: 100, 5: None, 6: None},
        "hippocampus.knowledge/knowledge.corpus_to_remove": {2: [], 3: "own"},
        "hippocampus.knowledge/knowledge.list_documents": {
            2: [], 3: None, 4: None, 5: None, 6: None, 7: 100, 8: None, 9: None,
        },
        "hippocampus.knowledge/knowledge.read_text": {2: [], 4: 0, 5: 100, 6: None},
        "hippocampus.knowledge/knowledge.search_knowledge": {
            2: [], 4: None, 5: None, 7: None, 8: None, 9: None, 10: None, 11: 5, 12: "minmax",
        },
        "hippocampus.knowledge/knowledge.put_document": {
            2: [], 3: "own", 4: "b.md", 5: "b", 6: ["x"], 7: False, 8: True, 9: "text/markdown", 10: {}, 11: 1,
            12: False, 13: "off",
        },
        "hippocampus.knowledge/knowledge.retry_document": {2: []},
        "hippocampus.knowledge/knowledge.remove_document": {2: [], 3: "own", 4: "own.md"},
        "pulse.streams/streams.shared_states": {2: [0], 3: [0]},
        "pulse/audit.note_act": {0: "x", 3: {}, 4: "done"},
    }
)  # fmt: skip

#: Those that take lists of apps and users.
LISTS: Final = frozenset({"pulse.streams/streams.shared_states"})


def _labels(text: str) -> frozenset[str]:
    """Return the names of statements, each with its file, from words of which those that end with a colon are files."""
    labels, file = set(), ""
    for word in text.split():
        if word.endswith(":"):
            file = word.removesuffix(":")
        else:
            labels.add(f"{file}.{word}")
    return frozenset(labels)


#: By reason, the statements that do nothing to be seen with the right app and user.
INERT: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "It answers with names, numbers, or whether something is there.": _labels(
            """
            pulse/artifacts: list_artifact_keys
            hippocampus/memory: session_exists
            hippocampus/adk: running_session
            hippocampus.erasure/erasure: event_numbers find_target
            hippocampus.retention/retention: stats
            hippocampus.integrations/claude_agent_sdk: read_known load
            hippocampus.transfer/given_memories: unknown_events
            workers.cli/queries: list_owners users has_user forecast
            """
        ),
        "The two policies that it compares are the same.": _labels(
            """
            hippocampus.retention/retention: compare_policies differing_verdicts
            """
        ),
        "It adds to what no user owns, or only locks.": _labels(
            """
            pulse/audit: note_act
            pulse.state/state: take_snapshot
            hippocampus.erasure/erasure: request_user
            hippocampus.knowledge/knowledge: put_document
            hippocampus.consolidation/consolidation: lock_user_memory
            hippocampus.transfer/memory_file: begin_import import_lines
            hippocampus.transfer/given_memories: consolidate_session
            """
        ),
        "The scene has nothing of its kind.": _labels(
            """
            pulse.sandbox/sandbox: list_executions
            pulse.tracing/tracing: list_traces read_trace
            pulse.tools/tools: live_run decide_tool_call waiting_tool last_execution list_executions begin_tool_call
            pulse.state/state: list_changes
            hippocampus/adk: rewinds
            hippocampus.facts/facts: list_candidates list_merges
            hippocampus.erasure/erasure: get_erasure
            hippocampus.erasure/provenance: drawn_from
            hippocampus.retention/retention: time_slice restore_memories list_archive
            hippocampus.integrations/pydantic_ai: records
            hippocampus.integrations/claude_agent_sdk: list_sessions list_subpaths entries_of_subpath
            hippocampus.consolidation/job_effects: job_writes
            hippocampus.transfer/memory_file: export_lines standing_though_forgotten
            hippocampus.transfer/given_memories: sources turns_of_event
            workers.cli/queries: erasures changed_facts
            """
        ),
    }
)

#: By reason, the statements that PostgreSQL refuses with the right app and user.
REFUSED: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "There is no candidate, no merge and no failed document in the scene.": _labels(
            """
            hippocampus.facts/facts: promote_candidate undo_merge
            hippocampus.knowledge/knowledge: retry_document
            """
        ),
        "It names a role of PostgreSQL, which the scene does not have.": _labels(
            """
            workers.cli/roles: bind_reader
            """
        ),
    }
)

#: By reason, the statements that take no app and user.
UNSCOPED: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "It takes an app and no user: it is sent with the name of another app.": _labels(
            """
            hippocampus.facts/facts: fact_styles list_fact_styles reset_fact_style set_fact_style
            hippocampus.knowledge/knowledge: put_corpus
            hippocampus.retention/retention: archive_batch get_policy policy_of purge_archive reset_policy score_at
                set_policy weak_page
            hippocampus.store/store: delete_below get list_namespaces lock move_below put search
            hippocampus.webhooks/webhooks: add_endpoint disable_endpoint enable_endpoint get_delivery get_endpoint
                list_deliveries list_endpoints ping_endpoint remove_endpoint replay_events rotate_secret
            hippocampus/instructions: active_instructions approve_proposal get_instruction instruction_history
                list_proposals put_instruction reject_proposal
            hippocampus/users: list_users
            pulse.postgres/gateway: redaction_mode
            pulse.runs/runs: end_run run_is_taken write_run
            pulse.tools/tools: changed_tools find_run get_tool list_tools put_tool put_tool_source roll_tool_back
                set_active set_permissions tool_versions
            pulse/api_keys: list_api_keys
            pulse/audit: list_acts
            pulse/cells: app_cell
            workers.cli/queries: has_app is_logged is_set_up job_counts
            workers.transfer/moves: drop_queued enqueue_documents is_expiring mark_app_cell point_on serve_app
                threads_of
            """
        ),
        "It calls what the statement of the same name calls, with the context of a span besides.": _labels(
            """
            hippocampus.knowledge/knowledge: put_document_traced retry_document_traced
            pulse.adk/sessions: append_adk_event_traced append_seen_event_traced
            pulse.runs/runs: end_run_traced start_run_traced write_run_traced
            pulse/sessions: append_events_traced append_next_event_traced
            """
        ),
        "It is what finds or keeps a key or a ticket, from which the scope of a call follows.": _labels(
            """
            pulse/api_keys: create_api_key find_api_key get_api_key revoke_api_key touch_api_key
            pulse/tickets: redeem_ticket
            """
        ),
        "It takes an id that its caller found within the scope: docs/decisions.md, 'Row-level security'.": _labels(
            """
            hippocampus.consolidation/consolidation: keep_answer keep_job_result known_facts known_facts_as_of
                known_insights lock_slice next_replay_slice propose_instructions read_slice reuse_answer save_reply
                save_vectors store_rederivation store_slice swap_replay
            hippocampus.consolidation/job_effects: job_turns
            hippocampus.erasure/erasure: advance remaining
            hippocampus.knowledge/knowledge: begin_ingest fail_ingest finish_ingest known_chunks remove_corpus
                remove_documents stage_chunks
            hippocampus.store/store: refresh
            hippocampus/jobs: cancel_job enqueue_consolidation get_job retry_job
            pulse.runs/runs: client_position differing_calls differing_messages ending history last_event_of_run
                live_run renew_runs
            pulse.sandbox/sandbox: end_execution
            pulse.streams/streams: conversation current_run drop_live_texts gone_threads last_number live_texts
                next_lone_event next_run push_live_text run_events thread_state
            pulse.tools/tools: end_tool_call get_source
            pulse/pg_notify_listener: new_events
            workers.autonomic/senses: enqueue_consolidation
            workers.cli/queries: job_history session_counts session_names turns
            workers.queue/claims: abort_job fail_job fence_job finish_job postpone_job release_job retry_job_at
            workers.queue/liveness: rescue_job
            workers.transfer/sessions: count_events import_events
            workers.webhooks/deliveries: begin_webhook end_webhook
            """
        ),
        "It is a task of the upkeep, which goes through the rows of every user.": _labels(
            """
            hippocampus.consolidation/consolidation: choose_embedding_model fill_vectors give_fact_vectors
                give_memory_vectors give_message_vectors list_vectorless next_rederivation prune_refusals refuse_texts
                vector_index_changes
            hippocampus.erasure/erasure: unfinished
            hippocampus.knowledge/knowledge: give_chunk_vectors list_vectorless_chunks
            hippocampus.store/store: expire
            hippocampus.transfer/memory_file: backfill_after_import
            pulse.runs/runs: reap_runs
            pulse.state/state: prune_snapshots
            workers.queue/upkeep: archive_jobs delete_expired_session enqueue_embedding_backfill enqueue_idle
                enqueue_redraws expire_store_items find_work idle_waits keep_pulse_partitions keep_trace_partitions
                prune_artifact_blobs prune_audit_log prune_default_traces prune_jobs_archive prune_knowledge
                prune_live_messages prune_queue prune_sandbox prune_snapshots prune_tickets prune_tool_calls
                prune_webhooks reap_runs reconcile_jobs reconcile_knowledge
            workers.webhooks/deliveries: reconcile_webhooks
            """
        ),
        "It concerns processes, the schema or the installation, or is the operator's own.": _labels(
            """
            hippocampus.transfer/memory_file: export_kinds
            hippocampus/users: list_apps
            pulse.adk/sessions: check_tables
            pulse.autonomic/autonomic: begin_tick check end_tick find_release find_scope gc_vitals get_object
                last_snapshots lead limit_idle list_events list_releases list_tasks make_scope own_channel ping
                promote put_object put_vitals reconcile rollback stage status task_events task_projections
                task_transition wake
            pulse.http.edge/pages: cursor_key
            pulse.notify/notify: keep_listener_alive notify session
            pulse.postgres/gateway: act_as
            pulse.streams/streams: notify_test send_transient
            pulse.tracing/tracing: store_spans
            pulse/cells: app_cells
            pulse/database: backend begin_session is_standby log_position own_log_position own_replayed replayed
                set_session_limit
            workers.api/autonomic: events pulse_status
            workers.autonomic/archive: archived_events drop_archive keep_partitions list_archive may_drop
            workers.autonomic/senses: begin_effect database delete_target end_effect gc_vitals open_effect
                own_processes queues run_upkeep_now shed_load survey
            workers.cli/queries: apps now policies
            workers.cli/roles: grant_roles
            workers.migrate/catalogue: catalogue_delete catalogue_put extension_home list_objects
            workers.migrate/functions: is_ours objects_of_files own_functions put_hash views_of_file wide_paths
            workers.migrate/records: make_catalogue make_records record_file unapply_files
            workers.migrate/replaced: list_set_aside other_transactions
            workers.migrate/run: has_function taken_tables
            workers.models/call_gate: admit_call blocked_seconds penalise_limit release_probe report_failure
                report_success
            workers.queue/liveness: find_orphans hold_worker send_heartbeat
            workers.telemetry/discovery: delete_metrics_target list_metrics_targets put_metrics_target
            workers.telemetry/overview: breakers day_costs failed_jobs failures hours lag limits live_processes
                oldest_webhook_seconds pulse_scopes queues spend texts_without_vector totals
            workers.telemetry/queue_state: breaker_states queue_state take_export_lock
            workers.transfer/moves: applied copying default_policy moved_tables own_policy snapshot_start verbatim
                waiting_briefly
            workers.transfer/sessions: import_session import_state plain_values silence
            workers/doctor: backlog clock clocks collation connections extension identity lacking_privileges
                oldest_transaction probe_disk replay_lag_seconds roles settings size synchronous_standbys unlimited
            """
        ),
    }
)
