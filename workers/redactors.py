"""What finds secrets in the processes of this program, from HIPPOCAMPUS_REDACTOR."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from pulse.redaction import use_redactor
from workers.settings import Settings, SettingsError

_VARIABLE = "HIPPOCAMPUS_REDACTOR"


def install(config: Settings) -> None:
    """Use the redactor of the setting in this process. Its module is also looked for in the current folder.

    Raises:
        SettingsError: it cannot be imported, or has not the methods of a `pulse.Redactor`.
    """
    if not config.redactor:
        return
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    module, _, attribute = config.redactor.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for each in attribute.split("."):
            found = getattr(found, each)
        redactor = found() if isinstance(found, type) else found
        missing = [name for name in ("find", "is_secret_name") if not callable(getattr(redactor, name, None))]
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SettingsError(f"{_VARIABLE}: {config.redactor} cannot be imported ({reason})") from error
    if missing:
        raise SettingsError(f"{_VARIABLE}: {config.redactor} is not a redactor: it has no {' and no '.join(missing)}")
    use_redactor(redactor)
