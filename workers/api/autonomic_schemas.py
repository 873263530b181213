"""The bodies of the routes of the autonomic layer. They hold codes, ids and numbers, and no words of users."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from pulse.http.edge.schemas import NextCursor, View


class PulseScopeView(View):
    """An instance of the autonomic layer."""

    scope: str
    release_id: Annotated[int | None, Field(description="The release of rules in force.")]
    version: Annotated[int, Field(description="Each promotion and rollback adds one.")]
    ticks: int
    holder: Annotated[str | None, Field(description="The process that leads, as machine:pid.")]
    last_tick_at: datetime | None
    is_ticking: Annotated[bool, Field(description="Whether the last tick was at most 75 seconds ago.")]


class VitalView(View):
    """The newest sample of a sense on a machine."""

    sense: str
    machine: str
    at: datetime
    data: Any


class DecisionView(View):
    """An effect: which rule decided it and why, and what became of it."""

    id: int
    at: datetime
    rule: str
    effect: Annotated[str, Field(description="Its kind and its target, as restart_role|writer@host:9100.")]
    survival: Annotated[bool, Field(description="Whether a survival rule decided it, or one of a release.")]
    why: Annotated[dict[str, Any], Field(description="What the rule saw.")]
    end: Literal["waiting", "executing", "acked", "failed"]
    code: Annotated[str | None, Field(description="Why it failed.")]
    by: Annotated[str | None, Field(description="The process that executed it, as machine:pid.")]
    ended_at: datetime | None


class TickView(View):
    """A tick that decided something, or the first one of an hour."""

    model_config = ConfigDict(from_attributes=True, frozen=True, extra="ignore")

    at: datetime
    ticks: Annotated[int, Field(description="Its number.")]
    holder: str
    ms: Annotated[float, Field(description="How long it took to decide.")]
    decided: Annotated[list[tuple[str, str]], Field(description="Pairs of a rule and an effect.")]
    errors: int


class PulseStatusView(View):
    """What the installation senses, decided and did."""

    scope: PulseScopeView
    vitals: list[VitalView]
    decisions: Annotated[list[DecisionView], Field(description="The newest first.")]
    ticks: Annotated[list[TickView], Field(description="The newest first.")]


class PulseEventView(View):
    """An event of the record."""

    id: int
    kind: str
    key: str
    ref: Annotated[int | None, Field(description="The id of the effect that it is about.")]
    hash: Annotated[str | None, Field(description="Of the object that it is about.")]
    meta: dict[str, Any]
    occurred_at: datetime


class PulseEventPageView(View):
    """A page of the record, the newest first."""

    events: list[PulseEventView]
    next_cursor: NextCursor
