"""The state of one invocation before it is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from pulse.postgres.json_values import DELETED
from pulse.scopes import Scope, parse_state_prefix, without_deleted


class StateOverlay(MutableMapping[str, Any]):
    """The stored state, and over it what this invocation has set.

    Nothing of it reaches the session before it is committed. ``temp:`` keys are kept here and nowhere else. A deleted
    key is `DELETED` in the delta.
    """

    def __init__(self, persistent: Mapping[str, Any]) -> None:
        self._persistent = persistent
        self._pending: dict[str, Any] = {}

    @property
    def delta(self) -> dict[str, Any]:
        """What was set and is to be stored: everything but ``temp:`` keys."""
        return {key: value for key, value in self._pending.items() if parse_state_prefix(key)[0] is not Scope.TEMP}

    @property
    def pending(self) -> dict[str, Any]:
        """What was set, including ``temp:`` keys."""
        return dict(self._pending)

    def mark_stored(self) -> None:
        """Forget what was set, except for ``temp:`` keys, which are stored nowhere else."""
        for key in self.delta:
            del self._pending[key]

    def discard(self) -> None:
        """Forget everything that was set."""
        self._pending.clear()

    def __getitem__(self, key: str) -> Any:
        value = self._pending[key] if key in self._pending else self._persistent[key]
        if value is DELETED:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._pending[key] = value

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._pending[key] = DELETED

    def __iter__(self) -> Iterator[str]:
        return iter(without_deleted({**self._persistent, **self._pending}))

    def __len__(self) -> int:
        return len(without_deleted({**self._persistent, **self._pending}))
