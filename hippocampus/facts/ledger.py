"""What is kept beside the facts that hold: candidates, merged keys, and which keys hold many values.

The facts themselves, and their history, are read with `hippocampus.memory_service.OpenMemoryService`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, get_args
from uuid import UUID

import asyncpg

from hippocampus.errors import from_postgres
from hippocampus.facts.keys import KEY_CHARACTERS_MAX, FactStyle, Styles, normal_key
from hippocampus.names import check_names
from hippocampus.records import FactCandidate, FactMerge, FactType
from hippocampus.retention.policies import check_app_name
from pulse.errors import InvalidInputError
from pulse.postgres.json_values import unescape
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

PAGE_SIZE_MAX = 1000
_QUERIES = load_queries("hippocampus")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStyle:
    """Whether a key of an app's facts holds one value or many; `app_name` '*' is for all that say nothing else."""

    app_name: str
    fact_type: FactType
    normal_key: str  # which every spelling of the key has
    style: FactStyle


class FactLedger:
    """Looks into, and corrects, what consolidation decided about facts.

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
        """List statements that were too unsure to replace what held, by type, key and when they were said.

        Args:
            after: type, key, `valid_from` and id of the last one of the page before.
        """
        _check_page(limit)
        place = after or (None, None, None, None)
        rows = await self._pool.fetch(_QUERIES["list_candidates"], app_name, user_id, fact_type, limit, *place)
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
        """Believe a candidate from now on, as true from when it was said; return its fact.

        Raises:
            FactNotFoundError: no such candidate of this app and user; nothing was changed.
        """
        fact_id = await self._change(_QUERIES["promote_candidate"], app_name, user_id, candidate_id)
        assert fact_id is not None  # noqa: S101  # the function returns one or raises
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
        """List the keys that were taken for other spellings of a fact's key, the newest first; also undone ones.

        Args:
            after: `merged_at` and id of the last one of the page before.
        """
        _check_page(limit)
        place = after or (None, None)
        rows = await self._pool.fetch(_QUERIES["list_merges"], app_name, user_id, fact_type, limit, *place)
        return [FactMerge(**row) for row in rows]

    async def undo_merge(self, merge_id: UUID, *, app_name: str, user_id: str) -> UUID | None:
        """Part a merged key: what was said under it becomes a fact of its own, and the two are never merged again.

        Returns:
            The new fact; None where nothing is left that was said under the key.

        Raises:
            FactNotFoundError: no such merge of this app and user, or it is undone already; nothing was changed.
        """
        return await self._change(_QUERIES["undo_merge"], app_name, user_id, merge_id)

    async def set_style(self, app_name: str, fact_type: FactType, key: str, style: FactStyle) -> KeyStyle:
        """Let a key hold one value ('profile') or many side by side ('collection') from the next statement on.

        Args:
            app_name: '*' for every app that says nothing else.
            key: in any spelling.
        """
        _check_style(app_name, fact_type, key, style)
        row = await self._pool.fetchrow(_QUERIES["set_fact_style"], app_name, fact_type, normal_key(key), style)
        assert row is not None  # noqa: S101  # the statement returns its row
        return KeyStyle(**row)

    async def reset_style(self, app_name: str, fact_type: FactType, key: str) -> bool:
        """Take back what was said of a key; return whether something was."""
        _check_style(app_name, fact_type, key)
        return await self._pool.fetchval(_QUERIES["reset_fact_style"], app_name, fact_type, normal_key(key)) is not None

    async def list_styles(
        self, app_name: str | None = None, *, limit: int = 50, after: tuple[str, str, str] | None = None
    ) -> list[KeyStyle]:
        """List what was said of keys: of one app and of '*', or of every app; by app, type and key.

        Args:
            after: app, type and key of the last one of the page before.
        """
        _check_page(limit)
        check_names(app_name=app_name)
        rows = await self._pool.fetch(_QUERIES["list_fact_styles"], app_name, limit, *(after or (None, None, None)))
        return [KeyStyle(**row) for row in rows]

    async def _change(self, query: str, app_name: str, user_id: str, row_id: UUID) -> UUID | None:
        try:
            changed: UUID | None = await self._pool.fetchval(query, app_name, user_id, row_id)
        except asyncpg.PostgresError as error:
            raise from_postgres(error) or error from error
        return changed


async def read_styles(pool: Pool, thread_id: UUID) -> Styles:
    """Read the policy of a thread's app on which keys hold many values."""
    rows = await pool.fetch(_QUERIES["fact_styles"], thread_id)
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
        raise InvalidInputError(f"a key has at most {KEY_CHARACTERS_MAX} characters, not {len(key)}")


def _check_page(limit: int) -> None:
    if not 1 <= limit <= PAGE_SIZE_MAX:
        raise InvalidInputError(f"limit is 1 to {PAGE_SIZE_MAX}, not {limit}")
