"""The types of AG-UI, imported when one of them is first used: making their models is a tenth of a writer's start."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ag_ui.core import *  # noqa: F403 - whichever are used
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = globals()[name] = getattr(importlib.import_module("ag_ui.core"), name)
        return found
