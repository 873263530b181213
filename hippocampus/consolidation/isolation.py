"""Getting past a turn that the models refuse, so that one turn does not end the memory of its conversation.

The first job that fails for good stays failed: a person may look at it and run it again. A later job, asked for by
later events, begins with the same turns. Where they fail it as well, it takes the first half, and the half of that;
what is taken is stored, and a follow-up goes on behind it. A turn that fails alone, again and again, while the models
answer to a harmless one, is passed by: its text is kept, nothing is drawn from it, and the job's result says so.

A fault of transport is no refusal: the job is tried again, later, with the turn. Only one that is there at the job's
last try as well is taken for the turn's own doing, as where what it says breaks the model's server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from hippocampus.consolidation import effects
from hippocampus.consolidation.effects import Effects
from hippocampus.consolidation.slices import Slice
from hippocampus.errors import ProviderError, RateLimitedError, TransientProviderError
from hippocampus.providers.protocols import Embedder

_HARMLESS = "Hello."
#: Nothing passes for refused by chance.
_TRIES_ALONE = 2

Draw = Callable[[Slice], Awaitable[Effects]]
Attempt = Callable[[Slice], Awaitable[Effects | ProviderError]]


def is_to_be_retried(error: ProviderError, *, is_last_try: bool) -> bool:
    """Return whether a fault says nothing of the slice: the job should be tried again as it is."""
    return isinstance(error, RateLimitedError) or (isinstance(error, TransientProviderError) and not is_last_try)


async def get_past(
    draw: Draw, embedder: Embedder, part: Slice, error: ProviderError, *, is_last_try: bool
) -> tuple[Slice, Effects]:
    """Return as much of the slice's beginning as the models take, and what they drew from it.

    Args:
        draw: asks the models for a slice.
        error: with which the whole slice failed.
        is_last_try: the job is not tried again after a fault of transport.

    Raises:
        RateLimitedError: nobody may call just now.
        TransientProviderError: the transport failed meanwhile; try again.
        ProviderError: it is not the turn that fails: nothing is taken at all.
    """

    async def attempt(some: Slice) -> Effects | ProviderError:
        try:
            return await draw(some)
        except ProviderError as fault:
            if is_to_be_retried(fault, is_last_try=is_last_try):
                raise
            return fault

    await _check_answers(attempt, part, error)
    while len(part.turns) > 1:
        part = part.first_half()
        drawn = await attempt(part)
        if isinstance(drawn, Effects):
            return part, drawn
        error = drawn
    for _ in range(_TRIES_ALONE):
        drawn = await attempt(part)
        if isinstance(drawn, Effects):
            return part, drawn
        error = drawn
    # Again: it may have gone down meanwhile.
    await _check_answers(attempt, part, error)
    return part, await effects.keep_unread(embedder, part, error.code)


async def _check_answers(attempt: Attempt, part: Slice, error: ProviderError) -> None:
    """Raise the error where the models do not take a harmless turn either."""
    harmless = replace(part, turns=(replace(part.turns[0], text=_HARMLESS),))
    if not isinstance(await attempt(harmless), Effects):
        raise error
