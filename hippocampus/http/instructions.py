"""The routes of procedural memory: an app's instructions, their versions, and what was proposed for them."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from hippocampus.http import problems as memory_problems
from hippocampus.instructions import InstructionStore
from hippocampus.records import Instruction, InstructionProposal
from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor
from pulse.http.edge.roles import require
from pulse.http.routes.schemas import AppName, Body, JsonObject, Name, PathName
from pulse.postgres.json_values import escape_state

CONTENT_LENGTH_MAX = 100_000

router = APIRouter(
    prefix="/v1/apps/{app_name}",
    tags=["instructions"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)

ExpectedVersion = Annotated[
    int | None, Field(ge=0, le=2**31 - 1, description="The newest that you saw, 0 for none; left out: whatever it is.")
]


class InstructionInput(Body):
    """A new version of an instruction."""

    content: Annotated[
        str, StringConstraints(max_length=CONTENT_LENGTH_MAX), Field(description="Empty: it is in force no more.")
    ]
    metadata: JsonObject | None = None
    expected_version: ExpectedVersion = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"content": "Answer in French."}]})


class RollbackInput(Body):
    """An old version to put in force again."""

    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    expected_version: ExpectedVersion = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"version": 1}]})


class DecisionInput(Body):
    """Who decides on a proposal."""

    decided_by: Annotated[Name | None, Field(description="For the record.")] = None
    force: Annotated[bool, Field(description="Approve also where the instruction was changed since.")] = False
    model_config = ConfigDict(json_schema_extra={"examples": [{"decided_by": "ops"}]})


class InstructionView(BaseModel):
    """One version of an instruction."""

    key: str
    version: int
    content: str
    metadata: JsonObject
    created_at: datetime

    @classmethod
    def of(cls, instruction: Instruction) -> Self:
        """Describe a version."""
        shown = {name: getattr(instruction, name) for name in cls.model_fields}
        return cls(**{**shown, "metadata": escape_state(instruction.metadata)})


class InstructionsView(BaseModel):
    """Instructions, or the versions of one."""

    instructions: list[InstructionView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class ProposalView(BaseModel):
    """A change that a user's feedback asks for. It acts only when it is approved."""

    id: uuid.UUID
    key: str
    content: str
    status: Literal["proposed", "approved", "rejected"]
    base_version: Annotated[int, Field(description="The newest when it was proposed; 0: there was none.")]
    version: Annotated[int | None, Field(description="What it became.")]
    user_id: Annotated[str, Field(description="Whose feedback it follows from.")]
    thread_id: uuid.UUID | None
    source_seqs: list[int]
    job_id: uuid.UUID | None
    prompt_hash: str | None
    model: str | None
    proposed_at: datetime
    decided_at: datetime | None
    decided_by: str | None

    @classmethod
    def of(cls, proposal: InstructionProposal) -> Self:
        """Describe a proposal."""
        shown = {name: getattr(proposal, name) for name in cls.model_fields}
        return cls(**{**shown, "source_seqs": list(proposal.source_seqs)})


class ProposalPageView(BaseModel):
    """A page of proposals, the newest first."""

    proposals: list[ProposalView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


def _store_of(request: Request) -> InstructionStore:
    store = request.app.state.instructions
    assert isinstance(store, InstructionStore)  # noqa: S101  # the process that builds the app puts it there
    return store


Store = Annotated[InstructionStore, Depends(_store_of)]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]


@router.get(
    "/instructions", summary="List instructions", dependencies=[require("read")], response_model=InstructionsView
)
async def list_instructions(app_name: AppName, store: Store, cursor: Cursor, limit: Limit = 100) -> Response:
    """List what is in force, by key."""
    found = await store.active(app_name, limit=limit, after=cursor.read(str))
    following = cursor.following(found, limit, lambda each: each.key)
    return reply(InstructionsView(instructions=[InstructionView.of(each) for each in found], next_cursor=following))


@router.get(
    "/instructions/{key}",
    summary="Read an instruction",
    dependencies=[require("read")],
    response_model=InstructionView,
    responses=problems.documented(problems.NOT_FOUND),
)
async def get_instruction(
    app_name: AppName,
    key: PathName,
    store: Store,
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="By default the newest.")] = None,
) -> Response:
    """Read a version of an instruction."""
    found = await store.get(app_name, key, version)
    if found is None:
        raise problems.ProblemError(problems.NOT_FOUND, f"there is no such version of instruction {key!r}")
    return reply(InstructionView.of(found))


@router.put(
    "/instructions/{key}",
    summary="Change an instruction",
    dependencies=[require("admin")],
    response_model=InstructionView,
    responses=problems.documented(*problems.BODY, memory_problems.INSTRUCTION_CONFLICT, problems.INVALID_REQUEST),
)
async def put_instruction(app_name: AppName, key: PathName, body: InstructionInput, store: Store) -> Response:
    """Add a version, which is in force from now on; nothing is added where nothing changes."""
    stored = await store.put(
        app_name, key, body.content, metadata=body.metadata, expected_version=body.expected_version
    )
    return reply(InstructionView.of(stored))


@router.get(
    "/instructions/{key}/history",
    summary="Read an instruction's history",
    dependencies=[require("read")],
    response_model=InstructionsView,
)
async def instruction_history(
    app_name: AppName, key: PathName, store: Store, cursor: Cursor, limit: Limit = 100
) -> Response:
    """List the versions, the newest first."""
    found = await store.history(app_name, key, limit=limit, before=cursor.read(int))
    following = cursor.following(found, limit, lambda each: each.version)
    return reply(InstructionsView(instructions=[InstructionView.of(each) for each in found], next_cursor=following))


@router.post(
    "/instructions/{key}/rollback",
    summary="Put an old version in force again",
    dependencies=[require("admin")],
    response_model=InstructionView,
    responses=problems.documented(
        *problems.BODY, problems.NOT_FOUND, memory_problems.INSTRUCTION_CONFLICT, problems.INVALID_REQUEST
    ),
)
async def rollback_instruction(app_name: AppName, key: PathName, body: RollbackInput, store: Store) -> Response:
    """Add a version with the content of an old one; what came between stays in the history."""
    try:
        stored = await store.rollback(app_name, key, body.version, expected_version=body.expected_version)
    except LookupError as error:
        raise problems.ProblemError(problems.NOT_FOUND, str(error)) from None
    return reply(InstructionView.of(stored))


@router.get(
    "/instruction-proposals", summary="List proposals", dependencies=[require("read")], response_model=ProposalPageView
)
async def list_proposals(
    app_name: AppName,
    store: Store,
    cursor: Cursor,
    status: Literal["proposed", "approved", "rejected"] | None = None,
    limit: Limit = 50,
) -> Response:
    """List what users' feedback asks the instructions to become."""
    found = await store.list_proposals(app_name, status=status, before=cursor.read(uuid.UUID), limit=limit)
    following = cursor.following(found, limit, lambda each: each.id)
    return reply(ProposalPageView(proposals=[ProposalView.of(each) for each in found], next_cursor=following))


@router.post(
    "/instruction-proposals/{proposal_id}/approve",
    summary="Approve a proposal",
    dependencies=[require("admin")],
    response_model=ProposalView,
    responses=problems.documented(
        *problems.BODY, problems.NOT_FOUND, memory_problems.INSTRUCTION_CONFLICT, problems.INVALID_REQUEST
    ),
)
async def approve_proposal(app_name: AppName, proposal_id: uuid.UUID, body: DecisionInput, store: Store) -> Response:
    """Put a proposal in force, as the next version of its instruction."""
    decided = await store.approve(app_name, proposal_id, decided_by=body.decided_by, force=body.force)
    return reply(ProposalView.of(decided))


@router.post(
    "/instruction-proposals/{proposal_id}/reject",
    summary="Reject a proposal",
    dependencies=[require("admin")],
    response_model=ProposalView,
    responses=problems.documented(*problems.BODY, problems.NOT_FOUND, problems.INVALID_REQUEST),
)
async def reject_proposal(app_name: AppName, proposal_id: uuid.UUID, body: DecisionInput, store: Store) -> Response:
    """Turn a proposal down; the same wish of the same user is not proposed again."""
    return reply(ProposalView.of(await store.reject(app_name, proposal_id, decided_by=body.decided_by)))
