"""Writers that append until stopped, over the library and over HTTP, and a ledger of the responses."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx

from pulse.events import Event
from pulse.session_service import OpenSessionService
from workers.failures import DATABASE_FAULTS

if TYPE_CHECKING:
    from pulse.database import Pool

APP = "chaos"
SESSIONS = 50
BATCH_EVENTS_MAX = 3
PAUSE_SECONDS_MAX = 0.5
RETRY_SECONDS = 0.1
ANSWER_SECONDS_MAX = 10.0

#: Appends events (id, text) to a session, and returns their numbers.
Append = Callable[[str, list[tuple[str, str]]], Awaitable[list[int]]]


class UnansweredError(Exception):
    """No response, or one that asks for a retry: the same ids are sent again."""


def session(number: int) -> str:
    return f"s{number:02d}"


def user(session_id: str) -> str:
    """A separate user for each session, so that each fact belongs to one session."""
    return f"user-of-{session_id}"


def text(event_id: str) -> str:
    """A text from which the fake Gemini extracts one word of a fact and one insight."""
    return f"I like plum-{event_id}, and decided so."


@dataclass(slots=True)
class Ledger:
    """The writers' responses: (session, event id) -> number."""

    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    retries: int = 0
    changed: list[str] = field(default_factory=list)  # one id, two numbers
    refused: list[str] = field(default_factory=list)  # responses that no fault explains
    longest_wait_seconds: float = 0.0

    def note(self, session_id: str, event_ids: list[str], numbers: list[int]) -> None:
        for event_id, number in zip(event_ids, numbers, strict=True):
            if self.numbers.setdefault((session_id, event_id), number) != number:
                self.changed.append(event_id)

    def columns(self) -> tuple[list[str], list[str], list[int]]:
        keys = list(self.numbers)
        return [key[0] for key in keys], [key[1] for key in keys], [self.numbers[key] for key in keys]


class Writer:
    """Appends small batches to random sessions, retrying each batch until it is answered."""

    def __init__(self, name: str, seed: int, append: Append, ledger: Ledger) -> None:
        self.name = name
        self._random = random.Random(f"{seed} {name}")
        self._append = append
        self._ledger = ledger
        self._count = 0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._write(session(self._random.randrange(SESSIONS)))
            await asyncio.sleep(self._random.uniform(0, PAUSE_SECONDS_MAX))

    async def _write(self, session_id: str) -> None:
        events = [self._event() for _ in range(self._random.randint(1, BATCH_EVENTS_MAX))]
        ids = [event_id for event_id, _ in events]
        began = time.monotonic()
        while True:
            try:
                self._ledger.note(session_id, ids, await self._append(session_id, events))
                break
            except UnansweredError:
                self._ledger.retries += 1
                await asyncio.sleep(RETRY_SECONDS)
        # One batch in twenty is sent again, as if the response had been lost: the result must be the same.
        if self._random.random() < 0.05:
            try:
                self._ledger.note(session_id, ids, await self._append(session_id, events))
            except UnansweredError:
                self._ledger.retries += 1
        self._ledger.longest_wait_seconds = max(self._ledger.longest_wait_seconds, time.monotonic() - began)

    def _event(self) -> tuple[str, str]:
        self._count += 1
        event_id = f"{self.name}-{self._count}"
        return event_id, text(event_id)


def by_library(service: OpenSessionService, ledger: Ledger) -> Append:
    """Append with the session service, in this process."""

    async def append(session_id: str, events: list[tuple[str, str]]) -> list[int]:
        records = [Event(id=key, author="user", content={"text": said}) for key, said in events]
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                appended = await service.append(APP, user(session_id), session_id, records)
        except DATABASE_FAULTS as error:  # TimeoutError is an OSError
            raise UnansweredError from error
        except Exception as error:
            ledger.refused.append(f"library: {type(error).__name__}: {error}")
            raise UnansweredError from error
        return [event.sequence_num or 0 for event in appended.events]

    return append


def by_http(client: httpx.AsyncClient, ledger: Ledger) -> Append:
    """Append over the writer's API."""

    async def append(session_id: str, events: list[tuple[str, str]]) -> list[int]:
        body = {"events": [{"id": key, "author": "user", "content": {"text": said}} for key, said in events]}
        path = f"/v1/apps/{APP}/users/{user(session_id)}/sessions/{session_id}/events"
        try:
            response = await client.post(path, json=body)
        except httpx.TransportError as error:
            raise UnansweredError from error
        if response.is_success:
            return [event["sequence_num"] for event in response.json()["events"]]
        # 503 means that the database is down; no other status has a fault behind it that this client did not see.
        if response.status_code != 503:
            ledger.refused.append(f"HTTP {response.status_code}: {response.text[:300]}")
        raise UnansweredError

    return append


async def open_sessions(pool: Pool) -> None:
    service = OpenSessionService(pool)
    for number in range(SESSIONS):
        await service.create_session(APP, user(session(number)), session_id=session(number))
    await service.close()
