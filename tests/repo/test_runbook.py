"""RUNBOOK.md names what exists: each command parses, each alert, finding and metric is the program's."""

from __future__ import annotations

import re
import shlex
import string

import click
import pytest
import yaml

from tests.support.paths import ROOT
from workers.cli import main

TEXT = (ROOT / "RUNBOOK.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
WANTED = {
    "Stuck job",
    "Provider outage",
    "Lagging stream",
    "Disk full",
    "Failover",
    "Restore",
    "Upgrade",
    "Rollback",
    "Leaked key",
}
VALUES = {
    "JOB": "01900000-0000-7000-8000-000000000000",
    "ENDPOINT": "01900000-0000-7000-8000-000000000000",
    "KEY": "3k9q0c7vw2ab",
    "APP": "shop",
    "OWNER": "ann",
    "SESSION": "s1",
    "SINCE": "2026-05-01T12:00:00Z",
}


def commands() -> list[str]:
    """Every `hippocampus …` command, in a block or in a sentence."""
    in_blocks = re.findall(r"^(hippocampus [^\n]*)$", TEXT, re.MULTILINE)
    return sorted({*in_blocks, *re.findall(r"`(hippocampus [^`]*)`", TEXT)})


def parse(command: click.Command, name: str, words: list[str], parent: click.Context | None = None) -> click.Command:
    """Parse a command line as the program does, and return the command that would run."""
    context = command.make_context(name, words, parent=parent)
    if not isinstance(command, click.Group):
        return command
    inner_name, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    assert inner is not None
    return parse(inner, str(inner_name), rest, context)


@pytest.mark.parametrize("line", commands())
def test_every_command_parses(line: str) -> None:
    """With its options and the types of its values: a command that was renamed fails here, not at night."""
    words = shlex.split(string.Template(line).substitute(VALUES))
    found = parse(main.root, words[0], words[1:])
    assert found is not main.root


def test_every_section_has_signs_commands_and_an_outcome() -> None:
    assert SECTIONS.keys() >= WANTED
    for name, section in SECTIONS.items():
        assert section.startswith("**Signs.** "), name
        assert "\n```sh\n" in section, name
        assert "\n**Afterwards.** " in section, name


def test_every_alert_and_finding_exists() -> None:
    """And every alert is in a section."""
    (group,) = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"]
    named = set(re.findall(r"`(Hippocampus\w+)`", TEXT))
    assert named == {rule["alert"] for rule in group["rules"]}
    source = (ROOT / "workers" / "doctor.py").read_text()
    findings = re.findall(r"Doctor: (.*?)\.", TEXT)
    assert len(findings) > 5
    for finding in re.findall(r"`([^`]+)`", " ".join(findings)):
        assert f'"{finding}"' in source or finding in {"generator", "embedder"}, finding
