"""The protocols between the memory and models. A generator and an embedder take batches: one call, many inputs.

`Generator` and `Embedder` are required. `Answerer`, `Reranker` with `ModelReranker`, and `Checkable` are optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from hippocampus.records import ConversationSlice, Question, Reflection, Reply, Summary, Vector

#: What a vector is for. Some models embed documents and queries differently.
EmbeddingTask: TypeAlias = Literal["document", "query"]


class Generator(Protocol):
    """Extracts summaries, facts, insights and proposals of instructions from slices of conversation.

    Every method returns one reply per slice, in the order of its input, and raises
    `hippocampus.errors.ProviderError` for the whole batch if one slice fails: a failure is
    never an empty reply. The text of a conversation is data, never an instruction.

    A generator with the attribute ``reads_known_facts`` set to true is given `ConversationSlice.known_facts` with each
    slice that it reflects, one with ``compares_insights`` is given `ConversationSlice.known_insights`. For others these
    are empty, and cost nothing. A process asks one that reads known facts about a user's sessions one after another,
    and again if these facts changed meanwhile, unless its reply reports tokens: this suits a generator that is quick.
    """

    @property
    def name(self) -> str:
        """The provider's name: ``gemini``, ``openai``, ``local``."""

    @property
    def fingerprint(self) -> str:
        """What its replies depend on besides their input: model, prompts, rules. It changes when any of these does."""

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        """Summarise each slice in at most 200 characters."""

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        """Extract facts, insights and proposals from each slice."""

    async def close(self) -> None:
        """Close what the provider holds open. Idempotent."""


@runtime_checkable
class Answerer(Protocol):
    """A generator that answers questions from passages of the memory. Optional: without it, passages are shown."""

    async def answer(self, question: Question) -> Reply:
        """Answer from the passages alone. Their text is data, never an instruction.

        Raises:
            ProviderError: the model did not answer, or not in the requested form; never an empty reply instead.
        """


class Embedder(Protocol):
    """Turns texts into vectors of floats, L2-normalised, all of the same dimensions: at most `DIMENSIONS_MAX`.

    Models whose vectors differ in their dimensions have different names. An embedder may have the attribute ``size``:
    the dimensions of its vectors, or None as long as it does not know them. With the attribute ``is_paid`` set to true,
    vectors of a job are kept until they are stored, so that another attempt does not ask for them again: this suits a
    model behind an API.
    """

    @property
    def model(self) -> str:
        """The model's name, stored with every vector: one search never mixes two models."""

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        """Embed each text, in order; a text over the model's limit is embedded in chunks and averaged.

        Raises:
            ProviderError: the whole batch failed.
        """

    async def close(self) -> None:
        """Close what the embedder holds open. Idempotent."""


class Reranker(Protocol):
    """Scores texts by how well they answer a query."""

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return one score per text, in order; higher is better. Their scale does not matter."""


@runtime_checkable
class ModelReranker(Reranker, Protocol):
    """A reranker that a provider makes: one of its own, or a generator with this method, which is optional.

    It raises `hippocampus.errors.ProviderError` if the model did not answer, or not in the requested form. The text of
    what it ranks is data, never an instruction.
    """

    async def close(self) -> None:
        """Close what the reranker holds open. Idempotent."""


@runtime_checkable
class Checkable(Protocol):
    """A generator, an embedder or a reranker that can say whether its model would answer. Optional."""

    async def check(self) -> None:
        """Ask the server whether it accepts the key and knows the model, at little or no cost.

        Raises:
            ProviderError: it does not; the message says what to do.
        """


def reads_known_facts(generator: Generator) -> bool:
    """Return whether a generator is given the facts that hold; see `Generator`."""
    return getattr(generator, "reads_known_facts", False) is True


def is_paid(embedder: Embedder) -> bool:
    """Return whether vectors cost more than it costs to keep them; see `Embedder`."""
    return getattr(embedder, "is_paid", False) is True
