"""Clients with their own API keys, for a running writer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import httpx

from pulse import database
from pulse.api_keys import ApiKeyService, NewApiKey, Role
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import WriterProcess


async def made(
    dsn: str,
    app: str | None,
    *roles: Role,
    user_id: str | None = None,
    lifetime: timedelta | None = None,
    user_roles: Sequence[str] | None = None,
    schema: str = "public",
) -> NewApiKey:
    """A new key, made as the command line makes it."""
    async with await database.create_pool(dsn, schema=schema, max_size=1) as pool:
        return await ApiKeyService(pool).create(app, roles, user_id=user_id, lifetime=lifetime, user_roles=user_roles)


@asynccontextmanager
async def bearer(writer: WriterProcess, text: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that sends a key."""
    headers = {"Authorization": f"Bearer {text}"}
    async with httpx.AsyncClient(base_url=writer.url, headers=headers, timeout=WAIT_SECONDS) as client:
        yield client


async def row_counts(rows: asyncpg.Connection, but: Sequence[str] = ()) -> dict[str, int]:
    """The number of rows of each of our tables."""
    names = await rows.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname"
    )
    counts = {}
    for (name,) in names:
        if name not in but:
            counts[name] = await rows.fetchval(f'SELECT count(*) FROM "{name}"')
    return counts
