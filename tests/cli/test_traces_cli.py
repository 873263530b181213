"""`hippocampus traces`: what ran is listed, filtered, and shown as a waterfall."""

from __future__ import annotations

import json

import pytest

from pulse.tracing.manager import TracingManager
from tests.support.cli_commands import Run
from tests.support.waiting import WAIT_SECONDS


def test_traces_from_the_list_to_the_waterfall(run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first; by owner, failure and time; each span below the one that caused it, with its tokens."""
    monkeypatch.setenv("DATABASE_URL", dsn)
    assert run("traces")[1:] == ("", "There are no traces.\n")
    with TracingManager("agent", dsn, sdk=False) as tracing:
        with tracing.span("first", app_name="shop", user_id="ann", session_id="s1"):
            tracing.record_llm_call("m", provider="openai", operation="chat", seconds=9.0, attributes={
                "gen_ai.usage.input_tokens": 812, "gen_ai.usage.output_tokens": 40,
            })  # fmt: skip
        with pytest.raises(ValueError, match="no"), tracing.span("second", app_name="shop", user_id="ben"):
            with tracing.trace_tool_call("pay", call_id="c1"):
                raise ValueError("no")
        with tracing.span("third", app_name="bank", user_id="ann") as third:
            caused_by = third.traceparent
        with tracing.span("job", kind="consumer", links=(caused_by,)):
            pass
        assert tracing.flush(WAIT_SECONDS)

    def listed(*options: str) -> list[str]:
        code, out, _ = run("traces", "list", *options, "--json")
        assert code == 0
        return [each["name"] for each in json.loads(out)]

    assert listed() == ["job", "third", "second", "first"]
    assert listed("--app", "shop", "--user", "ann", "--session", "s1") == ["first"]
    assert listed("--failed") == ["second"]
    assert listed("--app", "shop", "--limit", "1") == ["second"]
    assert listed("--min-ms", "60000") == []
    found = {each["name"]: each["trace_id"] for each in json.loads(run("traces", "--json")[1])}
    code, out, _ = run("traces", "show", found["first"])
    assert code == 0
    lines = out.splitlines()
    assert [line.split("\t")[0] for line in lines[-2:]] == ["first", "chat m"]
    assert "812 + 40" in lines[-1]
    assert "█" in lines[-1]
    failed = run("traces", "show", found["second"])[1].splitlines()[-2:]
    assert all(line.endswith("ValueError") for line in failed), failed
    # The job that it caused has a trace of its own, and is shown with it.
    assert [each["name"] for each in json.loads(run("traces", "show", found["third"], "--json")[1])] == ["third", "job"]
    code, _, said = run("traces", "show", "f" * 32)
    assert code != 0
    assert "There is no trace" in said
