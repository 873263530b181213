"""Every metric that a document, an alert or a panel names is exported, and every exported one is described."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pulse import telemetry
from tests.support.metric_names import alerts, exported, panels, used_by
from tests.support.paths import ROOT
from workers.autonomic import metrics as pulse_metrics
from workers.telemetry import metrics, writer_metrics

_LIKE_A_METRIC = re.compile(
    r"`((?:worker|writer|queue|model|database|webhook|retention|embedding|streams|listener|events|version|http|memories"
    r"|notification|states|tracing|consolidation|search|runs|tool|pulse)_\w*(?:_total|_seconds|_age|_jobs|_connections|_bucket))\b"
)
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "RUNBOOK.md", ROOT / "ARCHITECTURE.md"])


def described() -> set[str]:
    """The names in the first column of the tables of the four modules."""
    found: set[str] = set()
    for module in (telemetry, metrics, writer_metrics, pulse_metrics):
        for line in (module.__doc__ or "").splitlines():
            if line.startswith("| ") and not line.startswith("| metric"):
                found |= {name for name in line.split("|")[1].strip().split(", ") if not name.endswith("*")}
    return found - {"---"}


def test_the_tables_name_exactly_what_is_exported() -> None:
    plain = {name for name in exported() if not re.search(r"_(bucket|sum|count)$|^(process|python)_", name)}
    assert described() == plain


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_metrics_that_exist(page: Path) -> None:
    """A metric in code quotes; settings of that form are written in capitals."""
    named = set(_LIKE_A_METRIC.findall(page.read_text()))
    settings = {"query_embed_seconds"}
    assert named - settings <= exported()


def test_alerts_and_panels_read_metrics_that_exist() -> None:
    expressions = [rule["expr"] for rule in alerts().values()]
    expressions += [expression for several in panels().values() for expression in several]
    read = set().union(*map(used_by, expressions))
    assert read <= exported()
    assert len(read) > 30


def test_every_alert_says_what_to_do() -> None:
    """Each has a duration, a severity, a sentence, and a section of the runbook; each section of it an alert."""
    headings = re.findall(r"^## (.+)$", (ROOT / "RUNBOOK.md").read_text(), re.M)
    anchors = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
    for name, rule in alerts().items():
        assert rule["for"], name
        assert rule["labels"]["severity"] in {"warning", "critical"}, name
        assert rule["annotations"]["summary"].endswith((".", "--failed")), name
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "RUNBOOK.md", name
        assert anchor in anchors, name
        assert f"`{name}`" in (ROOT / page).read_text(), name
