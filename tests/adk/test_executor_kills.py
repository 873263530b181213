"""An executor over ADK goes on after a kill at every step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse.session_service import OpenSessionService
from tests.support.adk import executor_process
from tests.support.executor_kills import killed
from tests.support.executor_process import EFFECTS, KEY, check_effects, ended_calls

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL:UserWarning")

#: Where the process dies: around each statement that stores a step, and inside of each tool.
POINTS = [
    *(f"{when}:write_run:{number}" for number in range(1, 7) for when in ("before", "after")),
    *(f"{when}:{name}:{number}" for name in ("begin_tool_call", "end_tool_call") for number in (1, 2, 3)
      for when in ("before", "after")),
    "in:read:1", "in:read:2", "in:pay:1", "before:end_run:1", "after:start_run:1",
]  # fmt: skip
#: Those of every run of the suite.
FEW = ("in:pay:1", "after:end_tool_call:2", "before:begin_tool_call:2")


@pytest.mark.parametrize("points", [FEW, pytest.param(POINTS, marks=pytest.mark.system)], ids=["few", "all"])
async def test_a_kill_at_any_step_repeats_no_finished_call_and_leaves_none_open(
    pool: asyncpg.Pool, dsn: str, points: Sequence[str], tmp_path: Path
) -> None:
    """The process is killed at each point in turn, and this one goes on without a message: `pay` is made at most once.

    `read` may be repeated: then with the same key. If `pay` was running, its result is asked for. Every call has one
    result, which the model is shown, and the run ends with the answer.
    """
    await pool.execute(EFFECTS)
    sessions = OpenSessionService(pool)
    asked = []
    for point in points:
        await sessions.create_session(*KEY[:2], session_id=KEY.session_id)
        await killed(pool, executor_process.__name__, tmp_path, dsn, point, "go")
        ended_before = await ended_calls(pool)
        found = await executor_process.execute(dsn, None)
        if found.status == "waiting":
            asked.append(point)
            (interrupt,) = found.interrupts
            assert interrupt["reason"] == "outcome_unknown", (point, found)
            assert '{"n": 2}' in interrupt["message"]
            answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "paid 2, says the bank"}
            found = await executor_process.execute(dsn, None, [answer])
        assert found.status == "completed", (point, found)
        assert found.answer.startswith("done: "), (point, found)
        acts, observed = await calls_and_results(pool)
        assert sorted(acts) == sorted(observed), point
        await check_effects(pool, ended_before, point)
        told = [text for text in observed.values() if "paid 2" in text or "was lost before it made this call" in text]
        assert told, (point, observed)
        assert all(json.loads(text) for text in observed.values())
        await sessions.delete_session(*KEY)
        await pool.execute("TRUNCATE effects")
    assert "in:pay:1" in asked
    await sessions.close()


async def calls_and_results(pool: asyncpg.Pool) -> tuple[dict[str, str], dict[str, str]]:
    rows = await pool.fetch(
        "SELECT event_type, content FROM events WHERE event_type IN ('act', 'observe') ORDER BY sequence_num"
    )
    found: dict[str, dict[str, str]] = {"act": {}, "observe": {}}
    for row in rows:
        content: dict[str, Any] = json.loads(row["content"])
        assert content["tool_call_id"] not in found[row["event_type"]], "a second result of a call"
        found[row["event_type"]][content["tool_call_id"]] = row["content"]
    return found["act"], found["observe"]
