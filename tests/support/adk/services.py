"""Shared by the cases of the contract: ADK's own database service, events, and marks for known differences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import asyncpg
import pytest
from google.adk.events import Event, EventActions
from google.adk.sessions import DatabaseSessionService
from google.genai import types

#: The services by the name in a case's id.
MEMORY, DATABASE, OURS = "memory", "database", "ours"

#: Marks a case that a service of ADK is known to fail, with the reason: ``differs(database="loses NaN")``. The mark is
#: strict: once ADK is fixed, the case fails.
differs = pytest.mark.differs


class Who(TypedDict):
    """The session of every call."""

    app_name: str
    user_id: str


async def make_adk_tables(dsn: str) -> None:
    """Create the tables of ADK's own service in a separate schema: some have the names of ours."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE SCHEMA adk")
    await connection.close()
    async with adk_database_service(dsn) as service:
        await service.prepare_tables()


@asynccontextmanager
async def adk_database_service(dsn: str) -> AsyncIterator[DatabaseSessionService]:
    """ADK's own service on its tables in our database."""

    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(dsn, server_settings={"search_path": "adk"})

    async with DatabaseSessionService(
        "postgresql+asyncpg://", async_creator=connect, pool_size=10, max_overflow=20
    ) as service:
        yield service


def said(text: str, author: str = "user", **fields: Any) -> Event:
    """An event with a text."""
    content = types.Content(role="user" if author == "user" else "model", parts=[types.Part(text=text)])
    return Event(**{"invocation_id": "e-1", "author": author, "content": content, **fields})


def changing(delta: dict[str, Any], **fields: Any) -> Event:
    """An event that changes the state."""
    return Event(**{"invocation_id": "e-1", "author": "agent", "actions": EventActions(state_delta=delta), **fields})


def calling(arguments: dict[str, Any], **fields: Any) -> Event:
    """An event in which the model calls a function."""
    call = types.FunctionCall(id="c1", name="look_up", args=arguments)
    content = types.Content(role="model", parts=[types.Part(function_call=call)])
    return Event(**{"invocation_id": "e-1", "author": "agent", "content": content, **fields})
