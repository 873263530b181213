"""Request bodies: JSON read to the letter, under limits of size, time and number.

Python's own decoder stays: unlike the faster ones it takes lone surrogates and whole numbers of any length. What it
takes beyond JSON, or would round to infinity, is refused here. Values that JSON cannot say are read from the escape of
`pulse.postgres.json_values`, anywhere in a body.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from pulse.errors import InvalidInputError
from pulse.http.edge import problems
from pulse.http.edge.roles import role_of
from pulse.postgres.json_values import MARK, read_escaped

#: Longest wait for the rest of a body.
BODY_TIMEOUT_SECONDS = 30.0


class Admission:
    """Lets so many requests work at once; the next ones wait in turn, and beyond a number or a time are refused."""

    def __init__(
        self, *, at_once: int, waiting_max: int = 500, wait_seconds: float = 10.0, work_seconds: float = 60.0
    ) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._waiting = 0
        self._waiting_max = waiting_max
        self._wait_seconds = wait_seconds
        self._work_seconds = work_seconds

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a turn, first come, first served, and hold it.

        Raises:
            ProblemError: too many wait already, the wait was too long, or the work was.
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


class ExactRequest(Request):
    """A request whose JSON is read without loss."""

    async def json(self) -> Any:
        """Return the body's value.

        Raises:
            ProblemError: it is not JSON, not in UTF-8, or holds what would not be kept.
        """
        if not hasattr(self, "_json"):
            self._json = parse(await self.body())
        return self._json


class ExactRoute(APIRoute):
    """A route that says which role it needs, reads its body with `parse`, checks its type, and takes its turn.

    Raises:
        LookupError: it says no role; see `pulse.http.edge.roles`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        role = role_of(self)
        if role is None:
            raise LookupError(f"the route {path} says no role: give it dependencies=[require(...)]")
        note = f"Needs a key with the role `{role}`."
        if note not in self.description:
            self.description = f"{self.description}\n\n{note}".strip()

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler with ours around it."""
        handle = super().get_route_handler()
        has_body = self.body_field is not None

        async def handle_exactly(request: Request) -> Response:
            exact = ExactRequest(request.scope, request.receive)
            if has_body:
                await _receive(exact)
            admission: Admission = request.app.state.admission
            async with admission.slot():
                return await handle(exact)

        return handle_exactly


def parse(body: bytes) -> Any:
    """Return the value of a JSON body, escapes resolved.

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
        where = f"byte {error.start} of the body is not UTF-8"
        raise problems.ProblemError(problems.INVALID_JSON, f"{where}. {problems.INVALID_JSON.advice}") from None
    except RecursionError:
        raise problems.ProblemError(problems.INVALID_REQUEST, "the body is nested too deep; flatten it") from None
    except ValueError as error:
        raise problems.ProblemError(problems.INVALID_REQUEST, str(error)) from None


def reply(value: BaseModel, status: int = 200) -> Response:
    """Return a model as a JSON response."""
    return Response(value.model_dump_json(by_alias=True), status, media_type="application/json")


async def _receive(request: Request) -> None:
    """Read the whole body, and check that it says it is JSON."""
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
    # Each of the mark's characters may itself be written as \u00XX.
    return MARK in text or "\\u00" in text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # RFC 8259 leaves open which of them counts: two programs would read two messages.
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {twice[:40]!r} twice: send it once")
    return found


def _refuse_constant(constant: str) -> NoReturn:
    name = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[constant]
    raise ValueError(f'{constant} is not JSON: write it as {{"{MARK}": ["float", "{name}"]}}')


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is beyond the range of a double: send it as a string, or as a whole number")
    return value
