"""Rows for tests of search and context, written as a consolidation would write them, and an embedder of words."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from hippocampus.errors import RateLimitedError
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.records import Vector
from pulse.events import Event
from pulse.session_service import OpenSessionService

APP = "app"
#: The size of the vectors of words: large enough that two words seldom share a dimension.
DIMENSIONS = 1536
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class WordEmbedder:
    """A vector per text: one hashed dimension per word. Texts with common words are near."""

    def __init__(self, model: str = "words-1") -> None:
        self.model = model

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        return [vector_of(text) for text in texts]

    async def close(self) -> None:
        pass


class SilentEmbedder(WordEmbedder):
    """An embedder that returns zero vectors."""

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        return [[0.0] * DIMENSIONS for _ in texts]


class ExhaustedEmbedder(WordEmbedder):
    """An embedder whose provider is out of quota."""

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        raise RateLimitedError("no quota is left")


def vector_of(text: str) -> Vector:
    vector = [0.0] * DIMENSIONS
    for word in text.lower().replace(".", " ").replace(",", " ").split():
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) % DIMENSIONS] += 1.0
    norm = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / norm for value in vector]


async def add_memory(
    conn: asyncpg.Connection, user: str, content: str, *, app: str = APP, embedded: bool = True, **columns: Any
) -> UUID:
    """Store a memory; `columns` override."""
    row = {
        "app_name": app,
        "user_id": user,
        "content": content,
        "memory_type": "semantic",
        "embedding": vector_of(content) if embedded else None,
        "embedding_model": "words-1" if embedded else None,
        **columns,
    }
    return await _insert(conn, "memories", row)


async def add_fact(
    conn: asyncpg.Connection, user: str, key: str, value: Any, *, app: str = APP, **columns: Any
) -> UUID:
    """Store a current fact; `columns` override."""
    content = f"{key}: {value if isinstance(value, str) else json.dumps(value)}"
    row = {
        "app_name": app,
        "user_id": user,
        "key": key,
        "value": value,
        "content": content,
        "embedding": vector_of(content),
        "embedding_model": "words-1",
        **columns,
    }
    return await _insert(conn, "facts", row)


async def say(
    pool: asyncpg.Pool, user: str, session_id: str, *texts: str, app: str = APP, author: str = "user"
) -> None:
    """Append turns to a session, which is created if it does not exist."""
    sessions = OpenSessionService(pool)
    if await sessions.get_session(app, user, session_id, num_recent_events=0) is None:
        await sessions.create_session(app, user, session_id=session_id)
    await sessions.append(app, user, session_id, [Event(author=author, content={"text": text}) for text in texts])


async def consolidate_fast(conn: asyncpg.Connection, session_id: str) -> None:
    """Set the fast watermark to the last event."""
    await conn.execute("UPDATE threads SET fast_upto_seq = last_seq WHERE session_id = $1", session_id)


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def _insert(conn: asyncpg.Connection, table: str, row: dict[str, Any]) -> UUID:
    places = ", ".join(f"${place}" for place in range(1, len(row) + 1))
    stored: UUID = await conn.fetchval(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places}) RETURNING id", *row.values()
    )
    return stored
