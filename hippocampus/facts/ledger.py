"""What is kept beside the facts that hold: candidates, merged keys, and which keys hold many values.

The facts themselves and their history are read with `hippocampus.memory_service.OpenMemoryService`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, get_args
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE
from hippocampus.facts.keys import KEY_CHARACTERS_MAX, FactStyle, Styles, normal_key
from hippocampus.names import PAGE_SIZE_MAX, check_app_name, check_names
from hippocampus.records import FactCandidate, FactMerge, FactType
from pulse.errors import InvalidInputError
from pulse.postgres.json_values import unescape
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

_STATEMENTS = Statements("hippocampus.facts", "facts.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStyle:
    """Whether a key of an app's facts holds one value or many; `app_name` '*' stands for apps without a style of it."""

    app_name: str
    fact_type: FactType
    normal_key: str  # the one form of every spelling of the key
    style: FactStyle


class FactLedger:
    """Shows and corrects what consolidation decided about facts.

    Raises, from every method:
        InvalidInputError: an argument is out of its bounds; nothing was changed.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_candidates(
        self,
        *,
        app_name: str,
        user_id: str,
        fact_type: FactType | None = None,
        limit: int = 50,
        after: tuple[str, str, datetime, UUID] | None = None,
    ) -> list[FactCandidate]:
        """List statements that were too unsure to replace what held, by type, key and time.

        Args:
            after: type, key, `valid_from` and id of the last one of the page before.
        """
        check_limit(limit, PAGE_SIZE_MAX)
        position = after or (None,) * 4
        rows = await _STATEMENTS.fetch(self._pool, "list_candidates", app_name, user_id, fact_type, limit, *position)
        return [
            FactCandidate(
                **{
                    **row,
                    "value": unescape(row["value"]),
                    "held_value": unescape(row["held_value"]),
                    "source_seqs": tuple(row["source_seqs"]),
                }
            )
            for row in rows
        ]

    async def promote(self, candidate_id: UUID, *, app_name: str, user_id: str) -> UUID:
        """Accept a candidate: it holds from the time when it was stated. Return its fact.

        Raises:
            FactNotFoundError: no such candidate of this app and user; nothing was changed.
        """
        fact_id: UUID = await _STATEMENTS.fetchval(self._pool, "promote_candidate", app_name, user_id, candidate_id)
        return fact_id

    async def list_merges(
        self,
        *,
        app_name: str,
        user_id: str,
        fact_type: FactType | None = None,
        limit: int = 50,
        after: tuple[datetime, UUID] | None = None,
    ) -> list[FactMerge]:
        """List the keys that were merged as other spellings of a fact's key, the newest first; also undone ones.

        Args:
            after: `merged_at` and id of the last one of the page before.
        """
        check_limit(limit, PAGE_SIZE_MAX)
        position = after or (None,) * 2
        rows = await _STATEMENTS.fetch(self._pool, "list_merges", app_name, user_id, fact_type, limit, *position)
        return [FactMerge(**row) for row in rows]

    async def undo_merge(self, merge_id: UUID, *, app_name: str, user_id: str) -> UUID | None:
        """Undo a merge: what was stated under the key becomes a fact of its own, and the two are never merged again.

        Returns:
            The new fact; None if nothing is left that was stated under the key.

        Raises:
            FactNotFoundError: no such merge of this app and user, or it is undone already; nothing was changed.
        """
        fact_id: UUID | None = await _STATEMENTS.fetchval(self._pool, "undo_merge", app_name, user_id, merge_id)
        return fact_id

    async def set_style(self, app_name: str, fact_type: FactType, key: str, style: FactStyle) -> KeyStyle:
        """Let a key hold one value ('profile') or many side by side ('collection') from the next statement on.

        Args:
            app_name: '*' for every app without a style of its own.
            key: in any spelling.
        """
        _check_style(app_name, fact_type, key, style)
        row = await _STATEMENTS.fetch_one(self._pool, "set_fact_style", app_name, fact_type, normal_key(key), style)
        return KeyStyle(**row)

    async def reset_style(self, app_name: str, fact_type: FactType, key: str) -> bool:
        """Remove the style of a key; return whether it had one."""
        _check_style(app_name, fact_type, key)
        form = normal_key(key)
        return await _STATEMENTS.fetchval(self._pool, "reset_fact_style", app_name, fact_type, form) is not None

    async def list_styles(
        self, app_name: str | None = None, *, limit: int = 50, after: tuple[str, str, str] | None = None
    ) -> list[KeyStyle]:
        """List the styles of keys: of one app and of '*', or of every app; by app, type and key.

        Args:
            after: app, type and key of the last one of the page before.
        """
        check_limit(limit, PAGE_SIZE_MAX)
        check_names(app_name=app_name)
        rows = await _STATEMENTS.fetch(self._pool, "list_fact_styles", app_name, limit, *(after or (None,) * 3))
        return [KeyStyle(**row) for row in rows]


async def read_styles(pool: Pool, *, app_name: str | None = None, thread_id: UUID | None = None) -> Styles:
    """Read which keys of an app, or of a thread's app, hold many values."""
    rows = await _STATEMENTS.fetch(pool, "fact_styles", app_name, thread_id)
    return {(row["fact_type"], row["normal_key"]): row["style"] for row in rows}


def _check_style(app_name: str, fact_type: str, key: str, style: str = "profile") -> None:
    check_app_name(app_name)
    check_names(app_name=app_name, key=key)
    if fact_type not in get_args(FactType) or style not in get_args(FactStyle) or not normal_key(key).strip():
        raise InvalidInputError(
            f"a style needs a key, one of the types {', '.join(get_args(FactType))}, and one of the styles"
            f" {', '.join(get_args(FactStyle))}"
        )
    if len(key) > KEY_CHARACTERS_MAX:
        raise InvalidInputError(f"a key must have at most {KEY_CHARACTERS_MAX} characters, not {len(key)}")
