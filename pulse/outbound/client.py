"""HTTP to servers that are not trusted: each connection goes to an address that was checked, whatever the URL says.

The network layer of httpcore resolves the name, checks every address, and dials one of those. So a name that resolves
inside of the network, another name's rebinding, or a number in an odd form makes no difference. Redirects are not
followed, proxies and certificates of the environment are not used, and no cookie is kept.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx

from pulse.outbound import addresses

#: The time limit for connecting to one of several addresses; then the next is tried.
CONNECT_SECONDS_MAX = 5.0
_CONNECTIONS_MAX = 50
_KEEP_ALIVE_SECONDS = 15.0


class TooLargeError(Exception):
    """A response is over its limit. It was not read to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response as it was received, decompressed.

    Attributes:
        headers: with names in lower case; of repeated ones, the last.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class CheckedBackend:
    """The network layer of `httpcore` (or `httpcore2`): dials only addresses that were checked.

    Args:
        inner: what dials, such as ``httpcore.AnyIOBackend()``.
        allowed: networks that may be reached although they are not public.
        private: only private addresses in `allowed` may be reached.
    """

    def __init__(
        self,
        inner: Any,
        allowed: Sequence[addresses.Network] = (),
        *,
        private: bool = False,
        resolve: addresses.Resolve = addresses.resolve,
        failure: type[Exception] = httpcore.ConnectError,
    ) -> None:
        self._inner = inner
        self._allowed = tuple(allowed)
        self._private = private
        self._resolve = resolve
        self._failure = failure

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Any:  # noqa: ASYNC109 - httpcore's own name
        """Connect to one of the host's addresses.

        Raises:
            RefusedAddressError: one of them may not be reached; no connection was made.
        """
        try:
            found = addresses.check(await self._resolve(host.strip("[]"), port), self._allowed, private=self._private)
        except OSError as unknown:
            raise self._failure(f"the name does not resolve: {unknown}") from None
        error: Exception = self._failure("the name has no address")
        limit = timeout if len(found) == 1 else min(timeout or CONNECT_SECONDS_MAX, CONNECT_SECONDS_MAX)
        for address in found:
            try:
                return await self._inner.connect_tcp(str(address), port, timeout=limit, **options)
            except Exception as caught:  # noqa: BLE001 - of several libraries; the last one is raised
                error = caught
        raise error

    async def connect_unix_socket(self, *_arguments: Any, **_options: Any) -> Any:
        """Refuse: no URL names a socket of this machine."""
        raise addresses.RefusedAddressError

    async def sleep(self, seconds: float) -> None:
        """Wait, as httpcore asks for between attempts."""
        await asyncio.sleep(seconds)


class OutboundClient:
    """Sends requests; keeps connections open for the next. One per set of allowed networks and event loop.

    Args:
        secret: requests or their answers are: over http they go to private addresses in `allowed` alone.
    """

    def __init__(
        self,
        allowed: Sequence[addresses.Network] = (),
        *,
        secret: bool = False,
        resolve: addresses.Resolve = addresses.resolve,
    ) -> None:
        self._connections = {
            scheme: httpcore.AsyncConnectionPool(
                ssl_context=tls_context(),
                max_connections=_CONNECTIONS_MAX,
                keepalive_expiry=_KEEP_ALIVE_SECONDS,
                network_backend=CheckedBackend(  # type: ignore[arg-type]  # it has the methods that are called
                    httpcore.AnyIOBackend(), allowed, private=secret and scheme != b"https", resolve=resolve
                ),
            )
            for scheme in (b"http", b"https")
        }

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_bytes: int,
        timeout_seconds: float,
    ) -> Response:
        """Send a request and read its response, in this time in all.

        Raises:
            RefusedAddressError: the address may not be reached.
            TooLargeError: the body is over `max_bytes`, as sent or decompressed.
            TimeoutError: it took too long, as a whole.
            httpcore.ConnectError, ssl.SSLError, OSError: no connection; nothing was sent.
            httpcore.NetworkError, httpcore.ProtocolError: the connection broke, perhaps after the request was read.
        """
        sent = {"accept-encoding": "gzip, deflate", **{name.lower(): value for name, value in (headers or {}).items()}}
        if body is None and method in ("POST", "PUT", "PATCH"):
            body = b""
        async with (
            asyncio.timeout(timeout_seconds),
            self._stream(method, url, sent, body) as response,
        ):
            received = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            pieces: list[bytes] = []
            size = 0
            async for piece in _decoded(response.aiter_stream(), received.get("content-encoding", ""), max_bytes):
                size += len(piece)
                if size > max_bytes:
                    raise TooLargeError
                pieces.append(piece)
            return Response(status=response.status, headers=received, body=b"".join(pieces))

    @asynccontextmanager
    async def _stream(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[httpcore.Response]:
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        target = httpcore.URL(url)
        connections = self._connections.get(target.scheme, self._connections[b"http"])
        async with connections.stream(
            method, target, headers=pairs, content=body, extensions={"timeout": {"connect": CONNECT_SECONDS_MAX * 2}}
        ) as response:
            yield response

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        for connections in self._connections.values():
            await connections.aclose()


async def _decoded(pieces: AsyncIterator[bytes], encoding: str, max_bytes: int) -> AsyncIterator[bytes]:
    """Decompress by pieces: a small body that expands without end is left after `max_bytes`."""
    named = encoding.strip().lower()
    if named in ("", "identity"):
        async for piece in pieces:
            yield piece
        return
    if named not in ("gzip", "x-gzip", "deflate"):
        raise httpcore.RemoteProtocolError(f"the content encoding {named[:40]!r} was not asked for")
    inflate = zlib.decompressobj(47 if named != "deflate" else 15)
    left = max_bytes + 1
    try:
        async for piece in pieces:
            rest = piece
            while rest and left > 0:
                found = inflate.decompress(rest, left)
                left -= len(found)
                rest = inflate.unconsumed_tail
                yield found
            if left <= 0:
                raise TooLargeError
    except zlib.error:
        raise httpcore.RemoteProtocolError("the body is not compressed as its header says") from None
    if not inflate.eof:
        raise httpcore.RemoteProtocolError("the compressed body is cut off")


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return the context of all connections; it takes milliseconds to make."""
    return httpx.create_ssl_context(trust_env=False)
