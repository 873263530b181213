"""The settings of real workers, and a conversation for them."""

from __future__ import annotations

import json
from uuid import UUID

import asyncpg

from tests.support.fake_gemini import FakeGemini

PRODUCT = "workers.worker"
KEY = "AIza-not-a-key-0123456789abcdefghij"
SAID = (
    "Hi, my name is Marguerite and I live in Bruges.",
    "I work as a bookbinder, and I love plum jam.",
    "Please never book anything on Fridays.",
    "My password for the shed is quokka-lantern-93.",
)


def gemini_settings(gemini: FakeGemini) -> dict[str, str]:
    return {
        "provider": "gemini",
        "provider_api_key": KEY,
        "provider_base_url": gemini.base_url,
        "metrics_host": "127.0.0.1",
    }


async def say(pool: asyncpg.Pool, session: str = "s1") -> UUID:
    """Append a short conversation and finalise it: jobs of both types are enqueued."""
    await pool.execute("SELECT create_session('app', 'user', $1)", session)
    for number, text in enumerate(SAID):
        await pool.execute(
            "SELECT append_event('app', 'user', $1, NULL, $2, 'user', 'message', $3, 'user', $4)",
            session,
            f"e{number}",
            json.dumps({"text": text}),
            text,
        )
    await pool.execute("SELECT finalize_session('app', 'user', $1)", session)
    thread: UUID = await pool.fetchval("SELECT id FROM threads WHERE session_id = $1", session)
    return thread
