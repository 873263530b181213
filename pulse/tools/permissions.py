"""Who may call a tool, how often, and whether a person has to confirm it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pulse.errors import InvalidInputError

#: "unsafe": whatever is not known to change nothing.
Confirmation: TypeAlias = Literal["never", "always", "unsafe"]

RATE_MAX = 600_000
_EVERYBODY = ("*",)
_NAMES_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """The permissions of a tool, read.

    Attributes:
        rate_limit: calls of one user in a minute, over all processes; None: no limit.
        burst: how many of these may be made at once.
        max_concurrency: calls of all users at once, over all processes; None: no limit.
    """

    allowed_users: tuple[str, ...] = _EVERYBODY
    allowed_roles: tuple[str, ...] = _EVERYBODY
    allowed_agents: tuple[str, ...] = _EVERYBODY
    rate_limit: float | None = None
    burst: int = 20
    max_concurrency: int | None = None
    requires_confirmation: Confirmation = "never"
    max_response_bytes: int = 1_048_576

    def allow(self, user_id: str, roles: Collection[str] = (), agent: str | None = None) -> bool:
        """Return whether a user may call the tool, by an agent. The role or the agent ``*`` stands for any."""
        return (
            ("*" in self.allowed_users or user_id in self.allowed_users)
            and _is_in(self.allowed_roles, roles)
            and _is_in(self.allowed_agents, () if agent is None else (agent,))
        )


def read_permissions(given: Mapping[str, Any] | None) -> Permissions:
    """Return permissions as they are written::

        {"allowed_users": ["*"], "allowed_roles": ["*"], "allowed_agents": ["*"], "rate_limit": 100, "burst": 20,
         "max_concurrency": 10, "requires_confirmation": false | true | "unsafe", "max_response_bytes": 1048576}

    Raises:
        InvalidInputError: a key is unknown, or a value is of another type or out of its bounds.
    """
    if given is None:
        return Permissions()
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"permissions must be an object, not {type(given).__name__}")
    unknown = [key for key in given if key not in Permissions.__dataclass_fields__]
    if unknown:
        known = ", ".join(Permissions.__dataclass_fields__)
        raise InvalidInputError(f"permissions have no key {unknown[0]!r:.60}; there are {known}")
    fields: dict[str, Any] = {}
    for key, value in given.items():
        if key.startswith("allowed_"):
            fields[key] = _names(key, value)
        elif key == "requires_confirmation":
            fields[key] = _confirmation(value)
        elif value is not None or key in ("burst", "max_response_bytes"):
            fields[key] = _number(key, value)
    return Permissions(**fields)


_BOUNDS: Mapping[str, tuple[float, float]] = {
    "rate_limit": (0.01, RATE_MAX),
    "burst": (1, 10_000),
    "max_concurrency": (1, 10_000),
    "max_response_bytes": (1, 64 * 2**20),
}


def _number(key: str, value: Any) -> float | int:
    lowest, highest = _BOUNDS[key]
    is_number = isinstance(value, int) or (isinstance(value, float) and key == "rate_limit")
    if isinstance(value, bool) or not is_number or not lowest <= value <= highest:
        raise InvalidInputError(f"{key} of a tool must be from {lowest:g} to {highest:g}, not {value!r:.40}")
    number: float | int = value
    return number


def _names(key: str, value: Any) -> tuple[str, ...]:
    if (
        not isinstance(value, list | tuple)
        or len(value) > _NAMES_MAX
        or not all(isinstance(name, str) and 0 < len(name) <= 255 for name in value)
    ):
        raise InvalidInputError(
            f'{key} of a tool must be a list of up to {_NAMES_MAX} names, or ["*"], not {value!r:.60}'
        )
    return tuple(value)


def _confirmation(value: Any) -> Confirmation:
    if value is True or value is False:
        return "always" if value else "never"
    if value == "unsafe":
        return "unsafe"
    raise InvalidInputError(f'requires_confirmation of a tool must be false, true or "unsafe", not {value!r:.40}')


def _is_in(allowed: Collection[str], names: Collection[str]) -> bool:
    return "*" in allowed or "*" in names or any(name in allowed for name in names)
