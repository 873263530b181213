"""The bodies of the routes of apps and users."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from hippocampus.users import COUNTED_MAX
from pulse.http.edge.schemas import NextCursor, View

Count = Annotated[int, Field(description=f"{COUNTED_MAX} means that many or more.")]


class AppSummaryView(View):
    """An app, and how much it holds."""

    app_name: str
    sessions: Count
    memories: Count
    facts: Count


class AppSummaryPageView(View):
    """A page of apps, by name. With `contains`, a page before the last one may have fewer than `limit`."""

    apps: list[AppSummaryView]
    next_cursor: NextCursor


class UserSummaryView(View):
    """A user, how much is remembered, and what was said last."""

    user_id: str
    sessions: Count
    memories: Count
    facts: Count
    waiting_events: Annotated[int, Field(description="Stored events that are not consolidated yet.")]
    last_active_at: datetime | None
    last_session_id: Annotated[str | None, Field(description="The session that changed last.")]
    last_role: str | None
    last_text: Annotated[str | None, Field(description="Its newest message, up to 280 characters.")]
    last_said_at: datetime | None


class UserSummaryPageView(View):
    """A page of users, by name. With `contains`, a page before the last one may have fewer than `limit`."""

    users: list[UserSummaryView]
    next_cursor: NextCursor
