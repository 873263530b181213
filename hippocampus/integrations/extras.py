"""The error of an adapter whose framework is not installed."""

from __future__ import annotations

from pulse.process.extras import install_command


def missing_library(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error that names the extra to install."""
    return ModuleNotFoundError(
        f"hippocampus.integrations needs {error.name}, which is not installed: run {install_command(extra)}",
        name=error.name,
    )
