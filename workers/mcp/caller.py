"""Who calls the MCP server, what the caller may do, and the services that the calls use."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hippocampus.answers import AnswerService
from hippocampus.by_hand import MemoryEditor
from hippocampus.context_assembler import ContextAssembler
from hippocampus.engine import Hippocampus
from hippocampus.erasure.provenance import Provenance, provenance
from hippocampus.knowledge.service import KnowledgeServices
from hippocampus.memory_service import OpenMemoryService
from hippocampus.search import MemorySearch
from hippocampus.transfer.given_memories import GivenMemories
from pulse.session_service import OpenSessionService
from pulse.tools.registries import ToolRegistries

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pulse.api_keys import Grant, Role
    from pulse.database import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the tools use: in a writer the objects of its API, else of a process of their own."""

    pool: Pool
    sessions: OpenSessionService
    memory: OpenMemoryService
    search: MemorySearch
    assembler: ContextAssembler
    answers: AnswerService
    tools: ToolRegistries | None = None
    knowledge: KnowledgeServices | None = None

    @property
    def editor(self) -> MemoryEditor:
        """What the caller writes by hand."""
        return MemoryEditor(self.pool)

    @property
    def given(self) -> GivenMemories:
        """Erases single memories, facts and turns."""
        return GivenMemories(self.pool)

    def engine(self, app_name: str) -> Hippocampus:
        """Return the one object of the library for an app, on the same connections; it is not to be closed."""
        engine = Hippocampus(self.pool, app=app_name, embedder=None)
        engine.sessions = self.sessions
        return engine

    async def provenance(self, app_name: str, user_id: str, derived_id: UUID) -> list[Provenance]:
        """Return where a memory or a fact comes from; see `hippocampus.erasure.provenance`."""
        return await provenance(self.pool, app_name, user_id, derived_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """On whose behalf a request is made.

    Attributes:
        grant: what the caller's key allows.
        roles: the user's, as the app asserts them: for corpora and registered tools. Not those of the key.
        slot: admits one call at a time of a bounded number; see `pulse.http.edge.bodies.Admission`.
        request_id: under which the log has the request; empty on stdio.
    """

    app_name: str
    user_id: str
    grant: Grant
    services: Services
    slot: Callable[[], AbstractAsyncContextManager[None]]
    request_id: str = ""
    roles: tuple[str, ...] = ()

    def may(self, role: Role) -> bool:
        """Return whether the caller's key grants a role."""
        return self.grant.has(role)
