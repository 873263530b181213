"""Whether the chosen models would answer: reported at the start of a process and every minute until they do.

Jobs and searches report failed calls themselves; a person who has just started the program has none yet. Roles log it,
`demo` and `up --detach` print it, and `status` and `doctor` ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import structlog

from hippocampus.errors import PermanentProviderError, ProviderError
from hippocampus.providers.in_process import InProcessEmbedder, InProcessReranker
from hippocampus.providers.protocols import Checkable
from hippocampus.providers.registry import Kind
from workers.models.factory import make_model

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder, Generator, Reranker
    from workers.settings import ChosenModel, Settings

_log = structlog.get_logger(__name__)

#: A check that takes longer counts as failed: the report must come within ten seconds of the start.
CHECK_SECONDS_MAX = 8.0
REPEAT_SECONDS = 60.0
_LOADING = "loading"
#: In place of the description of a model, as the setting has it.
_NONE = "none"


async def fault_of(model: Generator | Embedder | Reranker) -> ProviderError | None:
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
    except Exception as error:  # noqa: BLE001 - of a provider of another distribution: it ends no report
        return ProviderError(f"the check failed ({type(error).__name__}: {error})", code="check")
    return None


def advice(chosen: ChosenModel, fault: ProviderError) -> str:
    """Return what to do about a fault."""
    variable = f"HIPPOCAMPUS_{chosen.kind.upper()}"
    if isinstance(fault, PermanentProviderError):
        return f"correct {variable} ({chosen.name}), its key or its address, then restart"
    if fault.code == _LOADING:
        return f"wait: it may be downloaded now ({variable}); searches do without it until then, and jobs wait"
    at = chosen.address or "the provider's own address"
    return f"check that the server is running and reachable at {at} ({variable}_BASE_URL); jobs wait until it answers"


def calls_no_model(chosen: ChosenModel) -> bool:
    """Whether it works by rules alone."""
    return chosen.provider == "local" and chosen.kind != "reranker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Whether a chosen model answers.

    Attributes:
        model: what the settings name; `none` for no reranker.
        state: `not_asked` if it runs in the processes themselves, or offers no check; `other` if the running
            installation calls another one, so that its answer would say nothing.
        error, remedy: why it is not reached or not asked, and what to do; no remedy where the error has it.
    """

    kind: Kind
    model: str
    state: Literal["reached", "not_reached", "not_asked", "other"]
    error: str | None = None
    remedy: str | None = None

    @property
    def said(self) -> str:
        """All of it for people, as the end of a sentence about this kind of model."""
        if self.state == "reached":
            return f"{self.model} answers"
        if self.state == "not_asked":
            return f"{self.model}: there is no server to ask"
        reasons = ": ".join(each.rstrip(".") for each in (self.error, self.remedy) if each)
        return f"is not asked: {reasons}." if self.state == "other" else f"{self.model} is not reached: {reasons}."


def reach_of(chosen: ChosenModel, fault: ProviderError | None) -> Reach:
    """Return what the check of a model has found."""
    if fault is None:
        return Reach(kind=chosen.kind, model=chosen.name, state="reached")
    return Reach(
        kind=chosen.kind, model=chosen.name, state="not_reached", error=str(fault), remedy=advice(chosen, fault)
    )


def called_by(settings: Settings) -> dict[str, str]:
    """Return the description of each chosen model, by kind, as an installation records what it calls."""
    return {kind: settings.chosen(kind).described for kind in settings.kinds}


async def survey(settings: Settings, used: Mapping[str, str] | None = None) -> list[Reach]:
    """Ask the server of each chosen model once. No model is loaded into this process.

    Args:
        used: what the running installation calls, as `called_by` returns it: no other model is asked.
    """
    chosen = called_by(settings)
    kinds: tuple[Kind, ...] = get_args(Kind)
    pairs = {kind: (chosen.get(kind, _NONE), (used or chosen).get(kind, _NONE)) for kind in kinds}
    asked = [_ask(settings, kind) for kind, (here, there) in pairs.items() if here == there != _NONE]
    others = [_other(kind, here, there) for kind, (here, there) in pairs.items() if here != there]
    return sorted([*await asyncio.gather(*asked), *others], key=lambda each: kinds.index(each.kind))


async def _ask(settings: Settings, kind: Kind) -> Reach:
    chosen = settings.chosen(kind)
    not_asked = Reach(kind=kind, model=chosen.name, state="not_asked")
    if calls_no_model(chosen):
        return not_asked
    try:
        model = make_model(settings, kind)
    except ValueError as error:
        return Reach(kind=kind, model=chosen.name, state="not_reached", error=str(error))
    try:
        if isinstance(model, InProcessEmbedder | InProcessReranker) or not isinstance(model, Checkable):
            return not_asked
        return reach_of(chosen, await fault_of(model))
    finally:
        await model.close()


def _other(kind: Kind, here: str, there: str) -> Reach:
    """Return that the running installation calls another model than the settings describe."""
    (name, _, address), (used_name, _, used_address) = here.partition(" at "), there.partition(" at ")
    variable = f"HIPPOCAMPUS_{kind.upper()}"
    differ = {variable: name != used_name, f"{variable}_BASE_URL": address != used_address}
    return Reach(
        kind=kind,
        model=name,
        state="other",
        error=f"`hippocampus up` runs with {there}, and the settings here name {here}",
        remedy=f"set {' and '.join(each for each, is_other in differ.items() if is_other)} here as there",
    )


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


def chosen_of(
    settings: Settings, generator: Generator, embedder: Embedder, reranker: Reranker | None = None
) -> list[tuple[ChosenModel, Generator | Embedder | Reranker]]:
    """Return the models of a process with what the settings say of each, for `report_unreachable`."""
    models: list[tuple[ChosenModel, Generator | Embedder | Reranker]] = [
        (settings.chosen("generator"), generator),
        (settings.chosen("embedder"), embedder),
    ]
    if reranker is not None:
        models.append((settings.chosen("reranker"), reranker))
    return models


async def report_unreachable(
    models: Iterable[tuple[ChosenModel, Generator | Embedder | Reranker]],
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
