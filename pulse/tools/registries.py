"""The registries of a process that serves many apps."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from pulse.sandbox.service import Sandbox, SelfTest

if TYPE_CHECKING:
    from pulse.database import Pool
    from pulse.sandbox.records import SandboxBackend
    from pulse.tools.registry import ToolRegistry

REGISTRIES_MAX = 256


class ToolRegistries:
    """A registry for each app, made when it is first asked for; of many apps, those used last are kept.

    Args:
        backend: where tools of code run; without it their calls fail. `close` closes it.
        options: for each `ToolRegistry`.
    """

    def __init__(self, pool: Pool, backend: SandboxBackend | None = None, **options: Any) -> None:
        self._pool = pool
        self._test = None if backend is None else SelfTest(backend)
        self._options = options
        self._registries: OrderedDict[str, ToolRegistry] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, app_name: str) -> ToolRegistry:
        """Return the registry of an app."""
        # Imported here: a process without the extra 'tools' serves everything else.
        from pulse.tools.registry import ToolRegistry

        found = self._registries.pop(app_name, None)
        if found is None:
            sandbox = None if self._test is None else Sandbox(self._pool, app_name, self._test)
            found = ToolRegistry(self._pool, app_name, sandbox=sandbox, **self._options)
        self._registries[app_name] = found
        if len(self._registries) > REGISTRIES_MAX:
            # Calls that it makes continue: a source is closed when its last call has ended.
            task = asyncio.create_task(self._registries.popitem(last=False)[1].close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return found

    async def close(self) -> None:
        """Close the registries. Idempotent."""
        for each in self._registries.values():
            await each.close()
        self._registries.clear()
        await asyncio.gather(*self._closing)
        if self._test is not None:
            await self._test.backend.close()
