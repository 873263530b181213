"""A user's profile: what holds now, on one page, each line with the ids that it comes from.

It is computed when it is read: one statement, and no model. So it is never behind what was consolidated, corrected,
retired or erased a moment ago, and nothing has to be erased twice. Lines that always matter (rules, allergies, diets,
the instructions that the user asked for) come first, then facts, then the strongest insights; what is left over goes to
further facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE
from hippocampus.facts.elements import base_of, is_statement, value_text
from hippocampus.names import check_app_name, check_count, check_name, check_word, check_zones
from hippocampus.text.languages import Language, language_of
from hippocampus.text.tokens import count_tokens
from pulse.postgres.json_values import clean_text, unescape
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool

ProfileKind: TypeAlias = Literal["instruction", "rule", "profile", "preference", "custom", "insight"]

PROFILE_TOKENS, PROFILE_TOKENS_MIN, PROFILE_TOKENS_MAX = 600, 20, 20_000
#: The part of the page that facts take before insights.
_FACT_PART = 0.7
_FACTS_MAX, _INSIGHTS_MAX, _INSTRUCTIONS_MAX = 500, 50, 50
#: Values of a collection on one line, and the characters of one text.
_VALUES_MAX = 8
_TEXT_MAX = 300
_TITLES: Mapping[Language, Mapping[ProfileKind, str]] = {
    "en": {
        "instruction": "Instructions",
        "rule": "Rules",
        "profile": "About the user",
        "preference": "Preferences",
        "custom": "Other facts",
        "insight": "Insights",
    },
    "zh": {
        "instruction": "指令",
        "rule": "规则",
        "profile": "资料",
        "preference": "偏好",
        "custom": "其他",
        "insight": "见解",
    },
}
_STATEMENTS = Statements("hippocampus", "profile.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLine:
    """A line of a profile.

    Attributes:
        kind: the type of the fact; or ``insight``, or ``instruction``: one that follows from the user's feedback.
        text: one line.
        ids: the ids of the facts, one for each value of a collection, of the memory, or of the approved proposal.
        since: since when it is true; of a collection, since its newest value.
        is_standing: it has its place in every prompt: rules, allergies, diets, instructions.
    """

    kind: ProfileKind
    text: str
    ids: tuple[UUID, ...]
    since: datetime | None
    is_standing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is known of a user.

    Attributes:
        lines: grouped by kind; empty if nothing is known.
        total_tokens: the size of the text, never over `max_tokens`.
        left_out: how many facts and instructions that hold are not on the page.
    """

    lines: tuple[ProfileLine, ...]
    language: Language
    total_tokens: int
    max_tokens: int
    left_out: int
    as_of: datetime | None = None

    @property
    def text(self) -> str:
        """The page in Markdown; empty if nothing is known."""
        return _written(self.lines, self.language)


async def read_profile(
    pool: Pool,
    *,
    app_name: str,
    user_id: str,
    max_tokens: int = PROFILE_TOKENS,
    language: Language | None = None,
    as_of: datetime | None = None,
) -> Profile:
    """Read what is known of a user.

    Args:
        max_tokens: the size of the page, by `count_tokens`.
        language: of the titles; None: that of the lines.
        as_of: what was true then, and the insights into conversations until then that are still stored.

    Raises:
        InvalidInputError: an argument is out of its bounds.
    """
    check_app_name(app_name)
    check_name("user_id", user_id)
    check_count("max_tokens", max_tokens, PROFILE_TOKENS_MIN, PROFILE_TOKENS_MAX)
    check_word("language", language, tuple(_TITLES))
    check_zones(as_of=as_of)
    limits = (_FACTS_MAX, _INSIGHTS_MAX, _INSTRUCTIONS_MAX)
    rows = await _STATEMENTS.fetch(pool, "read_profile", app_name, user_id, as_of, *limits)
    lines = [*_fact_lines(rows), *_other_lines(rows)]
    spoken = language or language_of(line.text for line in lines) or "en"
    taken = _packed(lines, max_tokens, spoken)
    totals = {row["source"]: row["total"] for row in rows}
    shown = sum(len(line.ids) for line in taken if line.kind != "insight")
    return Profile(
        lines=taken,
        language=spoken,
        total_tokens=count_tokens(_written(taken, spoken)),
        max_tokens=max_tokens,
        left_out=totals.get("fact", 0) + totals.get("instruction", 0) - shown,
        as_of=as_of,
    )


class _Value(NamedTuple):
    """A value of a key, as it is shown."""

    text: str
    id: UUID
    since: datetime | None


def _fact_lines(rows: Sequence[asyncpg.Record]) -> Iterator[ProfileLine]:
    """Yield a line for each key, in the order of the first of its values; the values of a collection together.

    A value that is a statement ('is allergic to peanuts') says what its key would say, and is written without it.
    """
    groups: dict[tuple[ProfileKind, str, bool, bool], list[_Value]] = {}
    names: dict[tuple[ProfileKind, str, bool, bool], str] = {}
    for row in rows:
        if row["source"] != "fact":
            continue
        value = unescape(row["value"])
        group = (row["kind"], row["collection"] or f"={row['key']}", row["is_standing"], is_statement(value))
        names.setdefault(group, (row["collection"] and base_of(row["key"])) or row["key"])
        said = value_text(value)
        groups.setdefault(group, []).append(_Value(_line(said), row["id"], row["since"]))
    for group, values in groups.items():
        kind, _, is_standing, is_said = group
        for start in range(0, len(values), _VALUES_MAX):
            some = values[start : start + _VALUES_MAX]
            yield ProfileLine(
                kind=kind,
                text="; ".join(each.text for each in some)
                if is_said
                else f"{_line(names[group])}: {', '.join(each.text for each in some)}",
                ids=tuple(each.id for each in some),
                since=max((each.since for each in some if each.since is not None), default=None),
                is_standing=is_standing,
            )


def _other_lines(rows: Iterable[asyncpg.Record]) -> Iterator[ProfileLine]:
    for row in rows:
        if row["source"] != "fact":
            yield ProfileLine(
                kind=row["kind"],
                text=_line(row["content"]),
                ids=(row["id"],),
                since=row["since"],
                is_standing=row["is_standing"],
            )


def _packed(lines: Sequence[ProfileLine], max_tokens: int, language: Language) -> tuple[ProfileLine, ...]:
    """Return the lines that fit, by kind: standing ones, facts within their part, insights, and further facts."""
    costs: dict[int, int] = {}
    titles: set[ProfileKind] = set()
    used = 0

    def take(wanted: Iterable[int], within: float) -> None:
        nonlocal used
        for place in wanted:
            line = lines[place]
            cost = count_tokens(f"- {line.text}\n")
            cost += 0 if line.kind in titles else count_tokens(f"## {_TITLES[language][line.kind]}\n\n")
            if place not in costs and used + cost <= within:
                costs[place] = cost
                titles.add(line.kind)
                used += cost

    standing = [place for place, line in enumerate(lines) if line.is_standing]
    insights = [place for place, line in enumerate(lines) if line.kind == "insight"]
    take(standing, max_tokens)
    take((place for place, line in enumerate(lines) if line.kind != "insight"), _FACT_PART * max_tokens)
    take(insights, max_tokens)
    take(range(len(lines)), max_tokens)
    kinds = get_args(ProfileKind)
    return tuple(lines[place] for place in sorted(costs, key=lambda place: (kinds.index(lines[place].kind), place)))


def _written(lines: Iterable[ProfileLine], language: Language) -> str:
    sections: dict[ProfileKind, list[str]] = {}
    for line in lines:
        sections.setdefault(line.kind, []).append(f"- {line.text}")
    return "\n\n".join("\n".join((f"## {_TITLES[language][kind]}", *each)) for kind, each in sections.items())


def _line(text: Any) -> str:
    """Return a text on one line, so that it cannot pass for a title or another line, shortened if it is long."""
    joined = " ".join(clean_text(str(text)).split())
    return joined if len(joined) <= _TEXT_MAX else joined[: _TEXT_MAX - 1] + "…"
