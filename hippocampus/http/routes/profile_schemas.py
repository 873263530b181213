"""The body of the route that reads a user's profile."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from hippocampus.profile import ProfileKind
from pulse.http.edge.schemas import View


class ProfileLineView(View):
    """A line of a profile."""

    kind: ProfileKind
    text: str
    ids: Annotated[
        list[uuid.UUID],
        Field(description="Of its facts, its memory or its proposal; GET …/memories/{id}/origin traces them."),
    ]
    since: Annotated[datetime | None, Field(description="Since when it is true.")]
    is_standing: Annotated[bool, Field(description="Rules, allergies, diets and instructions.")]


class ProfileView(View):
    """What is known of a user."""

    text: Annotated[str, Field(description="The page in Markdown; empty if nothing is known.")]
    lines: list[ProfileLineView]
    language: Literal["en", "zh"]
    total_tokens: Annotated[int, Field(description="The tokens of the text; never over max_tokens.")]
    max_tokens: int
    left_out: Annotated[int, Field(description="How many facts and instructions that hold are not on the page.")]
    as_of: datetime | None
