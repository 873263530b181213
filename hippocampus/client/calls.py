"""The client's requests: one connection pool, an app's paths, pages, and retries of safe calls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from hippocampus.client.errors import ConnectionFailedError, problem_of

#: The time limit of one attempt.
TIMEOUT_SECONDS = 30.0
#: Attempts at a safe call, the first included.
ATTEMPTS_MAX = 4
#: How long a safe call waits in all between its attempts.
RETRY_WAIT_SECONDS_MAX = 10.0
_FIRST_WAIT_SECONDS = 0.2
_TRANSIENT = frozenset({429, 503})


class Calls:
    """Calls the API on behalf of one app.

    Args:
        base_url: such as http://127.0.0.1:8000.
        api_key: a key of `hippocampus keys create`; None if the API needs none.
        timeout_seconds: the time limit of each attempt.
        retry_wait_seconds_max: all waits between the attempts of one call together.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        app_name: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_wait_seconds_max: float = RETRY_WAIT_SECONDS_MAX,
    ) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=timeout_seconds)
        self._app_name = app_name
        self._retry_wait_seconds_max = retry_wait_seconds_max

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _app(self, *parts: str) -> str:
        return "/v1/apps/" + _path(self._app_name, *parts)

    def _user(self, user_id: str, *parts: str) -> str:
        return self._app("users", user_id, *parts)

    def _owner(self, user_id: str) -> dict[str, str]:
        """Return the query that names the app and the user, for a path that does not."""
        return {"app_name": self._app_name, "user_id": user_id}

    async def _pages(self, path: str, name: str, **params: Any) -> AsyncIterator[Mapping[str, Any]]:
        params = plain(params)
        while True:
            page = await self._call("GET", path, params=params)
            for each in page[name]:
                yield each
            following = page.get("next_cursor") or page.get("nextCursor")
            if following is None:
                return
            params["cursor"] = following

    async def _call(self, method: str, path: str, *, is_safe: bool = False, **request: Any) -> Any:
        """Send a request, retry it if that is safe and the API is busy, and return the response's body."""
        waited_seconds = 0.0
        for attempt in range(1, ATTEMPTS_MAX + 1):
            response = await self._send(method, path, **request)
            if response.status_code < 400:
                return response.json() if response.content else None
            wait_seconds = _wait_seconds(response, attempt)
            is_over = attempt == ATTEMPTS_MAX or waited_seconds + wait_seconds > self._retry_wait_seconds_max
            if response.status_code not in _TRANSIENT or not (is_safe or method == "GET") or is_over:
                break
            await asyncio.sleep(wait_seconds)
            waited_seconds += wait_seconds
        raise problem_of(response)

    async def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise ConnectionFailedError(
                f"{method} {path}: no response from {self._http.base_url} ({type(error).__name__})"
            ) from error


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not None, with times in the API's format."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in options.items()
        if value is not None
    }


def _path(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def _wait_seconds(response: httpx.Response, attempt: int) -> float:
    """Return the wait of Retry-After and a random addition, so that clients do not retry at the same time."""
    given = response.headers.get("retry-after", "")
    least = float(given) if given.isdecimal() else _FIRST_WAIT_SECONDS * 2 ** (attempt - 1)
    return least * (1 + random.random() / 4)  # noqa: S311 - no secret
