"""The calls about what people decide for an app: instructions, their proposals, and how keys of facts hold values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import InstructionRecord, KeyStyleRecord, Proposal, pick


class InstructionCalls(Calls):
    """Reads and changes instructions and styles of keys, and decides on proposals."""

    async def instructions(self, *, page_size: int = 100) -> AsyncIterator[InstructionRecord]:
        """Yield what is in force, by key."""
        async for each in self._pages(self._app("instructions"), "instructions", limit=page_size):
            yield pick(InstructionRecord, each)

    async def instruction(self, key: str, version: int | None = None) -> InstructionRecord:
        """Read a version of an instruction, by default the newest."""
        params = plain({"version": version})
        return pick(InstructionRecord, await self._call("GET", self._app("instructions", key), params=params))

    async def put_instruction(
        self,
        key: str,
        content: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> InstructionRecord:
        """Put a new version in force; ConflictError where the newest is not the expected one."""
        body = plain({"content": content, "metadata": metadata, "expected_version": expected_version})
        return pick(InstructionRecord, await self._call("PUT", self._app("instructions", key), json=body))

    async def instruction_history(self, key: str, *, page_size: int = 100) -> AsyncIterator[InstructionRecord]:
        """Yield an instruction's versions, the newest first."""
        async for each in self._pages(self._app("instructions", key, "history"), "instructions", limit=page_size):
            yield pick(InstructionRecord, each)

    async def rollback_instruction(
        self, key: str, version: int, *, expected_version: int | None = None
    ) -> InstructionRecord:
        """Put an old version in force again, as a new one."""
        body = plain({"version": version, "expected_version": expected_version})
        return pick(InstructionRecord, await self._call("POST", self._app("instructions", key, "rollback"), json=body))

    async def proposals(
        self, *, status: Literal["proposed", "approved", "rejected"] | None = None, page_size: int = 100
    ) -> AsyncIterator[Proposal]:
        """Yield what users' feedback asks the instructions to become, the newest first."""
        path = self._app("instruction-proposals")
        async for each in self._pages(path, "proposals", limit=page_size, status=status):
            yield pick(Proposal, each)

    async def approve_proposal(
        self, proposal_id: str, *, decided_by: str | None = None, force: bool = False
    ) -> Proposal:
        """Put a proposal in force; ConflictError where its instruction was changed since, unless `force`."""
        path = self._app("instruction-proposals", proposal_id, "approve")
        return pick(Proposal, await self._call("POST", path, json={"decided_by": decided_by, "force": force}))

    async def reject_proposal(self, proposal_id: str, *, decided_by: str | None = None) -> Proposal:
        """Turn a proposal down: the same wish of the same user is not proposed again."""
        path = self._app("instruction-proposals", proposal_id, "reject")
        return pick(Proposal, await self._call("POST", path, json={"decided_by": decided_by}))

    async def fact_styles(self, *, page_size: int = 100) -> AsyncIterator[KeyStyleRecord]:
        """Yield what was said of keys of facts, for the app and for every app."""
        async for each in self._pages(self._app("fact-styles"), "styles", limit=page_size):
            yield pick(KeyStyleRecord, each)

    async def set_fact_style(self, fact_type: str, key: str, style: Literal["profile", "collection"]) -> KeyStyleRecord:
        """Let a key, in any spelling, hold one value or many, from the next statement on."""
        path = self._app("fact-styles", fact_type, key)
        return pick(KeyStyleRecord, await self._call("PUT", path, json={"style": style}))

    async def reset_fact_style(self, fact_type: str, key: str) -> None:
        """Let a key go by what stands for every app again; NotFoundError where nothing was said of it."""
        await self._call("DELETE", self._app("fact-styles", fact_type, key))
