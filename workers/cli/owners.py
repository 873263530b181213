"""Which user is meant: options, and the only user if none is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from pulse.errors import InvalidInputError
from workers.cli import databases, rows
from workers.cli.options import bundled, known_app, known_user
from workers.cli.rows import Owner

if TYPE_CHECKING:
    from pulse.database import Pool

OWNERS_SHOWN_MAX = 12
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Whose:
    """The values of --app and --user."""

    app: str | None
    user: str | None

    async def find(self, pool: Pool) -> Owner:
        """Return the user that is meant.

        Raises:
            InvalidInputError: no user fits, or several do; the message lists them.
        """
        if self.app and self.user:
            return Owner(self.app, self.user)
        fitting = await rows.owners(pool, self.app, self.user, limit=OWNERS_SHOWN_MAX + 1)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise InvalidInputError(f"There are several users; say which: {_listed(fitting)}.")
        everyone = await rows.owners(pool, None, None, limit=OWNERS_SHOWN_MAX + 1)
        if not everyone:
            raise InvalidInputError("There is no session yet: run `hippocampus demo`, or `hippocampus ingest FILE`.")
        raise InvalidInputError(f"There is no user that fits {self._given()}: there is {_listed(everyone)}.")

    def run(self, work: Callable[[Pool, Owner], Awaitable[Result]]) -> Result:
        """Run a command's work for the user that is meant, and return its result."""

        async def run(pool: Pool) -> Result:
            return await work(pool, await self.find(pool))

        return databases.run(run)

    def _given(self) -> str:
        return " ".join(
            part for part in (self.app and f"--app {self.app}", self.user and f"--user {self.user}") if part
        )


OWNER_OPTIONS = (
    click.option("--app", callback=known_app, help="The app of the user. Required if there is more than one."),
    click.option("--user", callback=known_user, help="The user. Required if there is more than one."),
)
#: Adds --app and --user to a command, which receives `whose`.
owner_options = bundled("whose", Whose, *OWNER_OPTIONS)
#: The same for a command that writes the first of an app.
new_owner_options = bundled(
    "whose",
    Whose,
    click.option("--app", help="The app of the user. Required if there is more than one."),
    click.option("--user", help="The user. Required if there is more than one."),
)


def _listed(owners: list[Owner]) -> str:
    """List users: `owners` has one more than is shown if there are more."""
    shown = ", ".join(f"--app {each.app} --user {each.user}" for each in owners[:OWNERS_SHOWN_MAX])
    return shown if len(owners) <= OWNERS_SHOWN_MAX else f"{shown} and more (`hippocampus users` lists them)"
