"""The session store of the Claude Agent SDK: its own contracts, and what is remembered of a transcript.

Run by `tests/system/test_frameworks.py`: the SDK unpacks 380 MB, and has a virtual environment of its own.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    delete_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    query,
    rename_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance

from hippocampus import Hippocampus
from hippocampus.integrations.claude_agent_sdk import HippocampusSessionStore
from pulse import InvalidInputError
from tests.support.fake_agent_model import FakeAgentModel

SESSION = "6d1b1c5e-60a1-4f6f-8a8f-6d8a4f0c1111"
KEY: Any = {"project_key": "proj", "session_id": SESSION}


def entry(number: int, role: str, content: Any, **fields: Any) -> Any:
    return {
        "type": role,
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "parentUuid": f"00000000-0000-4000-8000-{number - 1:012d}" if number > 1 else None,
        "sessionId": SESSION,
        "timestamp": f"2026-05-01T10:00:{number:02d}.000Z",
        "message": {"role": role, "content": content},
        **fields,
    }


TALK = [
    {"type": "mode", "mode": "normal"},
    entry(1, "user", "My sister Noor lives in Bergen."),
    entry(2, "assistant", [{"type": "thinking", "thinking": "a thought"}, {"type": "text", "text": "Noted: Bergen."}]),
    entry(3, "assistant", [{"type": "tool_use", "id": "t", "name": "Read", "input": {"file": "a\0\ud800"}}]),
    entry(4, "user", [{"type": "tool_result", "tool_use_id": "t", "content": "a secret of the tool"}]),
    entry(5, "user", "<command-name>/clear</command-name>"),
    entry(
        6,
        "user",
        [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "Thanks."}],
    ),
    entry(7, "user", "This session is being continued", isCompactSummary=True),
    entry(8, "user", "a prompt of the agent", isSidechain=True),
    entry(9, "user", "Caveat: local commands", isMeta=True),
]


@pytest.fixture
def memory(pool: asyncpg.Pool) -> Hippocampus:
    return Hippocampus(pool, app="shop")


async def test_the_store_passes_the_contracts_of_the_sdk(memory: Hippocampus) -> None:
    """All fourteen; each on the store of a new user, with none of the optional methods left out."""
    users = iter(range(100))
    await run_session_store_conformance(lambda: HippocampusSessionStore(memory, f"user{next(users)}"))  # type: ignore[arg-type, return-value]
    assert next(users) > 13


async def test_words_of_a_transcript_are_turns_and_each_entry_is_stored_once(memory: Hippocampus) -> None:
    """A repeated batch, as after a lost reply, adds nothing; an entry with the same uuid and other content neither."""
    store: Any = HippocampusSessionStore(memory, "ann")
    await asyncio.gather(*(store.append(KEY, TALK[1:4]) for _ in range(4)))
    await store.append(KEY, [*TALK[3:], TALK[9], entry(2, "assistant", "something else")])
    assert await store.load(KEY) == TALK[1:]
    await store.append({**KEY, "subpath": "subagents/agent-1"}, [entry(1, "user", "find the secret of the subagent")])
    found = await memory.search("ann", "sister Noor Bergen secret prompt thought continued Caveat clear thanks")
    assert {each.content for each in found} == {"My sister Noor lives in Bergen.", "Noted: Bergen.", "Thanks."}
    assert {(each.session_id, each.occurred_at and each.occurred_at.year) for each in found} == {
        (f"claude/proj/{SESSION}", 2026)
    }
    # Another user's store is empty.
    assert await HippocampusSessionStore(memory, "ben").load(KEY) is None

    # A turn that was erased does not come back with a repeated batch, and the summary does not quote it.
    (summary,) = await store.list_session_summaries("proj")
    assert summary["data"]["first_prompt"] == "My sister Noor lives in Bergen."
    await memory.erasure.erase_events("shop", "ann", f"claude/proj/{SESSION}", event_ids=[TALK[1]["uuid"]])
    await store.append(KEY, TALK[1:3])
    assert await store.load(KEY) == TALK[2:]
    (summary,) = await store.list_session_summaries("proj")
    assert "first_prompt" not in summary["data"]
    for table in ("events", "messages", "threads", "snapshots"):
        assert await memory.pool.fetchval(f"SELECT count(*) FROM {table} AS x WHERE x::text LIKE '%Noor%'") == 0
    await store.append(KEY, [entry(10, "user", "And Kurt?"), {"type": "tag", "tag": "family"}, {"type": "tag"}])
    (summary,) = await store.list_session_summaries("proj")
    assert (summary["data"]["first_prompt"], "tag" in summary["data"]) == ("And Kurt?", False)
    await store.delete(KEY)
    assert await memory.search("ann", "Noor Bergen thanks") == []
    assert await store.list_subkeys(KEY) == []


async def test_the_functions_of_the_sdk_read_and_change_the_store(memory: Hippocampus) -> None:
    """Summaries are current without reading a transcript again, also after appends of several processes at once."""
    store: Any = HippocampusSessionStore(memory, "ann")
    key: Any = {"project_key": project_key_for_directory("/srv/shop"), "session_id": SESSION}
    await asyncio.gather(*(store.append(key, [each]) for each in TALK[:3]))
    await store.append(key, TALK[3:])
    await rename_session_via_store(store, SESSION, "Bergen", "/srv/shop")
    (listed,) = await list_sessions_from_store(store, "/srv/shop")
    assert (listed.session_id, listed.custom_title) == (SESSION, "Bergen")
    assert listed.first_prompt == "My sister Noor lives in Bergen."
    said = await get_session_messages_from_store(store, SESSION, "/srv/shop")
    assert said[0].message["content"] == "My sister Noor lives in Bergen."
    await delete_session_via_store(store, SESSION, "/srv/shop")
    assert await list_sessions_from_store(store, "/srv/shop") == []

    # Names with any character are apart, and come back.
    odd: Any = {"project_key": "a/b c%", "session_id": "d/e"}
    await store.append(odd, TALK[:1])
    assert [each["session_id"] for each in await store.list_sessions("a/b c%")] == ["d/e"]
    assert [await store.list_sessions(each) for each in ("a", "a/b", "a%", "a/b c")] == [[]] * 4


async def test_malformed_keys_and_entries_are_refused(memory: Hippocampus) -> None:
    store: Any = HippocampusSessionStore(memory, "ann")
    wrong: Any
    for wrong in (
        ({"project_key": "", "session_id": "s"}, [{"type": "x"}]),
        ({"project_key": "p", "session_id": "s" * 600}, [{"type": "x"}]),
        (KEY, [{"type": "x", "uuid": "a\0"}]),
        (KEY, [{"type": "x"}, {"type": "x", "value": object()}]),
    ):
        with pytest.raises(InvalidInputError):
            await store.append(*wrong)
    assert await store.load(KEY) is None
    with pytest.raises(InvalidInputError):
        HippocampusSessionStore(memory, " ")


async def test_a_session_is_resumed_on_another_machine(memory: Hippocampus, tmp_path: Path) -> None:
    """The SDK's own program continues from the store alone, with directories of its own for each run."""
    store: Any = HippocampusSessionStore(memory, "ann")
    session_id: str | None = None
    async with FakeAgentModel() as api:
        for number, prompt in enumerate(("My sister Noor lives in Bergen.", "Where does she live?")):
            home = tmp_path / str(number)
            home.mkdir()
            env = {
                "ANTHROPIC_BASE_URL": api.base_url,
                "ANTHROPIC_API_KEY": "none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CONFIG_DIR": str(home),
                "HOME": str(home),
            }
            options = ClaudeAgentOptions(
                session_store=store, resume=session_id, setting_sources=[], max_turns=1, env=env
            )
            (session_id,) = [
                each.session_id
                async for each in query(prompt=prompt, options=options)
                if isinstance(each, ResultMessage)
            ]
        messages = api.requests[-1].body["messages"]
    assert [message["role"] for message in messages if message["role"] != "system"][-3:] == [
        "user",
        "assistant",
        "user",
    ]
    assert "My sister Noor lives in Bergen." in str(messages)
    said = {each.content for each in await memory.search("ann", "sister Noor Bergen live where")}
    assert {"My sister Noor lives in Bergen.", "Where does she live?"} <= said
