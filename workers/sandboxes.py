"""The sandbox of the settings, for every process that runs code of tools."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pulse.outbound.addresses import parse_networks
from pulse.sandbox.service import make_sandbox_backend

if TYPE_CHECKING:
    from pulse.sandbox.records import SandboxBackend
    from workers.settings import Settings


def make_sandbox(settings: Settings) -> SandboxBackend:
    """Return the backend that HIPPOCAMPUS_SANDBOX names. Nothing is started or tested yet."""
    token = settings.sandbox_token
    return make_sandbox_backend(
        settings.sandbox,
        engine=shlex.split(settings.sandbox_engine),
        options=shlex.split(settings.sandbox_options),
        token=None if token is None else token.get_secret_value(),
        allowed=parse_networks(settings.sandbox_networks),
    )
