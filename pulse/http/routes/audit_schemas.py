"""The bodies of the route of the audit log."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from pulse.http.edge.schemas import NextCursor, View


class ActView(View):
    """An administrative act. It holds ids, no word of a user."""

    id: uuid.UUID
    at: datetime
    actor: Annotated[str, Field(description="key:ID, cli:USER, library, worker, sql:ROLE, or what a host set.")]
    action: str
    app_name: Annotated[str | None, Field(description="None or '*': it concerns every app.")]
    user_id: str | None
    target: Annotated[dict[str, Any], Field(description="What it was done to.")]
    outcome: str


class ActPageView(View):
    """A page of acts, the newest first."""

    acts: list[ActView]
    next_cursor: NextCursor
