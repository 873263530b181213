"""Whether the chosen models would answer: reported at the start of a process and every minute until they do.

Jobs and searches report failed calls themselves; a person who has just started the program has none yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import structlog

from hippocampus.errors import PermanentProviderError, ProviderError
from hippocampus.providers.in_process import InProcessEmbedder, InProcessReranker
from hippocampus.providers.protocols import Checkable

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder, Generator, ModelReranker
    from workers.settings import ChosenModel

_log = structlog.get_logger("workers.models.reach")

#: A check that takes longer counts as failed: the report must come within ten seconds of the start.
CHECK_SECONDS_MAX = 8.0
REPEAT_SECONDS = 60.0
_LOADING = "loading"


async def fault_of(model: Generator | Embedder | ModelReranker) -> ProviderError | None:
    """Return why a model would not answer now; None if it would, or cannot be asked."""
    if not isinstance(model, Checkable):
        return None
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX):
            await model.check()
    except TimeoutError:
        if isinstance(model, InProcessEmbedder | InProcessReranker):
            return ProviderError(f"the model is not loaded after {CHECK_SECONDS_MAX:g} s", code=_LOADING)
        return ProviderError(f"no answer within {CHECK_SECONDS_MAX:g} s", code="timeout")
    except ProviderError as error:
        return error
    return None


def advice(chosen: ChosenModel, fault: ProviderError) -> str:
    """Return what to do about a fault."""
    variable = f"HIPPOCAMPUS_{chosen.kind.upper()}"
    if isinstance(fault, PermanentProviderError):
        return f"correct {variable} ({chosen.name}), its key or its address, then restart"
    if fault.code == _LOADING:
        return f"wait: it may be downloaded now ({variable}); searches do without it until then, and jobs wait"
    at = chosen.base_url or "the provider's own address"
    return f"check that the server is running and reachable at {at} ({variable}_BASE_URL); jobs wait until it answers"


def log_reach(chosen: ChosenModel, fault: ProviderError | None) -> None:
    """Log that a model does not answer, or that it answers again."""
    if fault is None:
        _log.info("model_reached", kind=chosen.kind, model=chosen.name)
        return
    _log.error(
        "model_not_reached",
        kind=chosen.kind,
        model=chosen.name,
        code=fault.code,
        reason=str(fault),
        remedy=advice(chosen, fault),
    )


async def report_unreachable(
    models: Iterable[tuple[ChosenModel, Generator | Embedder | ModelReranker]],
    *,
    repeat_seconds: float = REPEAT_SECONDS,
    report: Callable[[ChosenModel, ProviderError | None], None] = log_reach,
) -> None:
    """Report each model that does not answer, at once and then again each minute, until it has answered once."""
    waiting = {chosen: model for chosen, model in models if isinstance(model, Checkable)}
    reported = set[str]()
    while waiting:
        faults = dict(zip(waiting, await asyncio.gather(*map(fault_of, waiting.values())), strict=True))
        for chosen, fault in faults.items():
            if fault is None:
                del waiting[chosen]
                if chosen.kind in reported:
                    report(chosen, None)
                continue
            reported.add(chosen.kind)
            report(chosen, fault)
        if waiting:
            await asyncio.sleep(repeat_seconds)
