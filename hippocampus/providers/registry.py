"""The providers that can be chosen by name, and what a program has to know about each before it creates one.

A provider is a folder beside this module and one entry below. A provider of another distribution is an entry point of
the group ``hippocampus.providers`` that refers to a `Provider`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from types import MappingProxyType
from typing import Protocol, cast

from hippocampus.providers.calls import CallGate, CallObserver
from hippocampus.providers.protocols import Embedder, Generator

ENTRY_POINTS = "hippocampus.providers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What a generator or an embedder is made from. A provider ignores what it has no use for.

    Attributes:
        base_url: None for the provider's own.
        timeout_seconds: of one call.
        attempts: calls for one answer, the first included, when the transport fails.
        on_call: called after each call.
        gate: surrounds each call.
    """

    model: str
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    timeout_seconds: float = 60.0
    attempts: int = 3
    on_call: CallObserver | None = None
    gate: CallGate | None = None


class ProviderModule(Protocol):
    """What an entry's module defines."""

    def make_generator(self, config: ModelConfig) -> Generator:
        """Return a generator that has not called anything yet; the caller closes it."""

    def make_embedder(self, config: ModelConfig) -> Embedder:
        """Return an embedder that has not called anything yet; the caller closes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An entry of the registry.

    Attributes:
        module: the path of a `ProviderModule`. It is imported when a model is made, since a vendor's library may take a
            second to import.
        generation_model, embedding_model: the models that are used by default.
        key_variables: the environment variables that hold its API key, preferred first; none if it needs no key.
        url_variables: the environment variables that hold another address of its API, preferred first.
    """

    module: str
    generation_model: str
    embedding_model: str
    key_variables: tuple[str, ...] = ()
    url_variables: tuple[str, ...] = ()

    def load(self) -> ProviderModule:
        """Import the provider's module."""
        return cast("ProviderModule", importlib.import_module(self.module))


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        "gemini": Provider(
            module="hippocampus.providers.gemini.provider",
            generation_model="gemini-flash-lite-latest",
            embedding_model="gemini-embedding-001",
            key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            url_variables=("GOOGLE_GEMINI_BASE_URL",),
        ),
        "local": Provider(
            module="hippocampus.providers.local.provider",
            generation_model="local-patterns-v1",
            embedding_model="local-hash-v1",
        ),
    }
)


@functools.cache
def find(name: str) -> Provider:
    """Return a provider of this package, or else of an installed distribution.

    Raises:
        ValueError: there is no provider of this name; the message lists those that there are.
    """
    if name in PROVIDERS:
        return PROVIDERS[name]
    installed = metadata.entry_points(group=ENTRY_POINTS)
    if name not in installed.names:
        known = ", ".join(sorted({*PROVIDERS, *installed.names}))
        raise ValueError(f"there is no provider {name!r}: choose one of {known}")
    provider: Provider = installed[name].load()
    return provider
