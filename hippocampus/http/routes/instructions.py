"""The routes of procedural memory: an app's instructions, their versions, and the proposals to change them."""

from __future__ import annotations

import uuid
from typing import Annotated, Literal

from fastapi import Query
from starlette.responses import Response

from hippocampus.http import problems as memory_problems
from hippocampus.http.routes.instructions_schemas import (
    DecisionInput,
    InstructionInput,
    InstructionsView,
    InstructionView,
    ProposalPageView,
    ProposalView,
    RollbackInput,
)
from hippocampus.instructions import InstructionStore
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import APP_PATH, make_router
from pulse.http.edge.schemas import AppName, PathName
from pulse.http.edge.services import service

router = make_router("instructions", APP_PATH)

Store = Annotated[InstructionStore, service(InstructionStore)]


@router.get(
    "/instructions", summary="List instructions", dependencies=[require("read")], response_model=InstructionsView
)
async def list_instructions(app_name: AppName, store: Store, page: Annotated[Page, page_of(100)]) -> Response:
    """List the current instructions, by key."""
    found = await store.active(app_name, limit=page.limit, after=page.start(str))
    following = page.next_cursor(found, lambda each: each.key)
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
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="The newest by default.")] = None,
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
    """Add a version, which takes effect at once. A call that changes nothing adds no version."""
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
    app_name: AppName, key: PathName, store: Store, page: Annotated[Page, page_of(100)]
) -> Response:
    """List the versions, newest first."""
    found = await store.history(app_name, key, limit=page.limit, before=page.start(int))
    following = page.next_cursor(found, lambda each: each.version)
    return reply(InstructionsView(instructions=[InstructionView.of(each) for each in found], next_cursor=following))


@router.post(
    "/instructions/{key}/rollback",
    summary="Restore an old version",
    dependencies=[require("admin")],
    response_model=InstructionView,
    responses=problems.documented(
        *problems.BODY, problems.NOT_FOUND, memory_problems.INSTRUCTION_CONFLICT, problems.INVALID_REQUEST
    ),
)
async def rollback_instruction(app_name: AppName, key: PathName, body: RollbackInput, store: Store) -> Response:
    """Add a version with the content of an old one. The versions in between remain in the history."""
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
    page: Annotated[Page, page_of(50)],
    status: Literal["proposed", "approved", "rejected"] | None = None,
) -> Response:
    """List the changes of instructions that users' feedback suggests."""
    found = await store.list_proposals(app_name, status=status, before=page.start(uuid.UUID), limit=page.limit)
    following = page.next_cursor(found, lambda each: each.id)
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
    """Make a proposal the next version of its instruction."""
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
    """Reject a proposal. The same request of the same user is not proposed again."""
    return reply(ProposalView.of(await store.reject(app_name, proposal_id, decided_by=body.decided_by)))
