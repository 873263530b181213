"""The configurations that docs/mcp.md shows can be pasted."""

from __future__ import annotations

import json
import re

import click

from tests.support.paths import ROOT
from workers.cli import main
from workers.mcp.tools import TOOLS
from workers.settings import Settings, variables_of

#: Under which key each client reads its servers.
CLIENTS = {
    "Claude Code": "mcpServers",
    "Claude Desktop": "mcpServers",
    "Cursor": "mcpServers",
    "VS Code": "servers",
}
PAGE = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")


def test_every_configuration_is_json_and_starts_a_command_that_exists() -> None:
    """Its options are those of the command, its variables those of the settings."""
    command = main.root.get_command(click.Context(main.root), "mcp")
    assert command is not None
    options = {option for each in command.params for option in each.opts}
    known = {name for field in Settings.model_fields for name in variables_of(field)}
    servers, keys = [], {}
    for before, block in re.findall(r"([^\n]*)\n\n```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        ((key, found),) = json.loads(block).items()
        servers += found.values()
        keys.update(dict.fromkeys((name for name in CLIENTS if name in before), key))
    assert keys == CLIENTS
    local = [each for each in servers if "command" in each]
    assert (len(servers), len(local)) == (4, 3)
    for each in local:
        assert each["command"] == "hippocampus"
        assert each["args"][0] == "mcp"
        assert {word for word in each["args"] if word.startswith("-")} <= options
        assert each.get("env", {}).keys() <= known
        named = {"--app", "--user"} <= set(each["args"])
        assert named or {"HIPPOCAMPUS_APP", "HIPPOCAMPUS_USER"} <= each["env"].keys()
    (remote,) = (each for each in servers if "url" in each)
    assert remote["url"].endswith("/mcp")
    assert remote["headers"]["Authorization"].startswith("Bearer hip_")


def test_the_page_lists_every_tool_with_its_role() -> None:
    """In the order of the server."""
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert rows == [(tool.name, tool.role) for tool in TOOLS.values()]
