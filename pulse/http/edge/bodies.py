"""Request bodies: JSON read without loss, within limits of size, time and number.

Python's own decoder is used: unlike faster ones it accepts lone surrogates and integers of any length. What it accepts
beyond JSON, or would round to infinity, is refused here. Values that JSON cannot represent are read from the escapes of
`pulse.postgres.json_values`, anywhere in a body.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response

from pulse.errors import InvalidInputError
from pulse.http.edge import problems
from pulse.postgres.json_values import MARK, read_escaped

#: Longest wait for the rest of a body.
BODY_TIMEOUT_SECONDS = 30.0
#: A body of more than this is parsed in a thread: other requests are served meanwhile.
_LONG_BYTES = 65_536


class Admission:
    """Admits a number of requests at once. Others wait in order; too many, or too long a wait, and they are refused.

    Requests that only read have slots of their own (`ReadAdmission`): a slow search never takes an append's.
    """

    def __init__(
        self, *, at_once: int, waiting_max: int = 500, wait_seconds: float = 10.0, work_seconds: float = 60.0
    ) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._waiting = 0
        self._waiting_max = waiting_max
        self._wait_seconds = wait_seconds
        self._work_seconds = work_seconds

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return self._waiting

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot, first come, first served, and hold it.

        Raises:
            ProblemError: too many requests wait, or the wait took too long.
            TimeoutError: the block took too long.
        """
        if self._waiting >= self._waiting_max:
            raise problems.ProblemError(problems.OVERLOADED)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise problems.ProblemError(problems.OVERLOADED) from None
        finally:
            self._waiting -= 1
        try:
            async with asyncio.timeout(self._work_seconds):
                yield
        finally:
            self._free.release()


class ReadAdmission(Admission):
    """Admits requests that need the role `read`."""


class FileAdmission(Admission):
    """Admits requests that read a file, which may take half a minute: they take no slot of other writes."""


class StreamAdmission(Admission):
    """Admits requests for streams, until their response begins: thousands of clients may reconnect at once.

    They wait rather than being refused, and take no slot of other requests.
    """

    def __init__(self, *, at_once: int, waiting_max: int = 10_000, wait_seconds: float = 30.0) -> None:
        super().__init__(at_once=at_once, waiting_max=waiting_max, wait_seconds=wait_seconds)


class ExactRequest(Request):
    """A request whose JSON is read without loss."""

    async def json(self) -> Any:
        """Return the body's value.

        Raises:
            ProblemError: it is not JSON, not valid UTF-8, or has a value that cannot be kept.
        """
        if not hasattr(self, "_json"):
            body = await self.body()
            self._json = parse(body) if len(body) <= _LONG_BYTES else await asyncio.to_thread(parse, body)
        return self._json


def parse(body: bytes) -> Any:
    """Return the value of a JSON body, with escapes resolved.

    Raises:
        ProblemError: as `ExactRequest.json`.
    """
    try:
        text = body.decode()
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_object)
        return read_escaped(value) if _may_hold_escape(text) else value
    except InvalidInputError as error:
        raise problems.ProblemError(problems.INVALID_REQUEST, str(error)) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise problems.ProblemError(problems.INVALID_JSON, f"{where}: {error.msg}. Send one JSON value.") from None
    except UnicodeDecodeError as error:
        where = f"byte {error.start} of the body is not valid UTF-8"
        raise problems.ProblemError(problems.INVALID_JSON, f"{where}. {problems.INVALID_JSON.advice}") from None
    except RecursionError:
        raise problems.ProblemError(problems.INVALID_REQUEST, "the body is nested too deeply; flatten it") from None
    except ValueError as error:
        raise problems.ProblemError(problems.INVALID_REQUEST, str(error)) from None


def reply(value: BaseModel, status: int = 200) -> Response:
    """Return a model as a JSON response."""
    return Response(value.model_dump_json(by_alias=True), status, media_type="application/json")


async def receive_body(request: Request) -> None:
    """Read the whole body, and check that its media type is JSON.

    Raises:
        ProblemError: it is compressed, not JSON, empty, or did not arrive in time.
    """
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise problems.ProblemError(problems.ENCODED_BODY, headers={"Accept-Encoding": "identity"})
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise problems.ProblemError(problems.NOT_JSON)
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            await request.body()
    except TimeoutError:
        detail = f"the body did not arrive within {BODY_TIMEOUT_SECONDS:g} s; send it faster or in smaller batches"
        raise problems.ProblemError(problems.BAD_REQUEST, detail, {"Connection": "close"}) from None
    if not await request.body():
        raise problems.ProblemError(problems.INVALID_JSON, "the body is empty. Send one JSON value in UTF-8.")


def _may_hold_escape(text: str) -> bool:
    # Each character of the mark may itself be written as \u00XX.
    return MARK in text or "\\u00" in text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # RFC 8259 leaves open which of them counts: two programs could read two different messages.
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"an object has the key {name[:40]!r} twice: send it once")
            seen.add(name)
    return found


def _refuse_constant(constant: str) -> NoReturn:
    name = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[constant]
    raise ValueError(f'{constant} is not JSON: write it as {{"{MARK}": ["float", "{name}"]}}')


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is out of the range of a double: send it as a string or an integer")
    return value
