"""The bodies of the routes of instructions and proposals."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from pulse.http.edge.schemas import Body, EscapedObject, JsonObject, Name, NextCursor, View

CONTENT_LENGTH_MAX = 100_000

ExpectedVersion = Annotated[
    int | None,
    Field(ge=0, le=2**31 - 1, description="The newest version that you read, 0 for none; any version by default."),
]


class InstructionInput(Body):
    """A new version of an instruction."""

    content: Annotated[
        str,
        StringConstraints(max_length=CONTENT_LENGTH_MAX),
        Field(description="An empty text withdraws the instruction."),
    ]
    metadata: JsonObject | None = None
    expected_version: ExpectedVersion = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"content": "Answer in French."}]})


class RollbackInput(Body):
    """An old version to restore."""

    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    expected_version: ExpectedVersion = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"version": 1}]})


class DecisionInput(Body):
    """A decision on a proposal."""

    decided_by: Annotated[Name | None, Field(description="Who decided; recorded with the proposal.")] = None
    force: Annotated[bool, Field(description="Approve even if the instruction has changed since.")] = False
    model_config = ConfigDict(json_schema_extra={"examples": [{"decided_by": "ops"}]})


class InstructionView(View):
    """One version of an instruction."""

    key: str
    version: int
    content: str
    metadata: EscapedObject
    created_at: datetime


class InstructionsView(View):
    """Instructions, or the versions of one."""

    instructions: list[InstructionView]
    next_cursor: NextCursor


class ProposalView(View):
    """A change that a user's feedback suggests. It takes effect only when it is approved."""

    id: uuid.UUID
    key: str
    content: str
    status: Literal["proposed", "approved", "rejected"]
    base_version: Annotated[int, Field(description="The newest version when it was proposed; 0 for none.")]
    version: Annotated[int | None, Field(description="The version that it became.")]
    user_id: Annotated[str, Field(description="The user whose feedback suggested it.")]
    thread_id: uuid.UUID | None
    source_seqs: list[int]
    job_id: uuid.UUID | None
    prompt_hash: str | None
    model: str | None
    proposed_at: datetime
    decided_at: datetime | None
    decided_by: str | None


class ProposalPageView(View):
    """A page of proposals, newest first."""

    proposals: list[ProposalView]
    next_cursor: NextCursor
