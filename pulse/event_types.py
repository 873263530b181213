"""The names of events: which are stored, which are messages, which a timeline shows, which end a run.

    user_message, assistant_message, message      a message; `message` is for frameworks that do not distinguish user
                                                  and assistant
    thought, act, observe                         a thought, a call of a tool, its result
    work_plan, step_start, step_end,
    pattern_match, skill_matched,
    skill_execution_start, skill_execution_complete   the plans and the progress of an agent
    custom, activity, activity_delta,
    subagent_start, subagent_end, subagent_error  events in AG-UI's own terms: see `pulse.agui.wire`
    state_update                                  a change of state alone
    run_started                                   a run that begins without a message of the user
    adk_event                                     read by Google ADK alone
    complete, error, cancelled                    the end of a run, once

Other names are stored as they are and have no meaning here. Pieces of a stream are never stored; what a run that ends
early has streamed is stored with ``"partial": true`` in its content.
"""

from __future__ import annotations

#: The events that one turn of an agent stores.
PERSISTENT_EVENT_TYPES = frozenset(
    {
        "user_message",
        "thought",
        "act",
        "observe",
        "assistant_message",
        "work_plan",
        "step_start",
        "step_end",
        "pattern_match",
        "skill_matched",
        "skill_execution_start",
        "skill_execution_complete",
        "complete",
        "error",
    }
)

#: Messages: the corpus of search, the history of a context window.
MESSAGE_EVENT_TYPES = frozenset({"user_message", "assistant_message", "message"})

#: What a conversation's timeline shows.
TIMELINE_EVENT_TYPES = frozenset({"user_message", "thought", "act", "observe", "assistant_message"})

STATE_UPDATE = "state_update"
RUN_STARTED = "run_started"
ADK_EVENT = "adk_event"
COMPLETE = "complete"
ERROR = "error"
CANCELLED = "cancelled"

#: The last event of a run, by the status that it ends with.
TERMINAL_EVENT_TYPES = {"completed": COMPLETE, "failed": ERROR, "cancelled": CANCELLED}

#: Pieces of a message while it is being streamed: pushed live, never stored as events.
DELTA_EVENT_TYPES = frozenset(
    f"{kind}_{piece}" for kind in ("text", "thought", "act") for piece in ("start", "delta", "end")
)
