"""What the contract's cases share: ADK's own database service on our server, events, and marks for known differences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from google.adk.events import Event, EventActions
from google.adk.sessions import DatabaseSessionService
from google.genai import types

#: The services by the name that a case's id shows.
MEMORY, DATABASE, OURS = "memory", "database", "ours"

#: Marks a case that a service of ADK is known to fail, and says why: ``differs(database="loses NaN")``. The mark is
#: strict: the day that ADK is mended, the case says so.
differs = pytest.mark.differs


@asynccontextmanager
async def adk_database_service(dsn: str) -> AsyncIterator[DatabaseSessionService]:
    """ADK's own service on the test's database, its tables in a schema of their own: some are called like ours."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE SCHEMA IF NOT EXISTS adk")
    await connection.close()

    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(dsn, server_settings={"search_path": "adk"})

    async with DatabaseSessionService("postgresql+asyncpg://", async_creator=connect) as service:
        yield service


def said(text: str, author: str = "user", **fields: Any) -> Event:
    """An event that says something."""
    role = "user" if author == "user" else "model"
    return Event(
        invocation_id="e-1", author=author, content=types.Content(role=role, parts=[types.Part(text=text)]), **fields
    )


def changing(delta: dict[str, Any], **fields: Any) -> Event:
    """An event that changes the state."""
    return Event(invocation_id="e-1", author="agent", actions=EventActions(state_delta=delta), **fields)
