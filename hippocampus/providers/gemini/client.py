"""The client of the Gemini API: connections for each event loop, one time limit, and one kind of error.

Only this package knows the google-genai library (2.30 and later, 3.x). The library's own retries are off.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google import genai
from google.genai import errors as genai_errors
from google.genai import types

from hippocampus.errors import TransientProviderError
from hippocampus.providers.calls import check_connection
from hippocampus.providers.gemini import faults
from hippocampus.providers.per_loop import PerLoop

BASE_URL = "https://generativelanguage.googleapis.com"

#: Both majors of the library use one version of the API: by default 2.x asks for v1beta, 3.x for v1.
_API_VERSION = "v1beta"

#: The size of one reply; a batch of a hundred vectors takes four megabytes.
_REPLY_BYTES_MAX = 16 * 1024 * 1024
#: How much is kept of a reply that does not follow this API.
_EVIDENCE_CHARACTERS_MAX = 10_000

Reply = TypeVar("Reply")


class _ReplyTooLargeError(Exception):
    """The reply is over the limit, or compressed, so that its size is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiConnection:
    """Where and how Gemini is called. The key is left out of its representation."""

    api_key: str = field(repr=False)
    base_url: str = BASE_URL
    timeout_seconds: float = 60.0  # of one call, from the first byte sent to the last one read
    attempts: int = 3  # calls for one answer, the first included, if the transport fails
    concurrency: int = 4  # calls at once, of one provider

    def __post_init__(self) -> None:
        if not self.api_key.strip():
            raise ValueError("api_key is blank: set GOOGLE_API_KEY, or use the local provider")
        check_connection(self.base_url, self.timeout_seconds, self.attempts, self.concurrency)


class GeminiClient:
    """One client of the library for each event loop, and the calls that are made through it."""

    def __init__(self, connection: GeminiConnection) -> None:
        self._connection = connection
        self._timeout_seconds = connection.timeout_seconds
        self._http_library = _http_library()
        self._transport_faults: tuple[type[Exception], ...] = (OSError, self._http_library.TransportError)
        self._clients = PerLoop(self._open, _close)

    async def close(self) -> None:
        """Close what this event loop has opened. Idempotent."""
        await self._clients.close()

    def _open(self) -> tuple[Any, Any]:
        connection = self._connection
        # An HTTP client of our own: with aiohttp installed the library would use that, and after a lost connection
        # sleep for up to ten seconds and call again, whatever its retry options say.
        # A redirect would send the key and the conversation to a host that was not chosen.
        http = self._http_library.AsyncClient(
            follow_redirects=False,
            timeout=connection.timeout_seconds,
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [_bounding(self._http_library)]},
        )
        client = genai.Client(
            vertexai=False,
            api_key=connection.api_key,
            http_options=types.HttpOptions(
                base_url=connection.base_url,
                api_version=_API_VERSION,
                httpx_async_client=http,
                timeout=math.ceil(connection.timeout_seconds * 1000),  # milliseconds
                retry_options=None,  # None: one attempt
            ),
        )
        return http, client

    async def send(self, request: Callable[[Any], Awaitable[Reply]]) -> Reply:
        """Send a request once. Every failure is raised as a ProviderError.

        ``from None``: the library's errors quote the whole reply, and tracebacks are logged.
        """
        try:
            # The HTTP client's own limit applies to each read: a reply that trickles would never end.
            async with asyncio.timeout(self._timeout_seconds):
                _, client = await self._clients.get()
                return await request(client.aio.models)
        except genai_errors.APIError as fault:
            given = getattr(fault.response, "headers", None) or {}
            headers = {str(name).lower(): str(text) for name, text in given.items()}
            raise faults.from_response(fault.code, fault.details, headers) from None
        except TimeoutError:
            raise TransientProviderError(
                f"Gemini: no answer within {self._timeout_seconds:g} s", code="timeout"
            ) from None
        except self._transport_faults as fault:
            kind = type(fault).__name__
            code = "timeout" if "Timeout" in kind else "connection"
            raise TransientProviderError(f"Gemini: the connection failed ({kind})", code=code) from None
        except _ReplyTooLargeError as fault:
            raise TransientProviderError(f"Gemini: {fault}", code="unreadable") from None
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as fault:
            # What the library raises for a body that is truncated, nested too deeply, or not of this API.
            evidence = fault.doc if isinstance(fault, json.JSONDecodeError) else str(fault)
            raise TransientProviderError(
                f"Gemini: the response is not one of this API ({type(fault).__name__})",
                code="unreadable",
                raw_reply=evidence[:_EVIDENCE_CHARACTERS_MAX],
            ) from None


async def _close(opened: tuple[Any, Any]) -> None:
    http, client = opened
    await client.aio.aclose()
    await http.aclose()
    client.close()


def _bounding(http_library: Any) -> Callable[[Any], Awaitable[None]]:
    """Return a hook of the HTTP client that ends a reply at `_REPLY_BYTES_MAX`."""

    class Bounded(http_library.AsyncByteStream):  # type: ignore[misc]  # one of two libraries
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncGenerator[bytes]:
            read = 0
            async for chunk in self._stream:
                read += len(chunk)
                if read > _REPLY_BYTES_MAX:
                    raise _ReplyTooLargeError(f"the reply has more than {_REPLY_BYTES_MAX:,} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise _ReplyTooLargeError("the reply is compressed, which was not asked for")
        response.stream = Bounded(response.stream)

    return bound


def _http_library() -> Any:
    """The HTTP library that the installed google-genai is built on: httpx up to 2.x, httpx2 from 3.0 on."""
    major = int(genai.__version__.split(".", maxsplit=1)[0])
    return importlib.import_module("httpx2" if major >= 3 else "httpx")
