"""Moments and durations as people write them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import click


class Moment(click.ParamType[datetime]):
    """A date, or a date and time; UTC where it names no zone."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read it."""
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r:.80} is no date and time such as 2026-05-01T12:00:00Z", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Seconds(click.FloatRange):
    """A number of seconds within bounds; `nan` is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


#: A moment without a zone is UTC.
MOMENT = Moment()
