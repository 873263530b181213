"""Releases: rules with their watchers and executors, staged, checked, run as a shadow, promoted, rolled back.

They run elsewhere.

    staged -> checked -> shadow -> active -> retired
         '-------'---------'-> refused    '-> rolled_back

The database keeps the files by their hash, so that every machine runs the same release. `promote` moves one pointer,
under a version check; a rollback goes to the newest earlier release that was in force for ten minutes, or to none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pulse.autonomic.errors import PulseNotFoundError
from pulse.autonomic.objects import get_object
from pulse.autonomic.statements import STATEMENTS
from pulse.autonomic.types import canonical_json
from pulse.errors import InvalidInputError

if TYPE_CHECKING:
    from pulse.postgres.statements import Session

RULES_BYTES_MAX = 262_144
RULES_FILES_MAX = 64
#: What a release may have beside its rules.
PARTS = ("watchers", "executors")
#: With which kinds of effects begin that a release executes itself: no kind of the package ever does.
OWN_PREFIX = "own_"

_PART_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Release:
    """A release of a scope's rules.

    Attributes:
        hash: the hash of its files, in `objects`.
        status: staged, checked, shadow, active, retired, refused or rolled_back.
        checks: what the gate and the shadow run found, by check.
        previous: the id of the release that it replaced.
    """

    id: int
    scope: str
    hash: str
    status: str
    checks: Mapping[str, Any]
    previous: int | None
    created_at: datetime
    promoted_at: datetime | None
    retired_at: datetime | None


class ScopeState(NamedTuple):
    """A scope: the id of its release in force, that pointer's version, its ticks so far, and who leads them."""

    scope: str
    release_id: int | None
    version: int
    ticks: int
    holder: str | None
    last_tick_at: datetime | None


class Rollback(NamedTuple):
    """Whether a rollback changed anything, and the id of the release in force now; None for none."""

    is_done: bool
    release_id: int | None


def read_rules(folder: Path) -> dict[str, str]:
    """Return the release that a folder has: the text of each ``rules/*.py``, by name, sorted.

    Its watchers and executors are those of ``watchers/*.py`` and ``executors/*.py``, under ``watchers/NAME.py`` and
    ``executors/NAME.py``.

    Raises:
        InvalidInputError: there are no rules, or over 64 files or 262,144 bytes, or one is not UTF-8, or the name of a
            watcher or an executor has other characters than a-z, 0-9 and '_'.
    """
    rules = folder / "rules"
    files = {each.name: each for each in sorted(rules.glob("*.py"))}
    if not files:
        raise InvalidInputError(f"{rules} has no rules: add a file such as rules/first.py with `async def rule(…)`")
    for part in PARTS:
        files |= {f"{part}/{each.name}": each for each in sorted((folder / part).glob("*.py"))}
    if len(files) > RULES_FILES_MAX:
        raise InvalidInputError(f"{folder} has {len(files)} files: a release has at most {RULES_FILES_MAX}")
    contents = {name: path.read_bytes() for name, path in files.items()}
    size = sum(map(len, contents.values()))
    if size > RULES_BYTES_MAX:
        raise InvalidInputError(f"{folder} has {size} bytes: a release has at most {RULES_BYTES_MAX}")
    texts: dict[str, str] = {}
    for name, content in contents.items():
        if "/" in name and not _PART_NAME.fullmatch(files[name].stem):
            raise InvalidInputError(
                f"{files[name]}: the name must have 1 to 40 of a-z, 0-9 and '_', and begin with a letter"
            )
        try:
            texts[name] = content.decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{files[name]} is not valid UTF-8 at byte {error.start}") from error
    return texts


def part_of(files: Mapping[str, str], part: str) -> dict[str, str]:
    """Return the watchers or the executors of a release, by their names without a suffix."""
    prefix = f"{part}/"
    return {Path(name).stem: text for name, text in sorted(files.items()) if name.startswith(prefix)}


def rules_of(files: Mapping[str, str]) -> dict[str, str]:
    """Return the rules of a release, by their files."""
    return {name: text for name, text in sorted(files.items()) if "/" not in name}


def own_kinds(files: Mapping[str, str]) -> frozenset[str]:
    """Return the kinds of effects that the executors of a release execute: `own_` and the file's name."""
    return frozenset(f"{OWN_PREFIX}{name}" for name in part_of(files, "executors"))


class ReleaseService:
    """The releases of one scope."""

    def __init__(self, db: Session, scope: str) -> None:
        self._db = db
        self._scope = scope

    async def make_scope(self) -> bool:
        """Create the scope; return whether it is new.

        Raises:
            InvalidInputError: its name has other characters than a-z, 0-9, '-' and '_', or more than 64.
        """
        return bool(await STATEMENTS.fetchval(self._db, "make_scope", self._scope))

    async def state(self) -> ScopeState:
        """Return the scope as it is.

        Raises:
            PulseNotFoundError: there is no such scope; likewise for all methods below.
        """
        row = await STATEMENTS.fetch_one(self._db, "find_scope", self._scope)
        return ScopeState(*row)

    async def stage(self, rules: Mapping[str, str]) -> int:
        """Store rules as a new release and return its id."""
        body = canonical_json({"rules": dict(sorted(rules.items()))})
        return int(await STATEMENTS.fetchval(self._db, "stage", self._scope, body))

    async def get(self, release_id: int) -> Release:
        """Return a release."""
        row = await STATEMENTS.fetchrow(self._db, "find_release", self._scope, release_id)
        if row is None:
            raise PulseNotFoundError(
                f"scope {self._scope!r} has no release {release_id}: see `hippocampus pulse releases`"
            )
        return Release(**dict(row))

    async def list(self, limit: int = 100) -> list[Release]:
        """Return the newest releases, the newest first."""
        rows = await STATEMENTS.fetch(self._db, "list_releases", self._scope, limit)
        return [Release(**dict(row)) for row in rows]

    async def rules(self, release_id: int) -> dict[str, str]:
        """Return the files of a release.

        Raises:
            ObjectCorruptError: they are not what was staged.
        """
        found = await self.get(release_id)
        stored = await get_object(self._db, found.hash)
        return dict(stored["rules"])

    async def check(self, release_id: int, status: str, checks: Mapping[str, Any]) -> None:
        """Record what checks found, and what the release is then: checked, shadow or refused.

        Raises:
            IllegalTransitionError: it is past that.
        """
        await STATEMENTS.execute(self._db, "check", self._scope, release_id, status, dict(checks))

    async def promote(self, release_id: int, *, expected_version: int) -> int:
        """Put a release in force, and return the scope's version after it.

        Raises:
            ReleaseMovedError: the scope has another version.
            ReleaseRefusedError: the release has not passed its checks.
        """
        return int(await STATEMENTS.fetchval(self._db, "promote", self._scope, release_id, expected_version))

    async def rollback(self, cause: str, *, release_id: int | None = None) -> Rollback:
        """Take the release in force out of it; with `release_id` only if it is that one."""
        row = await STATEMENTS.fetch_one(self._db, "rollback", self._scope, cause, release_id)
        return Rollback(row["is_done"], row["release_id"])
