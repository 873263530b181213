"""Keys of the HTTP API: shown once, stored as hashes, bound to an app, to roles and, if wanted, to one user.

A key may also say which roles of a user its holder may name: those that tools and corpora are for, not its own.

A key's text is ``hip_<id>_<secret>``: the id finds its row, the secret is compared in constant time. The hash of a key
that is bound to a user, or to roles of users, covers these too: a program that does not know of the binding refuses the
key, instead of letting it act for everyone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, get_args

from pulse.errors import ApiKeyNotFoundError, InvalidInputError
from pulse.names import check_app, check_filled, check_name
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

Role = Literal["append", "read", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
LIFETIME_MAX = timedelta(days=3650)
LIST_LENGTH_MAX = 1000
USER_ROLES_MAX = 100
_ID_LENGTH = 12
_SECRET_BYTES = 32
_TEXT = re.compile(r"hip_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_STATEMENTS = Statements("pulse", "api_keys.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is listed, without its secret, which only its holder knows.

    Attributes:
        user_roles: see `ApiKeyService.create`.
    """

    id: str
    app_name: str | None
    user_id: str | None
    name: str
    roles: tuple[Role, ...]
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    user_roles: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey:
    """A new key; its text is returned only once."""

    key: ApiKey
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The roles that a key grants, in one app or (None) in every app, for one user or (None) for every user.

    Attributes:
        user_roles: see `ApiKeyService.create`.
    """

    key_id: str
    app_name: str | None
    roles: frozenset[Role]
    user_id: str | None = None
    user_roles: tuple[str, ...] | None = None

    def has(self, role: Role) -> bool:
        """Return whether the key grants a role; admin grants every role."""
        return role in self.roles or "admin" in self.roles

    def roles_of_user(self, named: Sequence[str]) -> list[str] | None:
        """Return the roles of a user that a call has which names these; None if the key may not name one of them.

        A key of one user has all of its own where none is named: its holder need not know them.
        """
        if self.user_roles is None:
            return None if named and self.user_id is not None else list(named)
        if not set(named) <= set(self.user_roles):
            return None
        return list(named) if named or self.user_id is None else list(self.user_roles)


class ApiKeyService:
    """Creates, lists, revokes and verifies keys."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create(
        self,
        app_name: str | None,
        roles: Collection[Role],
        *,
        user_id: str | None = None,
        name: str = "",
        lifetime: timedelta | None = None,
        user_roles: Collection[str] | None = None,
    ) -> NewApiKey:
        """Create a key.

        Args:
            app_name: None for every app.
            user_id: the only user of the app for whom the key may act; None: for every user.
            user_roles: the roles of users, for tools and corpora, that its calls may name. With a key of one user, a
                call that names none has all of them. By default a key of one user may name none, and any other key any.
            lifetime: up to ten years; None until it is revoked.

        Raises:
            InvalidInputError: an argument is out of its bounds; nothing was created.
        """
        _check(app_name, user_id, roles, name, lifetime)
        named = None if user_roles is None else _user_roles(user_roles)
        key_id = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(_ID_LENGTH))
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        row = await _STATEMENTS.fetch_one(
            self._pool,
            "create_api_key",
            key_id,
            app_name,
            name,
            [role for role in ROLES if role in roles],
            _hash(secret, user_id, named),
            None if lifetime is None else lifetime.total_seconds(),
            user_id,
            named,
        )
        return NewApiKey(key=_read(dict(row)), text=f"hip_{key_id}_{secret}")

    async def list(
        self, app_name: str | None = None, *, limit: int = LIST_LENGTH_MAX, after: tuple[datetime, str] | None = None
    ) -> list[ApiKey]:
        """List the keys of an app, or all, the newest first, including expired and revoked ones.

        Args:
            after: `created_at` and `id` of the last key of the previous page.

        Raises:
            InvalidInputError: limit is not 1 to 1,000.
        """
        check_limit(limit, LIST_LENGTH_MAX)
        rows = await _STATEMENTS.fetch(self._pool, "list_api_keys", app_name, limit, *(after or (None, None)))
        return [_read(dict(row)) for row in rows]

    async def get(self, key_id: str) -> ApiKey:
        """Return a key.

        Raises:
            ApiKeyNotFoundError: there is no such key.
        """
        return await self._one("get_api_key", key_id)

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key; one that is revoked already stays as it is.

        Raises:
            ApiKeyNotFoundError: there is no such key.
        """
        return await self._one("revoke_api_key", key_id)

    async def verify(self, text: str) -> Grant | None:
        """Return what a key grants; None if it is unknown, revoked or expired. Records its use, to the minute."""
        parts = _TEXT.fullmatch(text)
        if parts is None:
            return None
        row = await _STATEMENTS.fetchrow(self._pool, "find_api_key", parts[1])
        if row is None:
            return None
        user_roles: list[str] | None = row["user_roles"]
        if not hmac.compare_digest(_hash(parts[2], row["user_id"], user_roles), row["secret_hash"]):
            return None
        if row["is_use_unseen"]:
            await _STATEMENTS.execute(self._pool, "touch_api_key", parts[1])
        return Grant(
            key_id=row["id"],
            app_name=row["app_name"],
            roles=frozenset(row["roles"]),
            user_id=row["user_id"],
            user_roles=None if user_roles is None else tuple(user_roles),
        )

    async def _one(self, statement: str, key_id: str) -> ApiKey:
        row = await _STATEMENTS.fetchrow(self._pool, statement, key_id) if key_id.isalnum() else None
        if row is None:
            raise ApiKeyNotFoundError(f"There is no key {key_id[:40]!r}: see `hippocampus keys list`.")
        return _read(dict(row))


def _check(
    app_name: str | None, user_id: str | None, roles: Collection[Role], name: str, lifetime: timedelta | None
) -> None:
    if app_name is not None:
        check_app(app_name)
    if user_id is not None:
        check_filled("user_id", user_id)
    if name:
        check_name("name", name)
    if user_id is not None and app_name is None:
        raise InvalidInputError("a key of one user needs the app of that user")
    if not roles or not set(roles) <= set(ROLES):
        raise InvalidInputError(f"a key needs at least one of the roles {', '.join(ROLES)}")
    if lifetime is not None and not timedelta(0) < lifetime <= LIFETIME_MAX:
        raise InvalidInputError(f"a key's lifetime must be at most {LIFETIME_MAX.days} days, not {lifetime}")


def _user_roles(given: Collection[str]) -> list[str]:
    if isinstance(given, str):
        raise InvalidInputError(f"user_roles must be a list of roles, not the text {given!r:.60}")
    found = list(dict.fromkeys(given))
    if len(found) > USER_ROLES_MAX:
        raise InvalidInputError(f"a key names at most {USER_ROLES_MAX} roles of users, not {len(found)}")
    for each in found:
        check_filled("user_role", each)
        if each == "*":
            raise InvalidInputError("user_role '*' is not a role: without user_roles, a key of an app may name any")
    return found


def _read(row: dict[str, object]) -> ApiKey:
    roles, user_roles = row.pop("roles"), row.pop("user_roles")
    assert isinstance(roles, list)  # noqa: S101  # the column is an array
    assert isinstance(user_roles, list | None)  # noqa: S101
    named = None if user_roles is None else tuple(user_roles)
    return ApiKey(roles=tuple(roles), user_roles=named, **row)  # type: ignore[arg-type]  # the columns are the fields


def _hash(secret: str, user_id: str | None, user_roles: Sequence[str] | None) -> bytes:
    # Neither a secret nor a user has U+0000, and a user has at least one character.
    bound = [] if user_id is None and user_roles is None else [user_id or ""]
    if user_roles is not None:
        bound.append(json.dumps(list(user_roles)))
    return hashlib.sha256("\0".join([secret, *bound]).encode()).digest()
