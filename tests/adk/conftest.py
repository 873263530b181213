"""ADK's services side by side: its own in memory, its own on the test's PostgreSQL, and ours.

A case takes `sessions` and is run on each; one that is about what only some of them have takes `kind` too. Other
services follow the same names with a fixture of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from google.adk.sessions import BaseSessionService, InMemorySessionService

from pulse.adk import PostgresSessionService
from tests.adk.services import DATABASE, MEMORY, OURS, adk_database_service


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "differs: a case that services of ADK are known to fail, and why, by service")


@pytest.fixture(params=[MEMORY, DATABASE, OURS])
def kind(request: pytest.FixtureRequest) -> str:
    """Which service a case is run on."""
    mark = request.node.get_closest_marker("differs")
    reason = mark.kwargs.get(request.param) if mark else None
    if reason:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    return str(request.param)


@pytest.fixture
async def sessions(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[BaseSessionService]:
    """The session service of the case, on storage of its own."""
    if kind == MEMORY:
        yield InMemorySessionService()
    elif kind == DATABASE:
        async with adk_database_service(request.getfixturevalue("dsn")) as service:
            yield service
    else:
        async with PostgresSessionService(request.getfixturevalue("dsn")) as service:
            yield service
