"""Changes of the user's and the app's state by any session: the open streams of that user and app get them live.

A change is announced by NOTIFY after its commit, which may be lost, and is not sent by plain SQL. So the versions of
every watched pair are also read now and then, all of them in one statement.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pulse.agui.cursor import StateMark
from pulse.event_bridge import KnownState
from pulse.notify.watched_keys import WatchedKeys, WatchService
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import Statements
from pulse.scopes import merge_state

if TYPE_CHECKING:
    from pulse.database import Pool

#: The channel of `pulse.notify.notifier`.
SHARED_CHANNEL = "agent_shared"
#: The interval between two reads of the versions of every watched pair.
POLL_SECONDS = 10.0
_OWNERS_AT_ONCE = 500
_STATEMENTS = Statements("pulse.streams", "streams.sql")


class Owner(NamedTuple):
    """Whose states these are."""

    app_name: str
    user_id: str


@dataclass(frozen=True, slots=True, eq=False)
class SharedWatcher:
    """What has one version of the shared states, and takes newer ones. Both are called from the event loop."""

    mark: Callable[[], StateMark]
    receive: Callable[[KnownState], None]


class SharedStates(WatchService[Owner, SharedWatcher]):
    """Watches the shared states of users and apps. Create it before its listener starts."""

    def __init__(self, pool: Pool, listener: PgNotifyListener) -> None:
        self._pool = pool
        self._watched = WatchedKeys(
            "shared_states", self._read, batch_length_max=_OWNERS_AT_ONCE, poll_seconds=POLL_SECONDS
        )
        self._by_app: dict[str, dict[Owner, int]] = {}
        listener.add_channel(SHARED_CHANNEL, self._receive, self._watched.mark_all)

    def watch(self, owner: Owner, watcher: SharedWatcher) -> Callable[[], None]:
        """Call `watcher.receive` with states that are newer than its own; returns how to stop."""
        self._watched.add(owner, watcher)
        users = self._by_app.setdefault(owner.app_name, {})
        users[owner] = users.get(owner, 0) + 1
        # A change since the watcher read its own states was announced to no watcher.
        self._watched.mark(owner)
        return partial(self._forget, owner, watcher)

    def _forget(self, owner: Owner, watcher: SharedWatcher) -> None:
        self._watched.remove(owner, watcher)
        users = self._by_app.get(owner.app_name, {})
        users[owner] = users.get(owner, 0) - 1
        if users[owner] <= 0:
            del users[owner]
        if not users:
            self._by_app.pop(owner.app_name, None)

    def _receive(self, payload: str) -> None:
        # Any client of the database may notify: a payload of another form is ignored.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            changed = json.loads(payload)
            if changed["user_id"] is not None:
                self._watched.mark(Owner(changed["app_name"], changed["user_id"]))
                return
            for owner in self._by_app.get(changed["app_name"], {}):
                self._watched.mark(owner)

    async def _read(self, owners: Sequence[Owner]) -> None:
        known = {owner: [each.mark() for each in self._watched.watchers(owner)] for owner in owners}
        known = {owner: marks for owner, marks in known.items() if marks}
        if not known:
            return
        rows = await _STATEMENTS.fetch(
            self._pool,
            "shared_states",
            [owner.app_name for owner in known],
            [owner.user_id for owner in known],
            [min(mark.user for mark in marks) for marks in known.values()],
            [min(mark.app for mark in marks) for marks in known.values()],
        )
        for row in rows:
            owner = Owner(row["app_name"], row["user_id"])
            state = merge_state({}, row["user_state"], row["app_state"])
            latest = KnownState(state, StateMark(0, row["user_version"], row["app_version"]))
            for watcher in self._watched.watchers(owner):
                self._watched.call(owner, watcher, watcher.receive, latest)
