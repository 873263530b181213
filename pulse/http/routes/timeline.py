"""The route of a conversation's timeline, under the user's path and under a short one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor, ListCursor
from pulse.http.edge.owner import AssertedOwner, Owner, PathOwner
from pulse.http.edge.roles import require
from pulse.http.routes import schemas, sessions
from pulse.postgres.json_values import escape_state
from pulse.timeline import ConversationTimeline, TimelineItem, TimelineService

_RESPONSES = problems.documented(*problems.COMMON, problems.INVALID_REQUEST, problems.SESSION_NOT_FOUND)

router = APIRouter(prefix=sessions.PREFIX, tags=["timeline"], route_class=ExactRoute, responses=_RESPONSES)
short_router = APIRouter(tags=["timeline"], route_class=ExactRoute, responses=_RESPONSES)


class _Item(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    id: Annotated[str, Field(description="The message's id, or the event's type and number.")]
    sequence_number: Annotated[int, Field(description="Its place in the conversation.")]
    timestamp: Annotated[int, Field(description="When it happened, in milliseconds since 1970.")]


class MessageItemView(_Item):
    """What somebody said."""

    type: Literal["user_message", "assistant_message"]
    content: str


class ThoughtItemView(_Item):
    """What the agent thought, whole."""

    type: Literal["thought"]
    content: str


class ToolCallItemView(_Item):
    """A call of a tool."""

    type: Literal["tool_call"]
    tool_name: str
    tool_input: Annotated[Any, Field(description=schemas.ESCAPE_NOTE)]


class ToolResultItemView(_Item):
    """What a tool answered."""

    type: Literal["tool_result"]
    tool_name: str
    tool_output: Annotated[Any, Field(description=schemas.ESCAPE_NOTE)]
    is_error: bool


ItemView = Annotated[
    MessageItemView | ThoughtItemView | ToolCallItemView | ToolResultItemView, Field(discriminator="type")
]
_VIEWS: dict[str, type[_Item]] = {
    "user_message": MessageItemView,
    "assistant_message": MessageItemView,
    "thought": ThoughtItemView,
    "tool_call": ToolCallItemView,
    "tool_result": ToolResultItemView,
}


class TimelineView(BaseModel):
    """A page of a conversation, in sequence."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    conversation_id: str
    timeline: list[ItemView]
    total: Annotated[int, Field(description="How many items this page has.")]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]
    previous_sequence: Annotated[
        int | None,
        Field(description="With `before_sequence`: give it there for the page before; null where there is none."),
    ]

    @classmethod
    def of(cls, found: ConversationTimeline, next_cursor: str | None) -> TimelineView:
        """Describe a page."""
        timeline: list[Any] = [_view(item) for item in found.items]
        return cls(
            conversation_id=found.conversation_id,
            timeline=timeline,
            total=len(timeline),
            next_cursor=next_cursor,
            previous_sequence=found.previous_cursor,
        )


def _service(request: Request) -> TimelineService:
    service = request.app.state.timeline
    assert isinstance(service, TimelineService)  # noqa: S101  # the process that builds the app puts it there
    return service


Timelines = Annotated[TimelineService, Depends(_service)]
BeforeSequence = Annotated[
    int | None,
    Query(ge=1, le=2**63 - 1, description="The newest of what comes before this number, in the place of a cursor."),
]


@router.get(
    "/conversations/{session_id}/messages",
    summary="Read a conversation's timeline",
    dependencies=[require("read")],
    response_model=TimelineView,
)
async def list_messages(
    owner: PathOwner,
    session_id: schemas.SessionId,
    timelines: Timelines,
    cursor: Cursor,
    after_sequence: sessions.AfterSequence = 0,
    before_sequence: BeforeSequence = None,
    limit: sessions.Limit = 100,
) -> Response:
    """Read what was said, thought and done, page by page."""
    place = cursor.read(int) or after_sequence, before_sequence
    return await _reply(timelines, owner, session_id, place, limit, cursor)


@short_router.get(
    "/conversations/{session_id}/messages",
    summary="Read a conversation's timeline by its id",
    dependencies=[require("read")],
    response_model=TimelineView,
)
async def list_conversation_messages(
    owner: AssertedOwner,
    session_id: schemas.SessionId,
    timelines: Timelines,
    cursor: Cursor,
    after_sequence: sessions.AfterSequence = 0,
    before_sequence: BeforeSequence = None,
    limit: sessions.Limit = 100,
) -> Response:
    """The same, with the app and the user in the query or in headers."""
    place = cursor.read(int) or after_sequence, before_sequence
    return await _reply(timelines, owner, session_id, place, limit, cursor)


async def _reply(
    timelines: TimelineService,
    owner: Owner,
    session_id: str,
    place: tuple[int, int | None],
    limit: int,
    cursor: ListCursor,
) -> Response:
    after, before = place
    found = await timelines.get_conversation_messages(
        owner.app_name, owner.user_id, session_id, after_sequence=after, before_sequence=before, limit=limit
    )
    following = None if found.next_cursor is None else cursor.write(found.next_cursor)
    return reply(TimelineView.of(found, following))


def _view(item: TimelineItem) -> _Item:
    return _VIEWS[item.type].model_validate(
        {
            "id": item.id,
            "type": item.type,
            "sequenceNumber": item.sequence_number,
            "timestamp": item.timestamp,
            **escape_state(item.fields),
        }
    )
