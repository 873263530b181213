"""What the provider without a model makes of one conversation, as a hash: `-m tests.support.local_results`."""

from __future__ import annotations

import asyncio
import hashlib

from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from tests.support.provider_conformance import SLICES


async def results() -> str:
    generator = LocalGenerator()
    vectors = await LocalEmbedder().embed(["I live in Lisbon", "我住在杭州"], "document")
    answers = await generator.summarize(SLICES), await generator.reflect(SLICES), vectors
    return hashlib.sha256(repr(answers).encode()).hexdigest()


if __name__ == "__main__":
    print(asyncio.run(results()))
