"""The body of the route that reports what the caller's key allows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pulse.api_keys import Role
from pulse.http.edge.schemas import View


class CallerView(View):
    """What a key allows."""

    key_id: Annotated[
        str,
        Field(description="`operator` for HIPPOCAMPUS_API_KEY, `anybody` where the API needs no key."),
    ]
    app_name: Annotated[str | None, Field(description="The only app that it may name; null: every app.")]
    user_id: Annotated[str | None, Field(description="The only user that it may name; null: every user.")]
    roles: Annotated[list[Role], Field(description="What it may do; `admin` includes the other two.")]
    user_roles: Annotated[
        list[str] | None,
        Field(
            description="The roles of users that its calls may name, for tools and corpora; null: none with a key of"
            " one user, any with another."
        ),
    ]
