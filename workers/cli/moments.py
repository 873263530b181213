"""Moments as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

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


#: A moment without a zone is UTC.
MOMENT = Moment()
