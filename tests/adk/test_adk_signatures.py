"""Our services accept what ADK's base classes declare in the installed version of ADK."""

from __future__ import annotations

import inspect

import pytest
from google.adk.artifacts import BaseArtifactService
from google.adk.memory import BaseMemoryService
from google.adk.sessions import BaseSessionService

from hippocampus.adk import PostgresMemoryService
from pulse.adk import PostgresArtifactService, PostgresSessionService

OPTIONAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@pytest.mark.parametrize(
    ("base", "ours"),
    [
        (BaseSessionService, PostgresSessionService),
        (BaseMemoryService, PostgresMemoryService),
        (BaseArtifactService, PostgresArtifactService),
    ],
)
def test_every_method_of_the_base_class_is_overridden_with_its_arguments(base: type, ours: type) -> None:
    """No method is left to a base class that only raises. Our additional arguments have defaults."""
    methods = {name: each for name, each in inspect.getmembers(base, inspect.iscoroutinefunction) if name[0] != "_"}
    assert len(methods) >= 4
    for name, method in methods.items():
        own = getattr(ours, name)
        assert own is not method, name
        asked, taken = (dict(inspect.signature(each).parameters) for each in (method, own))
        for argument, each in asked.items():
            mine = taken.pop(argument)
            assert (mine.kind, mine.default) == (each.kind, each.default), f"{name}({argument})"
        optional = [each.default is not inspect.Parameter.empty or each.kind in OPTIONAL for each in taken.values()]
        assert all(optional), f"{name}({', '.join(taken)})"
