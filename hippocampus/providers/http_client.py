"""A client of a JSON API over HTTP: one time limit and one byte limit for a call, no redirects, one kind of error.

Only this module knows httpx. It retries nothing: `hippocampus.providers.calls.Caller` does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from hippocampus.errors import PermanentProviderError, ProviderError, TransientProviderError
from hippocampus.providers import http_faults
from hippocampus.providers.calls import check_connection
from hippocampus.providers.per_loop import PerLoop

#: An error's body, or a reply whose size is not known beforehand.
REPLY_BYTES_MAX = 4 * 1024 * 1024
_EVIDENCE_CHARACTERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConnection:
    """Where and how an API is called. Headers are left out of its representation: they hold the key."""

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = 60.0  # of one call, from the first byte sent to the last one read
    attempts: int = 3  # calls for one answer, the first included, if the transport fails
    concurrency: int = 4  # calls at once, of one model

    def __post_init__(self) -> None:
        check_connection(self.base_url, self.timeout_seconds, self.attempts, self.concurrency)


class JsonClient:
    """Sends requests to one API and returns decoded bodies."""

    def __init__(self, provider: str, connection: HttpConnection) -> None:
        self._connection = connection
        try:
            address = httpx.URL(connection.base_url).netloc.decode()
        except httpx.InvalidURL as error:
            raise ValueError(f"base_url is not a URL: {connection.base_url!r} ({error})") from None
        #: As messages name it: the provider, host and port, without a user or a password.
        self.who = f"{provider} at {address.rpartition('@')[2]}"
        self._clients = PerLoop(self._open, httpx.AsyncClient.aclose)

    async def close(self) -> None:
        """Close what this event loop has opened. Idempotent."""
        await self._clients.close()

    async def look_up(self, path: str) -> Any:
        """Return the decoded body of a GET; None if the server has no such path.

        Raises:
            ProviderError: the server cannot be reached, redirects, or does not accept the key.
        """
        try:
            return await self._send("GET", path, None, REPLY_BYTES_MAX)
        except PermanentProviderError as error:
            if error.code in ("401", "403") or error.code.startswith("3"):
                raise
            return None

    async def post(self, path: str, body: Mapping[str, Any], *, bytes_max: int = REPLY_BYTES_MAX) -> Any:
        """Send a JSON body once and return the decoded body of the reply.

        Raises:
            TransientProviderError: no complete reply within the limits of time and bytes, or one that is not JSON.
            ProviderError: the status is not 2xx; see `hippocampus.providers.http_faults`.
        """
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        return await self._send("POST", path, content, bytes_max)

    async def _send(self, method: str, path: str, content: bytes | None, bytes_max: int) -> Any:
        try:
            # The HTTP client's own limit applies to each read: a reply that trickles would never end.
            async with asyncio.timeout(self._connection.timeout_seconds):
                client = await self._clients.get()
                url = self._connection.base_url.rstrip("/") + path
                headers = {"content-type": "application/json"} if content is not None else {}
                async with client.stream(method, url, content=content, headers=headers) as response:
                    raw = await self._read(response, bytes_max)
        except (TimeoutError, httpx.TimeoutException):
            seconds = self._connection.timeout_seconds
            raise TransientProviderError(f"{self.who}: no answer within {seconds:g} s", code="timeout") from None
        except (httpx.TransportError, OSError) as fault:
            kind = type(fault).__name__
            raise TransientProviderError(f"{self.who}: the connection failed ({kind})", code="connection") from None
        text = raw.decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            if response.is_success:
                raise self._unreadable("the response is not JSON", text) from None
            body = text
        if response.is_success:
            return body
        headers = {name.lower(): value for name, value in response.headers.items()}
        raise http_faults.from_response(self.who, response.status_code, headers, body)

    async def _read(self, response: httpx.Response, bytes_max: int) -> bytes:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise self._unreadable("the response is compressed, which was not requested", None)
        raw = bytearray()
        async for chunk in response.aiter_raw():
            raw += chunk
            if len(raw) > bytes_max:
                raise self._unreadable(f"the response has more than {bytes_max:,} bytes", None)
        return bytes(raw)

    def _unreadable(self, problem: str, text: str | None) -> TransientProviderError:
        evidence = None if text is None else text[:_EVIDENCE_CHARACTERS]
        return TransientProviderError(f"{self.who}: {problem}", code="unreadable", raw_reply=evidence)

    def unexpected(self, body: Any) -> TransientProviderError:
        """Return the error for a body that is JSON, but not of this API."""
        return self._unreadable("the response is not one of this API", json.dumps(body, ensure_ascii=False))

    def refused(self, body: Any, status: int) -> ProviderError:
        """Return the error for an error that came as a successful response."""
        return http_faults.from_response(self.who, status, {}, body)

    def _open(self) -> httpx.AsyncClient:
        connection = self._connection
        return httpx.AsyncClient(
            # Without compression: the byte limit holds for what is read into memory.
            headers={"accept": "application/json", "accept-encoding": "identity", **connection.headers},
            follow_redirects=False,
            timeout=connection.timeout_seconds,
            limits=httpx.Limits(max_connections=2 * connection.concurrency),
        )
