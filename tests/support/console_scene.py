"""What the console is shown with: a user whose conversations were consolidated, a second user, and runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import asyncpg

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.providers.local.provider import LocalGenerator
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.paths import ROOT
from tests.support.queue_claims import work_off

APP, USER, OTHER = "shop", "mei", "ben"
SECRET = "Ben keeps the spare key under the blue flowerpot."


async def furnish(dsn: str) -> None:
    """Store and consolidate the sample conversation, as far as it is in English, and two facts of another user."""
    async with await database.create_pool(dsn, max_size=4) as pool:
        sessions = OpenSessionService(pool)
        for name, events in _sample():
            await sessions.create_session(APP, USER, session_id=name)
            await sessions.append(APP, USER, name, events)
            await sessions.finalize_session(APP, USER, name)
        await sessions.create_session(APP, OTHER, session_id="bens")
        await sessions.append(APP, OTHER, "bens", [_said("Ben", SECRET), _said("Ben", "I live in Leeds.")])
        await sessions.finalize_session(APP, OTHER, "bens")
        await work_off(pool, MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder()))
        await _age(pool)


async def _age(pool: asyncpg.Pool) -> None:
    """Let the memories be of different ages, and used differently often, so that their strengths differ."""
    await pool.execute(
        "UPDATE memories SET created_at = engine_now() - interval '30 days', access_count = n % 4,"
        " last_accessed_at = engine_now() - n % 19 * interval '1 day'"
        " FROM (SELECT id, row_number() OVER (ORDER BY occurred_at, id) AS n FROM memories) AS o"
        " WHERE o.id = memories.id"
    )


def _said(speaker: str, text: str, at: datetime | None = None) -> Event:
    kind = "assistant_message" if speaker == "Assistant" else "user_message"
    at_seconds = None if at is None else at.timestamp()
    return Event(author=speaker, event_type=kind, content={"text": text}, timestamp=at_seconds)


def _sample() -> list[tuple[str, list[Event]]]:
    conversation = json.loads((ROOT / "examples" / "mei.json").read_text(encoding="utf-8"))[0]["conversation"]
    found = []
    for number in range(1, 9):
        at = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        turns = [turn for turn in conversation[f"session_{number}"] if turn["text"].isascii()]
        events = [_said(turn["speaker"], turn["text"], at + timedelta(minutes=n)) for n, turn in enumerate(turns)]
        if len(events) > 5:
            found.append((f"chat-{at:%Y-%m-%d}", events))
    return found
