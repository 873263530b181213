"""The autonomic layer: an installation senses itself, decides by rules, and records what to do. No model.

Nothing else imports this package. What executes effects is `workers.autonomic`.
"""

from pulse.autonomic.errors import (
    ArchiveDiffersError,
    AutonomicError,
    IllegalTransitionError,
    ObjectCorruptError,
    PulseNotFoundError,
    ReleaseMovedError,
    ReleaseRefusedError,
    WrittenOnceError,
)
from pulse.autonomic.helpers import adaptive_interval, clamp_tick, cooldown, dedupe, error_backoff
from pulse.autonomic.objects import get_object, put_object
from pulse.autonomic.onion import compose, decide
from pulse.autonomic.releases import Release, ReleaseService, Rollback, ScopeState
from pulse.autonomic.survival import SURVIVAL
from pulse.autonomic.tasks import (
    AgentStats,
    PendingTasks,
    TaskEvent,
    TaskService,
    TaskState,
    agent_capability_stats,
    fold_task,
    fold_tasks,
    pending_tasks,
)
from pulse.autonomic.tick import Ticked, TickLoop
from pulse.autonomic.types import Done, Effect, Inner, Outcome, Rule, Sample, Snapshot, WatcherDef
from pulse.autonomic.watchers import Vitals, Watchers

__all__ = [
    "SURVIVAL",
    "AgentStats",
    "ArchiveDiffersError",
    "AutonomicError",
    "Done",
    "Effect",
    "IllegalTransitionError",
    "Inner",
    "ObjectCorruptError",
    "Outcome",
    "PendingTasks",
    "PulseNotFoundError",
    "Release",
    "ReleaseMovedError",
    "ReleaseRefusedError",
    "ReleaseService",
    "Rollback",
    "Rule",
    "Sample",
    "ScopeState",
    "Snapshot",
    "TaskEvent",
    "TaskService",
    "TaskState",
    "TickLoop",
    "Ticked",
    "Vitals",
    "WatcherDef",
    "Watchers",
    "WrittenOnceError",
    "adaptive_interval",
    "agent_capability_stats",
    "clamp_tick",
    "compose",
    "cooldown",
    "decide",
    "dedupe",
    "error_backoff",
    "fold_task",
    "fold_tasks",
    "get_object",
    "pending_tasks",
    "put_object",
]
