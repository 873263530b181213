"""The calls that list apps and users, and say what the key allows."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hippocampus.client.calls import Calls
from hippocampus.client.records import AppSummary, Caller, UserSummary, pick


class UserCalls(Calls):
    """Lists apps and their users."""

    async def me(self) -> Caller:
        """Read the roles of the key, and what it is bound to."""
        return pick(Caller, await self._call("GET", "/api/me"))

    async def apps(self, *, contains: str = "", page_size: int = 50) -> AsyncIterator[AppSummary]:
        """Yield the apps whose names contain a text, by name. Needs an all-apps key."""
        async for each in self._pages("/v1/apps", "apps", limit=page_size, contains=contains):
            yield pick(AppSummary, each)

    async def users(self, *, contains: str = "", page_size: int = 50) -> AsyncIterator[UserSummary]:
        """Yield the app's users whose names contain a text, by name."""
        async for each in self._pages(self._app("users"), "users", limit=page_size, contains=contains):
            yield pick(UserSummary, each)
