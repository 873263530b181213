"""The names of events: which are stored, which say something, which a timeline shows, which end a run.

    user_message, assistant_message, message      somebody says something; `message` is accepted from frameworks that do
                                                  not tell user and assistant apart
    thought, act, observe                         a thought, a call of a tool, its result
    work_plan, step_start, step_end,
    pattern_match, skill_matched,
    skill_execution_start, skill_execution_complete   what an agent plans and does
    state_update                                  a change of state and nothing else
    run_started                                   a run that begins without a message of the user
    adk_event                                     what only Google ADK reads
    complete, error, cancelled                    the end of a run, once

Other names are stored as they are and mean nothing here. Pieces of a stream are never stored, by whomever.
"""

from __future__ import annotations

#: What one turn of an agent leaves behind.
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

#: Events that say something: the corpus of search, the history of a context window.
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

#: Pieces of a message while it is being streamed. They are pushed live and never stored as events.
DELTA_EVENT_TYPES = frozenset(
    f"{kind}_{piece}" for kind in ("text", "thought", "act") for piece in ("start", "delta", "end")
)
