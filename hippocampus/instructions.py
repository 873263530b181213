"""Procedural memory: instructions under version control. A change adds a version; the newest is in force.

Deep reflection may propose a change from a user's feedback. A proposal has no effect until it is approved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE
from hippocampus.names import PAGE_SIZE_MAX, check_app_name, check_name, check_word
from hippocampus.records import Instruction, InstructionProposal
from pulse.errors import InvalidInputError
from pulse.names import check_app
from pulse.postgres.json_values import clean_text, escape_state, unescape
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool

PROPOSAL_STATUSES = ("proposed", "approved", "rejected")
_STATEMENTS = Statements("hippocampus", "instructions.sql", errors=BY_SQLSTATE)


class InstructionStore:
    """Writes and reads the instructions of apps.

    Raises, from every method:
        InvalidInputError: an argument is out of its bounds; nothing was changed.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def put(
        self,
        app_name: str,
        key: str,
        content: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> Instruction:
        """Add a version and return it; if content and metadata are those of the newest, return that one.

        Args:
            expected_version: the newest version that the caller read, 0 for none; None replaces any version.

        Raises:
            InstructionConflictError: the newest version is another one; nothing was changed.
        """
        check_app(app_name)
        _check_key(app_name, key)
        if clean_text(content) != content:
            raise InvalidInputError("an instruction's content can hold neither U+0000 nor lone surrogates; remove them")
        stored_metadata = escape_state(metadata or {}, where="metadata")
        row = await _STATEMENTS.fetch_one(
            self._pool, "put_instruction", app_name, key, content, stored_metadata, expected_version
        )
        return _instruction(row)

    async def get(self, app_name: str, key: str, version: int | None = None) -> Instruction | None:
        """Read the newest version, or the given one; None if there is none."""
        _check_key(app_name, key)
        row = await _STATEMENTS.fetchrow(self._pool, "get_instruction", app_name, key, version)
        return None if row is None else _instruction(row)

    async def active(self, app_name: str, *, limit: int = 100, after: str | None = None) -> list[Instruction]:
        """List what is in force, by key: the newest version of each; one whose newest version is empty is not.

        Args:
            limit: 1 to 1,000.
            after: the key of the last one of the page before.
        """
        check_app_name(app_name)
        check_limit(limit, PAGE_SIZE_MAX)
        rows = await _STATEMENTS.fetch(self._pool, "active_instructions", app_name, limit, after)
        return [_instruction(row) for row in rows]

    async def history(
        self, app_name: str, key: str, *, limit: int = 100, before: int | None = None
    ) -> list[Instruction]:
        """List the versions, the newest first, or those before one; `limit` is 1 to 1,000."""
        _check_key(app_name, key)
        check_limit(limit, PAGE_SIZE_MAX)
        rows = await _STATEMENTS.fetch(self._pool, "instruction_history", app_name, key, limit, before)
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
        check_app_name(app_name)
        check_limit(limit, PAGE_SIZE_MAX)
        check_word("status", status, PROPOSAL_STATUSES)
        rows = await _STATEMENTS.fetch(self._pool, "list_proposals", app_name, status, before, limit)
        return [_proposal(row) for row in rows]

    async def approve(
        self, app_name: str, proposal_id: UUID, *, decided_by: str | None = None, force: bool = False
    ) -> InstructionProposal:
        """Put a proposal in force, as the next version of its instruction.

        Args:
            decided_by: who approves it, for the record.
            force: also if the instruction was changed after the proposal was made.

        Raises:
            ProposalNotFoundError: no such undecided proposal of this app; nothing was changed.
            InstructionConflictError: the instruction was changed since; nothing was changed.
        """
        return await self._decide("approve_proposal", app_name, proposal_id, decided_by, force)

    async def reject(self, app_name: str, proposal_id: UUID, *, decided_by: str | None = None) -> InstructionProposal:
        """Reject a proposal; the same request of the same user is not proposed again.

        Raises:
            ProposalNotFoundError: no such undecided proposal of this app; nothing was changed.
        """
        return await self._decide("reject_proposal", app_name, proposal_id, decided_by)

    async def _decide(self, statement: str, *arguments: Any) -> InstructionProposal:
        row = await _STATEMENTS.fetch_one(self._pool, statement, *arguments)
        return _proposal(row)


def _check_key(app_name: str, key: str) -> None:
    check_app_name(app_name)
    check_name("key", key)


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
