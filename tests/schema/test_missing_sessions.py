"""A session that does not exist is refused in the same words by every function."""

from __future__ import annotations

import asyncpg
import pytest

from workers.migrate import default_folder

WORDS = "there is no session 'it''s' for app 'shop' and user NULL"
KEY = "'shop', NULL, 'it''s'"
READERS = (
    f"lock_session_at({KEY}, 1)",
    f"erase_session({KEY})",
    f"event_numbers({KEY}, '{{1}}', '{{}}')",
    f"begin_replay({KEY}, 'provider')",
    f"issue_ticket('x', {KEY}, NULL, 60)",
    "search_memory('shop', NULL, 'words', p_session_id => 'it''s')",
    f"context_candidates({KEY}, 'words')",
)
WRITERS = (f"lock_session({KEY})", f"append_event({KEY}, NULL, 'e', 'user', 'user_message', '{{}}')")


async def test_every_function_refuses_a_missing_session_in_the_same_words(conn: asyncpg.Connection) -> None:
    """The names are quoted as SQL quotes them; one that writes to a session says how to get it; one file has them."""
    for call in (*READERS, *WRITERS):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await conn.execute(f"SELECT * FROM {call}")
        assert refused.value.sqlstate == "HP001", call
        words = WORDS + (", or it has expired: create it first" if call in WRITERS else "")
        assert refused.value.args[0] == words, call
    files = (default_folder() / "functions").iterdir()
    assert [each.name for each in files if "there is no session" in each.read_text()] == ["sessions.sql"]
