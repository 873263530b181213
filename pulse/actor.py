"""Who acts: noted with administrative acts, by the statement gateway and the triggers of the audit log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

#: Acts of a program that says nothing else.
LIBRARY = "library"
#: Acts of the periodic upkeep.
WORKER = "worker"
_actor: ContextVar[str] = ContextVar("hippocampus_actor", default=LIBRARY)


def current_actor() -> str:
    """Return who acts in this task: ``key:<id>``, ``cli:<user>``, ``library``, ``worker``, or what a host set."""
    return _actor.get()


def act_as(actor: str) -> None:
    """Have the current task, and the tasks that it starts from now on, act as `actor`."""
    _actor.set(actor[:255] or LIBRARY)


@contextlib.contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Act as `actor` within a block, as a host does for a person who uses it."""
    token = _actor.set(actor[:255] or LIBRARY)
    try:
        yield
    finally:
        _actor.reset(token)
