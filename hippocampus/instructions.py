"""Procedural memory: instructions under version control. A change adds a version; the newest is in force.

Deep reflection may propose a change from what a user asks for. A proposal acts on nothing until somebody approves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from hippocampus.errors import from_postgres
from hippocampus.records import Instruction, InstructionProposal
from pulse.errors import InvalidInputError
from pulse.postgres.json_values import clean_text, escape_state, unescape
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

HISTORY_MAX = 1000
PROPOSAL_STATUSES = ("proposed", "approved", "rejected")
_NAME_LENGTH_MAX = 255


class InstructionStore:
    """Writes and reads the instructions of apps.

    Raises, from every method:
        InvalidInputError: an argument is out of its bounds; nothing was changed.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._queries = load_queries("hippocampus")

    async def put(
        self,
        app_name: str,
        key: str,
        content: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> Instruction:
        """Add a version and return it; where content and metadata are those of the newest, return that one.

        Args:
            expected_version: the newest version that the caller saw, 0 for none; None overrides whatever there is.

        Raises:
            InstructionConflictError: the newest version is another one; nothing was changed.
        """
        _check_names(app_name, key)
        if clean_text(content) != content:
            raise InvalidInputError("an instruction's content can hold neither U+0000 nor lone surrogates; remove them")
        stored_metadata = escape_state(metadata or {}, where="metadata")
        try:
            row = await self._pool.fetchrow(
                self._queries["put_instruction"], app_name, key, content, stored_metadata, expected_version
            )
        except asyncpg.PostgresError as error:
            known = from_postgres(error)
            if known is None:
                raise
            raise known from error
        assert row is not None  # noqa: S101  # the function returns a row or raises
        return _instruction(row)

    async def get(self, app_name: str, key: str, version: int | None = None) -> Instruction | None:
        """Read the newest version, or the given one; None where there is none."""
        _check_names(app_name, key)
        row = await self._pool.fetchrow(self._queries["get_instruction"], app_name, key, version)
        return None if row is None else _instruction(row)

    async def active(self, app_name: str, *, limit: int = 100, after: str | None = None) -> list[Instruction]:
        """List what is in force, by key: the newest version of each; one whose newest version is empty is not.

        Args:
            limit: 1 to 1,000.
            after: the key of the last one of the page before.
        """
        _check_names(app_name, "any")
        _check_limit(limit)
        rows = await self._pool.fetch(self._queries["active_instructions"], app_name, limit, after)
        return [_instruction(row) for row in rows]

    async def history(
        self, app_name: str, key: str, *, limit: int = 100, before: int | None = None
    ) -> list[Instruction]:
        """List the versions, the newest first, or those before one; `limit` is 1 to 1,000."""
        _check_names(app_name, key)
        _check_limit(limit)
        rows = await self._pool.fetch(self._queries["instruction_history"], app_name, key, limit, before)
        return [_instruction(row) for row in rows]

    async def rollback(
        self, app_name: str, key: str, version: int, *, expected_version: int | None = None
    ) -> Instruction:
        """Put an old version in force again, as a new version; what came between stays in the history.

        Raises:
            LookupError: there is no such version.
            InstructionConflictError: as `put`.
        """
        old = await self.get(app_name, key, version)
        if old is None:
            raise LookupError(f"instruction {key!r} of app {app_name!r} has no version {version}; see its history")
        return await self.put(app_name, key, old.content, metadata=old.metadata, expected_version=expected_version)

    async def list_proposals(
        self, app_name: str, *, status: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> list[InstructionProposal]:
        """List what was proposed for an app, the newest first.

        Args:
            status: 'proposed', 'approved' or 'rejected'; None: any.
            before: the id of the last proposal of the page before.
        """
        _check_names(app_name, "any")
        _check_limit(limit)
        if status is not None and status not in PROPOSAL_STATUSES:
            raise InvalidInputError(f"status is one of {', '.join(PROPOSAL_STATUSES)}, not {status!r:.80}")
        rows = await self._pool.fetch(self._queries["list_proposals"], app_name, status, before, limit)
        return [_proposal(row) for row in rows]

    async def approve(
        self, app_name: str, proposal_id: UUID, *, decided_by: str | None = None, force: bool = False
    ) -> InstructionProposal:
        """Put a proposal in force, as the next version of its instruction.

        Args:
            decided_by: who says so, for the record.
            force: also where the instruction was changed since the proposal was made.

        Raises:
            ProposalNotFoundError: no such proposal of this app waits; nothing was changed.
            InstructionConflictError: the instruction was changed since; nothing was changed.
        """
        return await self._decide(self._queries["approve_proposal"], app_name, proposal_id, decided_by, force)

    async def reject(self, app_name: str, proposal_id: UUID, *, decided_by: str | None = None) -> InstructionProposal:
        """Turn a proposal down; the same wish of the same user is not proposed again.

        Raises:
            ProposalNotFoundError: no such proposal of this app waits; nothing was changed.
        """
        return await self._decide(self._queries["reject_proposal"], app_name, proposal_id, decided_by)

    async def _decide(self, query: str, *arguments: Any) -> InstructionProposal:
        try:
            row = await self._pool.fetchrow(query, *arguments)
        except asyncpg.PostgresError as error:
            raise from_postgres(error) or error from error
        assert row is not None  # noqa: S101  # the function returns a row or raises
        return _proposal(row)


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= HISTORY_MAX:
        raise InvalidInputError(f"limit is 1 to {HISTORY_MAX}, not {limit}")


def _check_names(app_name: str, key: str) -> None:
    for what, value in (("app_name", app_name), ("key", key)):
        if not 1 <= len(value) <= _NAME_LENGTH_MAX or clean_text(value) != value:
            raise InvalidInputError(f"{what} is 1 to {_NAME_LENGTH_MAX} characters without U+0000, not {value[:40]!r}")


def _instruction(row: asyncpg.Record) -> Instruction:
    return Instruction(
        id=row["id"],
        app_name=row["app_name"],
        key=row["instruction_key"],
        content=row["content"],
        version=row["version"],
        metadata=unescape(row["metadata"]),
        created_at=row["created_at"],
    )


def _proposal(row: asyncpg.Record) -> InstructionProposal:
    fields = {name: value for name, value in row.items() if name != "instruction_key"}
    return InstructionProposal(**{**fields, "key": row["instruction_key"], "source_seqs": tuple(row["source_seqs"])})
