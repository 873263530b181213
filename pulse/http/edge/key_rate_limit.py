"""The rate limit of each key: a token bucket per key, within this process."""

from __future__ import annotations

import math
import time
from collections import OrderedDict

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from pulse.http.edge import problems
from pulse.http.edge.refusals import refuse
from pulse.http.edge.roles import grant_of

_KEYS_MAX = 10_000


class RateLimit:
    """Answers 429 to a key whose bucket is empty.

    Args:
        per_second: the tokens that each bucket regains in a second; a request takes one.
        burst: the capacity of a bucket.
    """

    def __init__(self, app: ASGIApp, per_second: float, burst: int) -> None:
        self._app = app
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        key = None if scope["type"] == "lifespan" else _key_of(HTTPConnection(scope))
        wait_seconds = 0.0 if key is None else self._take(key)
        if not wait_seconds:
            await self._app(scope, receive, send)
            return
        headers = {"Retry-After": str(math.ceil(wait_seconds))}
        await refuse(problems.TOO_MANY_REQUESTS, scope, receive, send, headers=headers)

    def _take(self, key_id: str) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        now = time.monotonic()
        tokens, at = self._buckets.pop(key_id, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._per_second)
        wait_seconds = 0.0 if tokens >= 1 else (1 - tokens) / self._per_second
        self._buckets[key_id] = (tokens if wait_seconds else tokens - 1, now)
        if len(self._buckets) > _KEYS_MAX:
            self._buckets.popitem(last=False)
        return wait_seconds


def _key_of(connection: HTTPConnection) -> str | None:
    """Return whose bucket a request takes from; a ticket that starts runs has one of its own."""
    grant = grant_of(connection)
    if grant is not None:
        return grant.key_id
    ticket = connection.query_params.get("ticket")
    return None if ticket is None or connection.scope.get("method") != "POST" else f"ticket {ticket[:200]}"
