"""Times and durations as options."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import click


class Moment(click.ParamType[datetime]):
    """A date, or a date and time; without a zone, of that of `--time-zone` if the command has it, or UTC."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse it."""
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r:.80} is not a date and time such as 2026-05-01T12:00:00Z", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=_zone(ctx))


def _zone(ctx: click.Context | None) -> tzinfo:
    name = ctx.params.get("time_zone") if ctx else None
    try:
        return ZoneInfo(name) if isinstance(name, str) else UTC
    # The search refuses such a name, and says why.
    except (ValueError, OSError, KeyError):
        return UTC


class Seconds(click.FloatRange):
    """A number of seconds within bounds; `nan` is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse it."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


MOMENT = Moment()
asked_at_option = click.option(
    "--asked-at",
    type=MOMENT,
    help="When the query is asked; by default now. 'yesterday' is the day before. Without a zone, in --time-zone.",
)
time_zone_option = click.option(
    "--time-zone",
    is_eager=True,
    help="The time zone of the query's days, such as Asia/Tokyo; by default the zone of --asked-at, or UTC.",
)
