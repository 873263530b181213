"""HIPPOCAMPUS_AGENTS: the agents of a writer, imported by name."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from google.adk.agents import LlmAgent

from tests.support import cli_process
from tests.support.stream_agents import AGENTS, echo
from tests.support.stream_client import OWNER, asked
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import WriterProcess
from workers import agents
from workers.settings import SettingsError

HELPER = LlmAgent(name="helper", description="helps", model="none")


def no_mapping() -> list[str]:
    return ["a"]


def test_agents_are_imported_one_by_one_or_as_a_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function, a mapping, a function that returns one, an agent of ADK with the services of the database."""
    here = __name__
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@localhost/nowhere")
    assert agents.load("") == {}
    assert agents.load("talk=tests.support.stream_agents:echo") == {"talk": echo}
    assert agents.load("tests.support.stream_agents:AGENTS") == AGENTS
    (helper,) = agents.load(f"helper={here}:HELPER").values()
    assert (helper.description, helper.runs_alone) == ("helps", True)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("a=nowhere.at_all:x", "nowhere.at_all"),
        ("a=tests.support.stream_agents:nobody", "nobody"),
        ("a=tests.support.stream_agents:LONG", "not an agent"),
        ("tests.support.stream_agents:work", "NAME="),
        ("tests.workers.test_agents_setting:no_mapping", "not a mapping"),
        ("tests.support.stream_agents:AGENTS,echo=tests.support.stream_agents:work", "two agents 'echo'"),
    ],
)
def test_a_wrong_agent_is_named(entries: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        agents.load(entries)


def test_a_writer_runs_the_agents_of_its_settings(dsn: str, tmp_path: Path) -> None:
    with WriterProcess(dsn, tmp_path / "log", agents="talk=tests.support.stream_agents:echo") as writer:
        listed = httpx.get(f"{writer.url}/api/agents", headers=OWNER, timeout=WAIT_SECONDS).json()
        assert [each["name"] for each in listed["agents"]] == ["talk"]
        said = httpx.post(f"{writer.url}/agui", json=asked("t", "r", "hello"), headers=OWNER, timeout=WAIT_SECONDS)
        assert '"delta":"hello ' in said.text


def test_the_option_names_agents_too(home: Path) -> None:
    """A wrong one ends the program with what is wrong."""
    done = cli_process.run(home, "writer", "--agent", "a=nowhere.at_all:x", DATABASE_URL="postgresql://h/n")
    assert (done.returncode, "nowhere.at_all" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    assert "of --agent or HIPPOCAMPUS_AGENTS" in done.stderr
    for command in ("up", "writer"):
        done = cli_process.run(home, command, "--agent", "default=my_agent", DATABASE_URL="postgresql://h/n")
        assert done.returncode == 2
        assert "--agent is 'default=my_agent': write NAME=MODULE:ATTRIBUTE" in done.stderr
        assert "HIPPOCAMPUS_AGENTS" not in done.stderr
