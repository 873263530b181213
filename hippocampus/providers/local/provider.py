"""The provider without a model: offline, deterministic, nothing to download, no key.

Its summaries are sentences of the conversation, its facts are what known patterns find in English and Chinese
sentences, and its vectors compare words and parts of words. It invents nothing, and misses what is said in other ways.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hippocampus.providers import registry
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.providers.registry import ModelConfig
from hippocampus.records import ConversationSlice, Origin, Reflection, Summary
from hippocampus.text import times, words

__all__ = ["LocalEmbedder", "LocalGenerator"]

MODEL = registry.PROVIDERS["local"].generation_model


def make_generator(_config: ModelConfig) -> LocalGenerator:
    """Return a generator; see `hippocampus.providers.registry.ProviderModule`."""
    return LocalGenerator()


def make_embedder(_config: ModelConfig) -> LocalEmbedder:
    """Return an embedder; see `hippocampus.providers.registry.ProviderModule`."""
    return LocalEmbedder()


class LocalGenerator:
    """`hippocampus.providers.protocols.Generator` by sentence salience and patterns. Uses no tokens."""

    #: A correction may come in a later slice than what it corrects.
    reads_known_facts = True

    @property
    def name(self) -> str:
        """The provider's name."""
        return "local"

    @property
    def fingerprint(self) -> str:
        """The hash of the rules."""
        return f"local {MODEL} {_origin().prompt_hash}"

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        """Return the most salient sentences of each slice, with their speakers, in at most 200 characters."""
        return [await asyncio.to_thread(_summarize, slice_) for slice_ in slices]

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        """Return facts and instructions by patterns, and insights by cue; each is empty if nothing matches."""
        return [await asyncio.to_thread(_reflect, slice_) for slice_ in slices]

    async def close(self) -> None:
        """Do nothing: the generator holds nothing open."""


def _summarize(slice_: ConversationSlice) -> Summary:
    # The rules are imported where they are used: a process that only embeds starts without them.
    from hippocampus.providers.local import summary

    return Summary(text=summary.of_slice(slice_), origin=_origin())


def _reflect(slice_: ConversationSlice) -> Reflection:
    from hippocampus.providers.local import facts, feedback, insights

    return Reflection(
        facts=tuple(facts.with_former(slice_)),
        insights=tuple(insights.of_slice(slice_)),
        proposals=tuple(feedback.of_slice(slice_)),
        origin=_origin(),
    )


@cache
def _origin() -> Origin:
    """Return the origin of every memory: the hash of the rules' source, in place of a prompt's."""
    digest = hashlib.sha256()
    for path in (*sorted(Path(__file__).parent.glob("*.py")), Path(words.__file__), Path(times.__file__)):
        digest.update(path.name.encode() + b"\x00" + path.read_bytes() + b"\x00")
    return Origin(provider="local", model=MODEL, prompt_hash=digest.hexdigest())
