"""Hashed vectors of words and character n-grams.

A text becomes a bag of features: stems, pairs of neighbouring stems, character n-grams of each word, single CJK
characters and their pairs, and word families (`concepts`). Each feature is hashed to one dimension and one sign; its
weight is sublinear in its number of occurrences. Two texts are similar if they share words, parts of words or families;
no other similarity of meaning is detected.

Every text also has one feature of its own. It does not change the order of long texts, and lowers the rank of short
ones, which would otherwise come first by sharing one word. It also makes cosines low: compare them with each other, not
with a threshold that was chosen for another model.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from hippocampus.providers import registry
from hippocampus.providers.local import concepts
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.records import Vector
from hippocampus.text import words

MODEL = registry.PROVIDERS["local"].embedding_model

#: The size of every vector. A smaller one would let more features share a slot.
DIMENSIONS = 1536

#: Texts embedded by one call of a thread, so that a large batch does not hold the interpreter without a break.
CHUNK_TEXTS = 64

STEM_WEIGHT = 1.0
STOPWORD_WEIGHT = 0.05
CHATTER_WEIGHT = 0.5
PAIR_WEIGHT = 0.25
NGRAM_WEIGHT = 0.35  # of all n-grams of one word together
FAMILY_WEIGHT = 1.0
OWN_WEIGHT = 3.0
CJK_CHARACTER_WEIGHT = 0.4
CJK_PAIR_WEIGHT = 1.0

_Feature = tuple[int, float]  # dimension, signed weight


class LocalEmbedder:
    """A `hippocampus.Embedder` by feature hashing, without a model.

    Every text has a unit vector: a text without a letter or digit still has its own feature, so that no vector is zero.
    Documents and queries share one space.
    """

    size = DIMENSIONS

    @property
    def model(self) -> str:
        """The version of the hashing; it changes whenever any vector does."""
        return MODEL

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        """Embed each text, in order. Both tasks give the same vector."""
        vectors: list[Vector] = []
        for start in range(0, len(texts), CHUNK_TEXTS):
            chunk = texts[start : start + CHUNK_TEXTS]
            vectors.extend(await asyncio.to_thread(_embed_all, chunk))
        return vectors

    async def close(self) -> None:
        """Do nothing: the embedder holds nothing open."""


def _embed_all(texts: Sequence[str]) -> list[Vector]:
    return [vector_of(text) for text in texts]


def vector_of(text: str) -> Vector:
    """Return the unit vector of one text."""
    vector = [0.0] * DIMENSIONS
    tokens = words.tokens(text)
    for (name, weight), count in Counter(_features(tokens)).items():
        scale = weight * (1.0 + math.log(count))
        for dimension, value in _hashed(name):
            vector[dimension] += scale * value
    own, sign = _slot("own " + (" ".join(tokens) or text))
    vector[own] += sign * OWN_WEIGHT
    norm = math.sqrt(sum(value * value for value in vector))
    if norm < 1e-6:  # signed features could cancel out
        vector[own], norm = 1.0, 1.0
    return [value / norm for value in vector]


def _features(tokens: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield the name and the weight of each feature; a repeated pair is a repeated feature."""
    previous = ""
    for token in tokens:
        if words.is_cjk(token):
            yield from _cjk_features(token)
            previous = ""
            continue
        stem = words.stem(token)
        for family in concepts.of_stem(stem):
            yield "f" + family, FAMILY_WEIGHT
        if token in words.STOPWORDS:
            yield "w" + token, STOPWORD_WEIGHT
            continue
        yield "s" + stem, CHATTER_WEIGHT if token in words.CHATTER else STEM_WEIGHT
        if previous:
            yield f"p{previous} {stem}", PAIR_WEIGHT
        previous = stem


def _cjk_features(run: str) -> Iterator[tuple[str, float]]:
    for character in run:
        yield "w" + character, CJK_CHARACTER_WEIGHT
    for family in concepts.of_cjk(run):
        yield "f" + family, FAMILY_WEIGHT
    for pair in words.cjk_terms(run) if len(run) > 1 else ():
        yield "c" + pair, CJK_PAIR_WEIGHT


@lru_cache(maxsize=65_536)
def _hashed(name: str) -> tuple[_Feature, ...]:
    """Return the slots of a feature: its own and, for a stem, those of its character n-grams."""
    own = _slot(name)
    if not name.startswith("s"):
        return (own,)
    grams = _ngrams(f"<{name[1:65]}>")
    share = NGRAM_WEIGHT / math.sqrt(len(grams))
    return (own, *((dimension, sign * share) for dimension, sign in map(_slot, grams)))


def _ngrams(word: str) -> list[str]:
    return [word[i : i + size] for size in (3, 4) for i in range(max(1, len(word) - size + 1))]


def _slot(name: str) -> _Feature:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    return (number >> 1) % DIMENSIONS, 1.0 if number & 1 else -1.0
