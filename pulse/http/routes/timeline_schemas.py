"""The bodies of the routes of a conversation's timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic.alias_generators import to_camel

from pulse.http.edge.schemas import ESCAPE_NOTE, JsonObject, NextCursor, View
from pulse.postgres.json_values import escape_state
from pulse.timeline import ConversationTimeline, TimelineItem


class _CamelView(View):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


_RARE: Final = frozenset({"isPartial", "parts"})


class _Item(_CamelView):
    id: Annotated[str, Field(description="The message's id, or the event's type and number.")]
    sequence_number: Annotated[int, Field(description="Its position in the conversation.")]
    timestamp: Annotated[int, Field(description="When it happened, in milliseconds since 1970.")]

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the rare fields of an item that has nothing in them."""
        shown: dict[str, Any] = serialize(self)
        return {name: value for name, value in shown.items() if name not in _RARE or value}


IsPartial = Annotated[bool, Field(description="Its run failed or was cancelled before it was complete.")]


class MessageItemView(_Item):
    """A message."""

    type: Literal["user_message", "assistant_message"]
    content: str
    parts: list[JsonObject] = Field(
        default=[], description="Images, files and the like, as AG-UI's parts; a very large one is only named."
    )
    is_partial: IsPartial = False


class ThoughtItemView(_Item):
    """A complete thought of the agent."""

    type: Literal["thought"]
    content: str
    is_partial: IsPartial = False


class ToolCallItemView(_Item):
    """A call of a tool."""

    type: Literal["tool_call"]
    tool_name: str
    is_partial: IsPartial = False
    tool_input: Annotated[Any, Field(description=ESCAPE_NOTE)]


class ToolResultItemView(_Item):
    """The result of a tool."""

    type: Literal["tool_result"]
    tool_name: str
    tool_output: Annotated[Any, Field(description=ESCAPE_NOTE)]
    is_error: bool


ItemView = Annotated[
    MessageItemView | ThoughtItemView | ToolCallItemView | ToolResultItemView, Field(discriminator="type")
]
_VIEWS: Final[Mapping[str, type[_Item]]] = {
    "user_message": MessageItemView,
    "assistant_message": MessageItemView,
    "thought": ThoughtItemView,
    "tool_call": ToolCallItemView,
    "tool_result": ToolResultItemView,
}


class TimelineView(_CamelView):
    """A page of a conversation, in sequence."""

    conversation_id: str
    timeline: list[ItemView]
    total: Annotated[int, Field(description="The number of items on this page.")]
    next_cursor: NextCursor
    previous_sequence: Annotated[
        int | None,
        Field(description="With `before_sequence`: send it there for the previous page; null if there is none."),
    ]

    @classmethod
    def of_page(cls, found: ConversationTimeline, next_cursor: str | None) -> TimelineView:
        """Return the view of a page."""
        timeline: list[Any] = [_view(item) for item in found.items]
        return cls(
            conversation_id=found.conversation_id,
            timeline=timeline,
            total=len(timeline),
            next_cursor=next_cursor,
            previous_sequence=found.previous_cursor,
        )


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
