"""Tests that state a limit in seconds run alone, after all others, in the last process of the suite.

A run of their own would collect and import everything once more, and migrate another template.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: What the names of these tests end with in a process of xdist: all that its scheduler knows of a test is its name.
SUFFIX = "@alone"


def name_those_alone(items: list[pytest.Item]) -> None:
    """Put the tests with a limit in seconds last, and name them for the scheduler."""
    items.sort(key=lambda item: item.get_closest_marker("timing") is not None)
    for item in items:
        if item.get_closest_marker("timing"):
            _rename(item, item.nodeid + SUFFIX)


def _rename(item: pytest.Item, name: str) -> None:
    """Rename a test as xdist's own `loadgroup` would, also where pytest (since 9.2) keeps the name in parts."""
    if hasattr(item, "_id"):
        item._id = type(item._id).parse(name)
    else:
        item._nodeid = name


class AloneAtTheEnd(LoadFileScheduling):
    """Like `--dist loadfile`; then the tests named `…@alone` run one by one, when every other process has ended."""

    def remove_node(self, node: WorkerController) -> str | None:
        running = super().remove_node(node)
        for left in self.nodes:
            self._reschedule(left)
        return running

    def _split_scope(self, nodeid: str) -> str:
        return SUFFIX if nodeid.endswith(SUFFIX) else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if SUFFIX in self.workqueue:
            # The work of a process that crashed was queued behind.
            self.workqueue.move_to_end(SUFFIX)
        if not self._only_those_alone() or self.nodes == [node]:
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        others = [other for other in self.nodes if other is not node]
        if node not in self.registered_collections:
            return  # It replaces one that crashed, and still collects.
        if not self._only_those_alone() or not others:
            before = len(self.workqueue)
            super()._reschedule(node)
            # It begins a test when it knows the next. What a crashed process had done is queued again, without a test.
            if len(self.workqueue) < before and self._pending_of(self.assigned_work[node]) < 2:
                self._reschedule(node)
        elif any(not other.shutting_down for other in others):
            # It ends after what it was given. The last one to come here stays, and waits for the others' end.
            node.shutdown()

    def _only_those_alone(self) -> bool:
        return list(self.workqueue) == [SUFFIX]
