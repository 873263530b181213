"""Memories and facts of the user of the API's tests, stored as a worker would store them."""

from __future__ import annotations

import uuid
from typing import Any

import asyncpg


async def remember(rows: asyncpg.Connection, app: str, content: str, *, days_old: int = 0) -> uuid.UUID:
    """Store a memory as a worker would have."""
    statement = """
        INSERT INTO memories (app_name, user_id, memory_type, content, metadata, created_at, last_accessed_at)
        VALUES ($1, 'ann', 'semantic', $2, '{"k": {"$hippocampus": ["float", "nan"]}}',
                now() - make_interval(days => $3), now() - make_interval(days => $3)) RETURNING id"""
    found: uuid.UUID = await rows.fetchval(statement, app, content, days_old)
    return found


async def know(rows: asyncpg.Connection, app: str, key: str, value: Any) -> None:
    """Store a fact as a worker would have."""
    await rows.execute(
        "INSERT INTO facts (app_name, user_id, fact_type, key, value, content)"
        " VALUES ($1, 'ann', 'profile', $2, $3, $4)",
        app,
        key,
        value,
        f"{key}: {value}",
    )
