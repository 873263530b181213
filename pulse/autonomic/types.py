"""What the autonomic layer passes around: effects, snapshots, rules and watchers. Plain values, JSON both ways."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from pulse.errors import InvalidInputError

TICK_MS_MIN = 1_000
TICK_MS_MAX = 60_000
#: When nothing calls for another pace.
TICK_MS_DEFAULT = 15_000
#: When something is wrong.
TICK_MS_FAST = 5_000
COOLDOWN_SECONDS_DEFAULT = 900
#: Ends of effects are known for an hour; a longer cooldown could not be kept.
COOLDOWN_SECONDS_MAX = 3_600
EFFECT_BYTES_MAX = 8_192
KEY_CHARS_MAX = 200
#: The length of a key as JSON: the record's column holds 512 bytes of kind and key.
KEY_BYTES_MAX = 400
#: Samples of a sense that a snapshot holds: those of the last minute.
WINDOW_SECONDS = 60.0
WATCH_MS_DEFAULT = 5_000

_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")


def canonical_json(value: object) -> bytes:
    """Return the JSON of a value whose hash identifies it: sorted keys, no blanks, UTF-8.

    Raises:
        InvalidInputError: the value has no JSON: NaN, an infinity, a lone surrogate, or another type.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the value has no JSON ({type(error).__name__})") from error


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to be done, described: a rule performs nothing.

    Attributes:
        kind: which executor does it.
        key: at which target. One effect per kind and key is open at a time.
        params: what the executor needs. No words of users: effects are kept for good.
        cooldown_seconds: how long after its end no effect of the same kind and key follows, 0 to 3,600.
        survival: whether the package's own rules decided it. Rules of a release cannot set it.
        rule: which rule decided it; set by the chain.

    Raises:
        InvalidInputError: a field is out of its range, or the effect is over 8,192 bytes of JSON.
    """

    kind: str
    key: str
    params: Mapping[str, Any] = field(default_factory=dict)
    cooldown_seconds: float = COOLDOWN_SECONDS_DEFAULT
    survival: bool = False
    rule: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not _KIND.fullmatch(self.kind):
            raise InvalidInputError(f"an effect's kind must be a word such as 'notify', not {self.kind!r:.80}")
        if not isinstance(self.key, str) or not 0 < len(self.key) <= KEY_CHARS_MAX or "\0" in self.key:
            raise InvalidInputError(f"an effect's key must have 1 to {KEY_CHARS_MAX} characters, not {self.key!r:.80}")
        if len(canonical_json(self.key)) > KEY_BYTES_MAX:
            raise InvalidInputError(
                f"an effect's key must have at most {KEY_BYTES_MAX} bytes as JSON, not {self.key!r:.80}"
            )
        seconds = self.cooldown_seconds
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 0 <= seconds <= COOLDOWN_SECONDS_MAX
        ):
            raise InvalidInputError(f"a cooldown must be from 0 to {COOLDOWN_SECONDS_MAX} seconds, not {seconds!r:.80}")
        if not isinstance(self.params, Mapping):
            raise InvalidInputError(f"an effect's params must be an object, not {type(self.params).__name__}")
        body = canonical_json(self.to_json())
        if len(body) > EFFECT_BYTES_MAX:
            raise InvalidInputError(f"an effect must have at most {EFFECT_BYTES_MAX} bytes of JSON, not {len(body)}")
        if b"\\u0000" in body:
            raise InvalidInputError("an effect contains U+0000, which PostgreSQL cannot store")
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))

    @property
    def target(self) -> tuple[str, str]:
        """Its kind and key, by which equal effects are recognised."""
        return self.kind, self.key

    def hash(self) -> str:
        """Return the SHA-256 of its content, as lower-case hex digits."""
        return hashlib.sha256(canonical_json([self.kind, self.key, dict(self.params)])).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "kind": self.kind,
            "key": self.key,
            "params": dict(self.params),
            "cooldown_seconds": self.cooldown_seconds,
            "survival": self.survival,
            "rule": self.rule,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Effect:
        """Return the effect of its JSON; fields that it lacks have their defaults."""
        known = {name: given[name] for name in cls.__slots__ if name in given}
        if not {"kind", "key"} <= known.keys():
            raise InvalidInputError("an effect has a kind and a key")
        return cls(**known)


class Done(NamedTuple):
    """What became of the effects on a target in the last hour.

    Attributes:
        at: when the last one ended, or began if it is open, in Unix seconds.
        state: the state of the last one: open, acked or failed.
        survival: whether the last one was the survival rules'.
        failures: in a row, up to now.
        recent: how many there were in the last 10 minutes.
    """

    at: float
    state: str
    survival: bool = False
    failures: int = 0
    recent: int = 0


class Sample(NamedTuple):
    """What a watcher measured: when, in Unix seconds, on which machine, what."""

    at: float
    machine: str
    data: Any


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole present, as one statement read it: the only input of a rule.

    Attributes:
        at: the database's time, in Unix seconds.
        senses: the samples of the last minute, the newest last.
        effects: what became of each target's effects, by (kind, key).
        errors: how many there were in the last 10 minutes, and in the 10 minutes before.
        release: the id of the release in force and when it was promoted; None without one.
        projections: summaries of the tasks, if they were requested.
        business: whether the rules of the release take part.
    """

    at: float
    scope: str
    senses: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    effects: Mapping[tuple[str, str], Done] = field(default_factory=dict)
    errors: tuple[int, int] = (0, 0)
    release: tuple[int, float] | None = None
    projections: Mapping[str, Any] = field(default_factory=dict)
    business: bool = True

    def latest(self, sense: str) -> Sample | None:
        """Return the newest sample of a sense."""
        samples = self.senses.get(sense)
        return samples[-1] if samples else None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "at": self.at,
            "scope": self.scope,
            "senses": {name: [each._asdict() for each in samples] for name, samples in self.senses.items()},
            "effects": [{"key": "|".join(target), **done._asdict()} for target, done in self.effects.items()],
            "errors": list(self.errors),
            "release": None if self.release is None else list(self.release),
            "projections": dict(self.projections),
            "business": self.business,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Snapshot:
        """Return the snapshot of its JSON, or of the row that begins a tick."""
        release = given.get("release")
        errors = given.get("errors") or (0, 0)
        return cls(
            at=float(given["at"]),
            scope=given["scope"],
            senses={
                name: tuple(Sample(float(each["at"]), each["machine"], each["data"]) for each in samples)
                for name, samples in given.get("senses", {}).items()
            },
            effects={
                _target(each["key"]): Done(
                    float(each["at"]), each["state"], each["survival"], each["failures"], each["recent"]
                )
                for each in given.get("effects", ())
            },
            errors=(int(errors[0]), int(errors[1])),
            release=None if release is None else (int(release[0]), float(release[1] or 0)),
            projections=given.get("projections", {}),
            business=given.get("business", True),
        )


def _target(key: str) -> tuple[str, str]:
    kind, _, rest = key.partition("|")
    return kind, rest


#: Effects, and how many milliseconds to sleep until the next tick.
Outcome: TypeAlias = tuple[list[Effect], int]
#: The rules inside of a rule, as one function of the last snapshot and the present one.
Inner: TypeAlias = Callable[[Snapshot, Snapshot], Awaitable[Outcome]]
#: Gets the last snapshot, the present one, and the rules inside of it. Pure: no clock but `curr.at`, no I/O.
Rule: TypeAlias = Callable[[Snapshot, Snapshot, Inner], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class WatcherDef:
    """A sense: what is measured, how often, and what ends the sleep of the tick.

    Attributes:
        name: for people.
        key: the sense that it writes.
        collect: returns what it measured, as JSON; plain or a coroutine function.
        should_wake: gets the samples of the last minute, the newest last.
        interval_ms: from the begin of one measurement to the next.
        pace: returns that instead, from the samples of the last minute; None for `interval_ms`.
    """

    name: str
    key: str
    collect: Callable[[], Any]
    should_wake: Callable[[Sequence[Sample]], bool] = lambda _window: False
    interval_ms: int = WATCH_MS_DEFAULT
    pace: Callable[[Sequence[Sample]], int] | None = None


def clamped(tick_ms: object) -> int:
    """Return a tick within its bounds.

    Raises:
        InvalidInputError: it is not a number.
    """
    if isinstance(tick_ms, bool) or not isinstance(tick_ms, int | float) or not math.isfinite(tick_ms):
        raise InvalidInputError(f"a tick must be a number of milliseconds, not {tick_ms!r:.80}")
    return int(min(max(tick_ms, TICK_MS_MIN), TICK_MS_MAX))
