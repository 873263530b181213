"""A whole file of long conversations is ingested, and each of them becomes memories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import cli_process
from tests.support.paths import ROOT

BESIDE = "*/data/locomo*.json"
FILE = min(ROOT.parent.glob(BESIDE), default=None)


@pytest.mark.system
@pytest.mark.skipif(FILE is None, reason=f"no LoCoMo file beside the checkout: put one at ../{BESIDE}")
def test_each_conversation_has_summaries_facts_and_can_be_searched(home: Path) -> None:
    """With the local provider, through the command line and real workers."""
    assert FILE is not None
    done = cli_process.run(home, "demo", str(FILE))
    assert done.returncode == 0, done.stdout + done.stderr
    samples = json.loads(FILE.read_text(encoding="utf-8"))
    for sample in samples:
        owner = ("--app", "demo", "--user", sample["sample_id"], "--json")
        sessions = sum(
            name.endswith("_date_time") and name[:-10] in sample["conversation"] for name in sample["conversation"]
        )
        summaries = json.loads(cli_process.run(home, "memories", "--type", "summary", "--limit", "1000", *owner).stdout)
        assert len(summaries) >= sessions
        facts = json.loads(cli_process.run(home, "facts", *owner).stdout)
        assert len(facts) >= 10
        assert all(fact["said"] for fact in facts)
        turn = sample["conversation"]["session_1"][2]["text"]
        found = json.loads(cli_process.run(home, "search", turn, *owner).stdout)
        assert found["memories"][0]["session_id"] == f"{sample['sample_id']}-session-1"
