"""Fields of several of the memory's bodies and parameters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, StringConstraints

from hippocampus.records import DIMENSIONS_MAX


def _written(moment: Any) -> Any:
    """Refuse a number: it could be in seconds or in milliseconds."""
    if not isinstance(moment, str):
        # A TypeError would not become an error of the field.
        raise ValueError("write it as a date, time and zone, such as 2026-05-01T00:00:00Z")  # noqa: TRY004 - see above
    return moment


def _storable(moment: datetime) -> datetime:
    """Refuse a time that is outside of the years 1 to 9999 in UTC: the driver sends times in UTC."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("write a time within the years 1 to 9999 of UTC") from None


Moment = Annotated[
    AwareDatetime,
    BeforeValidator(_written),
    AfterValidator(_storable),
    Field(strict=False, examples=["2026-05-01T00:00:00Z"]),
]


def _of_its_zone(moment: datetime) -> datetime:
    """Refuse what `_storable` does; the zone stays, since it says whose days 'yesterday' means."""
    _storable(moment)
    return moment


_AskedMoment = Annotated[
    AwareDatetime,
    BeforeValidator(_written),
    AfterValidator(_of_its_zone),
    Field(strict=False, examples=["2026-05-01T00:00:00+09:00"]),
]
AskedAt = Annotated[
    _AskedMoment | None, Field(description="When it is asked: 'last Friday' is the one before. By default now.")
]
TimeZone = Annotated[
    str | None,
    StringConstraints(min_length=1, max_length=64),
    Field(
        description="Whose days it means, such as Asia/Tokyo. By default the zone of asked_at, or UTC.",
        examples=["Asia/Tokyo"],
    ),
]
Embedding = Annotated[
    list[Annotated[float, Field(allow_inf_nan=False)]],
    Field(
        min_length=1,
        max_length=DIMENSIONS_MAX,
        description="The query's embedding, of the same dimensions as the stored vectors of its model; the server"
        " computes it by default.",
    ),
]
