"""ADK's session services in memory and on PostgreSQL, and ours, side by side.

A test that takes `sessions` and `who` runs on each service. Other modules override these fixtures for other
services.
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
from tests.support.writer_fixtures import client, seen  # noqa: F401 - fixtures
from workers.embedded.server import EmbeddedServer

_numbers = itertools.count(1)


@pytest.fixture(params=[MEMORY, DATABASE, OURS])
def kind(request: pytest.FixtureRequest) -> str:
    """Which service the test runs on."""
    mark = request.node.get_closest_marker("differs")
    reason = mark.kwargs.get(request.param) if mark else None
    if reason:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    return str(request.param)


@pytest.fixture(scope="session")
def contract_dsn(server: EmbeddedServer, admin: psycopg.Connection, template: str) -> Iterator[str]:
    """One database for all tests, with our tables and ADK's."""
    with cloned(admin, template) as name:
        dsn = dsn_of(server, name)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, make_adk_tables(dsn)).result()
        yield dsn


@pytest.fixture
def who() -> Who:
    """An app and a user for this test."""
    return {"app_name": f"app-{next(_numbers)}", "user_id": "ann"}


@pytest.fixture
async def sessions(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[BaseSessionService]:
    """The session service under test."""
    if kind == MEMORY:
        yield InMemorySessionService()
    elif kind == DATABASE:
        async with adk_database_service(request.getfixturevalue("contract_dsn")) as service:
            yield service
    else:
        async with PostgresSessionService(request.getfixturevalue("contract_dsn")) as service:
            yield service
