"""The agents of a writer, from HIPPOCAMPUS_AGENTS: what they are called, and where they are in Python.

greeter=shop.agents:greet       an agent: a function of a RunContext, or an agent or an app of Google ADK
shop.agents:all_of_them         a mapping of agents by name, or a function that returns one
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.settings import SettingsError

if TYPE_CHECKING:
    from pulse.runs.agents import Agent

#: The sources of an entry; the writer that reads it does not know which of them it is from.
_ORIGIN = "of --agent or HIPPOCAMPUS_AGENTS"


def load(entries: str) -> dict[str, Agent]:
    """Import the agents of the setting.

    Modules are also looked for in the current folder, after everything that is installed.

    Raises:
        SettingsError: one cannot be imported, is not an agent, or has a name that is taken.
    """
    found: dict[str, Agent] = {}
    here = str(Path.cwd())
    if entries and here not in sys.path:
        sys.path.append(here)
    for entry in filter(None, entries.split(",")):
        name, _, place = entry.rpartition("=")
        value = _import(entry, place)
        named = {name: value} if name else _mapping(entry, value)
        for own, agent in named.items():
            if own in found:
                raise SettingsError(f"There are two agents {own!r}: the entry {entry} {_ORIGIN} is the second")
            found[own] = _agent(entry, agent)
    return found


def _import(entry: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for each in attribute.split("."):
            found = getattr(found, each)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SettingsError(
            f"The agent {entry} {_ORIGIN} cannot be imported ({reason}): write NAME=MODULE:ATTRIBUTE, of a"
            " module that is installed or in the current folder"
        ) from error
    return found


def _mapping(entry: str, value: Any) -> Mapping[str, Any]:
    if callable(value) and not isinstance(value, Mapping):
        if inspect.signature(value).parameters or inspect.iscoroutinefunction(value):
            raise SettingsError(f"The entry {entry} {_ORIGIN} is an agent without a name: write NAME={entry}")
        value = value()
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise SettingsError(
            f"The entry {entry} {_ORIGIN} is not a mapping of agents by name: name one agent as NAME={entry}"
        )
    return value


def _agent(entry: str, value: Any) -> Agent:
    # Imported for agents of ADK alone.
    if any(each.__module__.startswith("google.adk.") for each in type(value).__mro__):
        from workers.adk.services import as_agent

        return as_agent(value)
    if not callable(value):
        raise SettingsError(
            f"The entry {entry} {_ORIGIN} is {type(value).__name__}, not an agent: name a function of a"
            " RunContext, or an agent of Google ADK"
        )
    agent: Agent = value
    return agent
