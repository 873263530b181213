"""ADK's services side by side: its own in memory, its own on our PostgreSQL, and ours.

A case takes `sessions` and `who`, and is run on each service. Other services follow the same names with fixtures of
their own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from google.adk.sessions import BaseSessionService, InMemorySessionService

from pulse.adk import PostgresSessionService
from tests.conftest import cloned, dsn_of
from tests.support.adk.services import DATABASE, MEMORY, OURS, Who, adk_database_service, make_adk_tables
from workers.embedded.server import EmbeddedServer

_numbers = itertools.count(1)


@pytest.fixture(params=[MEMORY, DATABASE, OURS])
def kind(request: pytest.FixtureRequest) -> str:
    """Which service a case is run on."""
    mark = request.node.get_closest_marker("differs")
    reason = mark.kwargs.get(request.param) if mark else None
    if reason:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    return str(request.param)


@pytest.fixture(scope="session")
def contract_dsn(server: EmbeddedServer, admin: psycopg.Connection, template: str) -> Iterator[str]:
    """One database for all cases, with our tables and ADK's."""
    with cloned(admin, template) as name:
        dsn = dsn_of(server, name)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, make_adk_tables(dsn)).result()
        yield dsn


@pytest.fixture
def who() -> Who:
    """An app of this case's own, and a user of it."""
    return {"app_name": f"app-{next(_numbers)}", "user_id": "ann"}


@pytest.fixture
async def sessions(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[BaseSessionService]:
    """The session service of the case."""
    if kind == MEMORY:
        yield InMemorySessionService()
    elif kind == DATABASE:
        async with adk_database_service(request.getfixturevalue("contract_dsn")) as service:
            yield service
    else:
        async with PostgresSessionService(request.getfixturevalue("contract_dsn")) as service:
            yield service
