"""What a session service of ADK does: the same cases for ADK's own two and for ours."""

from __future__ import annotations

from google.adk.sessions import BaseSessionService

from tests.adk.services import changing, said

WHO = {"app_name": "app", "user_id": "ann"}


async def test_a_created_session_is_read_back_equal(sessions: BaseSessionService) -> None:
    created = await sessions.create_session(**WHO, state={"a": 1, "user:b": 2, "app:c": 3}, session_id="s")
    assert await sessions.get_session(**WHO, session_id="s") == created


async def test_a_session_after_an_append_equals_a_fresh_read(sessions: BaseSessionService) -> None:
    session = await sessions.create_session(**WHO, session_id="s")
    await sessions.append_event(session, said("hello", timestamp=1_700_000_000.25))
    await sessions.append_event(session, changing({"a": 1, "user:b": 2, "app:c": 3}, timestamp=1_700_000_001.5))
    assert await sessions.get_session(**WHO, session_id="s") == session
