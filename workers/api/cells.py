"""The API over several cells: each request goes to the API of the cell that serves its app.

A request names its app in the path, the query or the header X-App-Name; one that names none goes to the default cell.
Every process reads where the apps are (`pulse.cells`) once a second, a writer of one cell only every three. When an app
has moved, its open streams are ended, so that their clients reconnect, with the id of the last frame that they
received, to the new cell.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import structlog
from starlette.datastructures import Headers, QueryParams

from pulse.cells import DEFAULT_CELL, REFRESH_SECONDS, AppCell, apps_elsewhere
from pulse.http.edge import problems
from pulse.http.edge.origins import note_origins
from pulse.http.edge.refusals import refuse
from workers.failures import DATABASE_FAULTS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pulse.database import Pool

_PATH = "/v1/apps/"
#: "Service Restart": a client connects again.
_SOCKET_RESTART = 1012
#: A writer of one cell only has to notice that an app has left it: while the database still says `app-moving`, and well
#: before the app's rows are deleted.
_LONE_REFRESH_SECONDS = 5 * REFRESH_SECONDS

_log = structlog.get_logger(__name__)


class CellDirectory:
    """Which cell serves which app, as far as the cells that this process has reached say."""

    def __init__(self, names: tuple[str, ...] = (DEFAULT_CELL,)) -> None:
        self.names = names
        self._pools: dict[str, Pool] = {}
        self._elsewhere: dict[str, dict[str, AppCell]] = {}

    async def add(self, name: str, pool: Pool) -> None:
        """Read a cell from now on."""
        self._elsewhere[name] = await apps_elsewhere(pool)
        self._pools[name] = pool

    def remove(self, name: str) -> None:
        """No longer read a cell."""
        self._pools.pop(name, None)

    def cell_of(self, app_name: str) -> str:
        """Return the cell that serves an app, the last known one that the cells point at from the default one."""
        name = DEFAULT_CELL
        for _ in range(len(self.names) + 1):
            found = self._elsewhere.get(name, {}).get(app_name)
            if found is None or not found.is_elsewhere:
                break
            name = found.cell
        return name

    async def run(self) -> None:
        """Read the cells until cancelled; of one that does not answer, the last known rows hold."""
        is_read = True
        while True:
            is_alone = len(self.names) == 1
            await asyncio.sleep(_LONE_REFRESH_SECONDS if is_alone and is_read else REFRESH_SECONDS)
            is_read = True
            for name, pool in list(self._pools.items()):
                try:
                    self._elsewhere[name] = await apps_elsewhere(pool)
                except DATABASE_FAULTS as error:
                    is_read = False
                    _log.warning("cell_unread", cell=name, error=type(error).__name__)


class CellGuard:
    """Refuses requests for an app that another cell serves, with the name of that cell.

    It is behind the check of the key, so that a refusal reveals nothing to other callers.
    """

    def __init__(self, app: ASGIApp, directory: CellDirectory, cell: str) -> None:
        self._app = app
        self._directory = directory
        self._cell = cell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        app_name = named_app(scope)
        cell = self._cell if app_name is None else self._directory.cell_of(app_name)
        if cell == self._cell:
            await self._app(scope, receive, send)
            return
        detail = f"the app {app_name!r:.300} is served by the cell {cell}, not by {self._cell}"
        await refuse(problems.WRONG_CELL, scope, receive, send, detail=detail)


class CellRouter:
    """Passes each request to the API of its app's cell."""

    def __init__(self, directory: CellDirectory, stream_origins: frozenset[str] = frozenset()) -> None:
        self._directory = directory
        self._stream_origins = stream_origins
        self._apis: dict[str, ASGIApp] = {}

    def add(self, name: str, api: ASGIApp) -> None:
        """Pass requests for a cell's apps to its API from now on."""
        self._apis[name] = api

    def remove(self, name: str) -> None:
        """Refuse requests for a cell's apps from now on: it cannot be reached."""
        self._apis.pop(name, None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        app_name = named_app(scope)
        cell = DEFAULT_CELL if app_name is None else self._directory.cell_of(app_name)
        api = self._apis.get(cell)
        if api is None and cell in self._directory.names:
            # Not reached yet; its apps belong to no other cell.
            note_origins(scope, self._stream_origins)
            scope["state"]["request_id"] = ""
            await refuse(problems.DATABASE_UNREACHABLE, scope, receive, send, detail=f"the cell {cell} does not answer")
        elif app_name is None or len(self._apis) == 1:
            await self._apis[DEFAULT_CELL](scope, receive, send)
        else:
            await self._follow(app_name, cell, api or self._apis[DEFAULT_CELL], scope, receive, send)

    async def _follow(self, app_name: str, cell: str, api: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection; a stream that lasts longer than the app stays is ended."""
        started = False
        loop = asyncio.get_running_loop()

        async def noted(message: Message) -> None:
            nonlocal started
            started = started or message["type"] in ("http.response.start", "websocket.accept")
            await send(message)

        serving = asyncio.ensure_future(api(scope, receive, noted))

        timer: asyncio.TimerHandle

        def check() -> None:
            nonlocal timer
            if started and self._directory.cell_of(app_name) != cell:
                serving.cancel()
            else:
                timer = loop.call_later(REFRESH_SECONDS, check)

        timer = loop.call_later(REFRESH_SECONDS, check)
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            if not serving.cancelled():
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
                raise
            _log.info("stream_sent_on", app=app_name, former=cell, cell=self._directory.cell_of(app_name))
            with contextlib.suppress(Exception):  # the client may be gone, or the response be complete
                await send(_end_of(scope))
        finally:
            timer.cancel()


def _end_of(scope: Scope) -> Message:
    if scope["type"] == "websocket":
        return {"type": "websocket.close", "code": _SOCKET_RESTART, "reason": "the app has moved: connect again"}
    return {"type": "http.response.body", "body": b"", "more_body": False}


def named_app(scope: Scope) -> str | None:
    """Return the app that a request names, in its path, or else in the query or the header; None for none."""
    if scope["type"] not in ("http", "websocket"):
        return None
    path = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
    if path.startswith(_PATH):
        return unquote_to_bytes(path.removeprefix(_PATH).partition("/")[0]).decode(errors="replace")
    in_query = QueryParams(scope["query_string"]).get("app_name")
    if in_query is not None:
        return in_query
    in_header = Headers(scope=scope).get("x-app-name")
    return None if in_header is None else unquote_to_bytes(in_header).decode(errors="replace")
