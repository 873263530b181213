"""Isolation: finding the item that a model refuses, so that one turn or text does not keep the others back.

`isolate` halves a refused batch until the refused item stands alone. The backfill isolates texts; consolidation
isolates turns, as follows.

The first job that fails for good stays failed: an operator may inspect it and run it again. A later job, enqueued for
later events, begins with the same turns. If they fail it as well, it consolidates the first half, or the half of that,
and a follow-up job continues after it. A turn that fails alone, repeatedly, while the model answers a harmless one, is
skipped: its text is kept, nothing is derived from it, and the job's result says so.

A transport error is not a refusal: the job is retried later. Only one that occurs on the job's last attempt too is
attributed to the turn, since some inputs crash a model's server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from hippocampus.consolidation.derive import keep_text
from hippocampus.consolidation.effects import Effects
from hippocampus.consolidation.slices import Slice
from hippocampus.errors import ProviderError, RateLimitedError, TransientProviderError
from hippocampus.providers.protocols import Embedder
from hippocampus.records import Turn

Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: A model that refuses this refuses its key or its settings, and not a batch.
HARMLESS = "Hello."
#: A single refusal may be chance.
_ATTEMPTS_ALONE = 2


async def isolate(
    batch: Sequence[Item],
    ask: Callable[[Sequence[Item]], Awaitable[Answer | ProviderError]],
    refusal: ProviderError,
) -> AsyncGenerator[tuple[Sequence[Item], Answer | ProviderError]]:
    """Halve a refused batch and yield its pieces in order, each with the answer or, for a lone item, its error.

    A caller that needs only the beginning of the batch takes the first piece.

    Args:
        ask: returns the model's answer to a piece, or the error with which it was refused.
        refusal: the error of the whole batch.
    """
    pending: list[tuple[Sequence[Item], ProviderError | None]] = [(batch, refusal)]
    while pending:
        piece, refused = pending.pop()
        outcome = refused or await ask(piece)
        if isinstance(outcome, ProviderError):
            middle = len(piece) // 2
            if middle:
                pending += [(piece[middle:], None), (piece[:middle], None)]
                continue
            outcome = await _ask_alone(piece, ask, outcome)
        yield piece, outcome


async def _ask_alone(
    piece: Sequence[Item],
    ask: Callable[[Sequence[Item]], Awaitable[Answer | ProviderError]],
    outcome: Answer | ProviderError,
) -> Answer | ProviderError:
    for _ in range(_ATTEMPTS_ALONE):
        outcome = await ask(piece)
        if not isinstance(outcome, ProviderError):
            break
    return outcome


async def check_answers(
    ask: Callable[[Sequence[Item]], Awaitable[Answer | ProviderError]], harmless: Item, refusal: ProviderError
) -> None:
    """Raise the refusal if the model refuses a harmless item too: then the batch is not at fault."""
    if isinstance(await ask([harmless]), ProviderError):
        raise refusal from None


def is_to_be_retried(error: ProviderError, *, is_last_attempt: bool) -> bool:
    """Return whether an error says nothing about the slice, so that the job should be retried as it is."""
    return isinstance(error, RateLimitedError) or (isinstance(error, TransientProviderError) and not is_last_attempt)


async def derive_beginning(
    derive: Callable[[Slice], Awaitable[Effects]],
    embedder: Embedder,
    slice_: Slice,
    refusal: ProviderError,
    *,
    is_last_attempt: bool,
) -> tuple[Slice, Effects]:
    """Return as much of a refused slice's beginning as the model accepts, and what it derives from it.

    Args:
        derive: asks the models for a slice.
        refusal: the error of the whole slice.
        is_last_attempt: the job is not retried after a transport error.

    Raises:
        RateLimitedError: no call may be made at present.
        TransientProviderError: the transport failed meanwhile; retry.
        ProviderError: the turn is not at fault: the model refuses everything.
    """

    async def ask(turns: Sequence[Turn]) -> Effects | ProviderError:
        try:
            return await derive(replace(slice_, turns=tuple(turns)))
        except ProviderError as error:
            if is_to_be_retried(error, is_last_attempt=is_last_attempt):
                raise
            return error

    harmless = replace(slice_.turns[0], text=HARMLESS)
    await check_answers(ask, harmless, refusal)
    async with aclosing(isolate(slice_.turns, ask, refusal)) as pieces:
        turns, outcome = await anext(pieces)
    beginning = slice_.beginning(turns)
    if isinstance(outcome, ProviderError):
        # The model may have gone down meanwhile.
        await check_answers(ask, harmless, outcome)
        outcome = await keep_text(embedder, beginning.stage, beginning.turns, outcome.code)
    return beginning, outcome
