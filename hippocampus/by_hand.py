"""What people write: remember, correct, retire and confirm a memory or a fact, with its history kept.

A statement by hand is made now and with certainty. What turns said before is older, in whatever order it is extracted,
replayed or imported: it does not change what a person wrote, and does not bring back what a person retired. A newer
turn may change it, as it may change any fact; one that is much less certain becomes a candidate.

No model is called: words are found at once, vectors follow by backfill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args
from uuid import UUID

from hippocampus.consolidation.effects import FactInput
from hippocampus.errors import BY_SQLSTATE, MemoryNotFoundError
from hippocampus.facts import elements, keys
from hippocampus.facts.elements import fact_text
from hippocampus.facts.ledger import read_styles
from hippocampus.names import NAME_LENGTH_MAX, check_name, check_names, check_word, check_zones
from hippocampus.records import ExtractedFact, FactType
from hippocampus.transfer.given_memories import CONTENT_CHARACTERS_MAX, GivenMemory, memory_row
from pulse.errors import InvalidInputError
from pulse.names import check_owner
from pulse.postgres.json_values import clean_text, escape_state, unescape
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

_STATEMENTS = Statements("hippocampus", "by_hand.sql", errors=BY_SQLSTATE)
_PROVENANCE = "by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFact:
    """A fact that a person states.

    Attributes:
        key: such as ``home_city``; of a collection, such as ``allergies``, it takes several values side by side.
        value: any JSON value but null, or the values of a collection as a list.
        since: since when it is true; None: from now on, as far as is known.
    """

    key: str
    value: Any
    fact_type: FactType = "profile"
    since: datetime | None = None

    def __post_init__(self) -> None:
        check_name("key", self.key)
        check_word("fact_type", self.fact_type, get_args(FactType))
        check_zones(since=self.since)
        if not keys.normal_key(self.key).strip():
            raise InvalidInputError(f"a key needs a letter or a digit, {self.key!r:.80} has none")
        if self.value is None or self.value in ("", [], {}) or (isinstance(self.value, str) and not self.value.strip()):
            raise InvalidInputError("a fact needs a value: to end one, retire it")
        if self.since is not None and self.since > datetime.now(UTC):
            raise InvalidInputError(f"since must not be in the future, it is {self.since.isoformat()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What became of a change by hand.

    Attributes:
        ids: the memory or the facts that hold what was written; of a retirement, what was retired.
        changed: False if it was so already.
    """

    kind: Literal["memory", "fact"]
    ids: tuple[UUID, ...]
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    kind: Literal["memory", "fact"]
    fact_type: Any
    key: str
    value: Any = field(repr=False)


class MemoryEditor:
    """Writes memories and facts by hand.

    `by` is who does it: any text of up to 255 characters, kept with the statement; None: not known.

    Raises, from every method:
        InvalidInputError: an argument is out of its bounds; nothing was changed.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def remember(
        self, app_name: str, user_id: str, what: str | GivenMemory | GivenFact, *, by: str | None = None
    ) -> Edit:
        """Remember a memory or a fact of a user, whether or not a turn says so.

        A fact replaces what held under its key, whose history stays. A memory with a name replaces the one of that
        name, or what corrected it. What is remembered again as it is stored is unchanged.
        """
        check_owner(app_name, user_id)
        _check(app_name, user_id, by)
        if isinstance(what, GivenFact):
            styles = await read_styles(self._pool, app_name=app_name)
            return await self._write(app_name, user_id, by, _inputs(what, styles))
        given = GivenMemory(content=what) if isinstance(what, str) else what
        given = replace(given, metadata={**given.metadata, "source": _PROVENANCE, "by": by or ""})
        named_id, *rest = memory_row(app_name, user_id, given)
        row = (None if given.name is None else named_id, *rest)
        (held,) = await _STATEMENTS.fetch(self._pool, "write_memory", app_name, user_id, by, row)
        return Edit(kind="memory", ids=(held["memory_id"],), changed=held["is_changed"])

    async def correct(self, app_name: str, user_id: str, target: UUID, new: Any, *, by: str | None = None) -> Edit:
        """Replace what a memory says, or the value of a fact from now on. The former stays in the history.

        An element of a collection, such as ``allergies:nuts``, ends, and the new one takes its place. A corrected
        memory has a new id; the former is in the archive. Correcting it to the same changes nothing.

        Args:
            new: a text for a memory, any JSON value but null for a fact.

        Raises:
            MemoryNotFoundError: the user has no memory and no fact of this id, or the memory is archived.
        """
        _check(app_name, user_id, by)
        found = await self._target(app_name, user_id, target)
        if found.kind == "memory":
            if not isinstance(new, str) or not new.strip() or len(new) > CONTENT_CHARACTERS_MAX:
                raise InvalidInputError(f"a correction must be a text of 1 to {CONTENT_CHARACTERS_MAX} characters")
            arguments = (app_name, user_id, by, target, clean_text(new))
            held: UUID = await _STATEMENTS.fetchval(self._pool, "correct_memory", *arguments)
            return Edit(kind="memory", ids=(held,), changed=held != target)
        styles = await read_styles(self._pool, app_name=app_name)
        if elements.collection_of(found.fact_type, found.key, styles) is not None:
            given = GivenFact(key=elements.base_of(found.key), value=new, fact_type=found.fact_type)
            inputs = _inputs(given, styles)
            ended = target if found.key not in {each.key for each in inputs} else None
            return await self._write(app_name, user_id, by, inputs, ended=ended, corrected=(target, found.key))
        given = GivenFact(key=found.key, value=new, fact_type=found.fact_type)
        inputs = [_input(_whole(given), None)]
        return await self._write(app_name, user_id, by, inputs, corrected=(target, found.key))

    async def retire(self, app_name: str, user_id: str, target: UUID, *, by: str | None = None) -> Edit:
        """Let a memory no longer be found, or a fact no longer hold from now on. Its history stays. Idempotent.

        What earlier turns say does not bring it back. To remove it without a trace, erase it.

        Raises:
            MemoryNotFoundError: the user has no memory and no fact of this id.
        """
        _check(app_name, user_id, by)
        found = await self._target(app_name, user_id, target)
        if found.kind == "fact":
            return await self._write(app_name, user_id, by, [], ended=target)
        changed = await _STATEMENTS.fetchval(self._pool, "retire_memory", app_name, user_id, by, target)
        return Edit(kind="memory", ids=(target,), changed=bool(changed))

    async def confirm(self, app_name: str, user_id: str, target: UUID, *, by: str | None = None) -> Edit:
        """Confirm a memory or a fact: who did so and when is kept.

        A fact is certain from then on, with a confidence of 1 and the value that it has then; one that had ended
        holds again. A memory is as strong as if it had been used now; an archived one is restored.

        Raises:
            MemoryNotFoundError: the user has no memory and no fact of this id.
        """
        _check(app_name, user_id, by)
        kind = await _STATEMENTS.fetchval(self._pool, "confirm", app_name, user_id, by, target)
        return Edit(kind=kind, ids=(target,), changed=True)

    async def _write(
        self,
        app_name: str,
        user_id: str,
        by: str | None,
        facts: Sequence[FactInput],
        *,
        ended: UUID | None = None,
        corrected: tuple[UUID | None, str | None] = (None, None),
    ) -> Edit:
        arguments = (app_name, user_id, by, ended, list(facts), *corrected)
        rows = await _STATEMENTS.fetch(self._pool, "write_facts", *arguments)
        written = rows[1:] if ended is not None and facts else rows
        changed = any(row["outcome"] != "unchanged" for row in rows)
        return Edit(kind="fact", ids=tuple(row["fact_id"] for row in written), changed=changed)

    async def _target(self, app_name: str, user_id: str, target: UUID) -> _Target:
        row = await _STATEMENTS.fetchrow(self._pool, "target", app_name, user_id, target)
        if row is None:
            raise MemoryNotFoundError(
                f"there is no memory and no fact {target} of app {app_name!r} and user {user_id!r}"
            )
        return _Target(kind=row["kind"], fact_type=row["fact_type"], key=row["key"] or "", value=unescape(row["value"]))


def _check(app_name: str, user_id: str, by: str | None) -> None:
    check_name("app_name", app_name)
    check_name("user_id", user_id)
    check_names(by=by)
    if by is not None and len(by) > NAME_LENGTH_MAX:
        raise InvalidInputError(f"by must have at most {NAME_LENGTH_MAX} characters, not {len(by)}")


def _whole(given: GivenFact) -> ExtractedFact:
    value = given.value.strip() if isinstance(given.value, str) else given.value
    return ExtractedFact(fact_type=given.fact_type, key=given.key, value=value, confidence=1.0, source_seqs=())


def _inputs(given: GivenFact, styles: keys.Styles) -> list[FactInput]:
    """Return a fact as it is stored: an element of a collection each."""
    return [_input(each, each.collection, given.since) for each in elements.of_fact(_whole(given), styles)]


def _input(fact: ExtractedFact | elements.Element, collection: str | None, since: datetime | None = None) -> FactInput:
    return FactInput(
        fact_type=fact.fact_type,
        key=fact.key,
        value=escape_state(fact.value, where=f"the value of {fact.key!r:.80}"),
        content=fact_text(fact.key, fact.value),
        embedding=None,
        confidence=1.0,
        source_seqs=[],
        valid_from=since,
        normal_key=keys.normal_key(fact.key),
        collection=collection,
        contrast=keys.contrast_of(fact.key),
    )
