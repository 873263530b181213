"""The timeline of a conversation: what was said, thought and done, in the one order in which it was stored.

A conversation is a session; its events are read page by page, and shown as items:

    event               item
    user_message        user_message        content
    assistant_message   assistant_message   content
    thought             thought             content; a blank one is left out
    act                 tool_call           toolName, toolInput
    observe             tool_result         toolName, toolOutput, isError
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.event_rows import read_event
from pulse.event_types import MESSAGE_EVENT_TYPES, PERSISTENT_EVENT_TYPES, TIMELINE_EVENT_TYPES
from pulse.events import Event, message_text
from pulse.postgres.json_values import clean_text
from pulse.postgres.statements import load_queries, translate

if TYPE_CHECKING:
    from pulse.database import Pool

__all__ = ["PERSISTENT_EVENT_TYPES", "ConversationTimeline", "TimelineItem", "TimelineService", "timeline_item"]

PAGE_SIZE_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineItem:
    """One item.

    Attributes:
        id: the message's id where the event names one, else ``{event_type}-{sequence_num}``.
        timestamp: when it happened, in milliseconds since 1970.
        fields: what the item's type has beside, by its name on the wire.
    """

    id: str
    type: str
    sequence_number: int
    timestamp: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationTimeline:
    """A page of a timeline.

    Attributes:
        next_cursor: the `after_sequence` of the next page; None after the last, and where pages go backwards.
        previous_cursor: the `before_sequence` of the page before; None where there is none, or pages go forwards.
    """

    conversation_id: str
    items: Sequence[TimelineItem]
    next_cursor: int | None
    previous_cursor: int | None = None


class TimelineService:
    """Reads timelines."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._queries = load_queries("pulse")

    async def get_conversation_messages(
        self,
        app_name: str,
        user_id: str,
        conversation_id: str,
        *,
        after_sequence: int = 0,
        before_sequence: int | None = None,
        limit: int = 100,
    ) -> ConversationTimeline:
        """Read a page of a conversation's timeline, in sequence.

        Args:
            conversation_id: the session's id.
            after_sequence: only what comes past this number.
            before_sequence: the newest of what comes before this number; then `after_sequence` means nothing.
            limit: 1 to 1,000 events; blank thoughts among them make a page shorter.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        if after_sequence < 0 or not 1 <= limit <= PAGE_SIZE_MAX:
            raise InvalidInputError(f"after_sequence counts from 0, limit is 1 to {PAGE_SIZE_MAX}")
        is_forwards = before_sequence is None
        try:
            row = await self._pool.fetchrow(
                self._queries["list_timeline" if is_forwards else "list_timeline_before"],
                app_name,
                user_id,
                conversation_id.strip(),
                after_sequence if before_sequence is None else before_sequence,
                limit + 1,
                sorted(TIMELINE_EVENT_TYPES),
            )
        except asyncpg.PostgresError as error:
            raise translate(error) from error
        if row is None:
            raise SessionNotFoundError(
                f"there is no session {conversation_id!r} for app {app_name!r} and user {user_id!r}"
            )
        events = [read_event(*fields) for fields in row["events"] or ()]
        shown = events[:limit] if is_forwards else events[-limit:]
        # Of a page that goes on: where the next one begins.
        end = shown[-1 if is_forwards else 0].sequence_num if len(events) > limit else None
        return ConversationTimeline(
            conversation_id=conversation_id.strip(),
            items=[item for item in map(timeline_item, shown) if item is not None],
            next_cursor=end if is_forwards else None,
            previous_cursor=None if is_forwards else end,
        )


def timeline_item(event: Event) -> TimelineItem | None:
    """Return how a stored event is shown; None where it is not, or is a blank thought."""
    content = event.content if isinstance(event.content, Mapping) else {}
    shown: TimelineItem | None = None
    match event.event_type:
        case "user_message" | "assistant_message":
            shown = _item(event, event.event_type, {"content": message_text(event.content) or ""})
        case "thought":
            text = _text(content.get("thought")) or message_text(event.content) or ""
            shown = _item(event, "thought", {"content": text}) if text.strip() else None
        case "act":
            fields = {"toolName": _text(content.get("tool_name")), "toolInput": content.get("tool_input")}
            shown = _item(event, "tool_call", fields)
        case "observe":
            fields = {
                "toolName": _text(content.get("tool_name")),
                "toolOutput": content.get("observation"),
                "isError": bool(content.get("is_error")),
            }
            shown = _item(event, "tool_result", fields)
    return shown


def _item(event: Event, kind: str, fields: Mapping[str, Any]) -> TimelineItem:
    if event.sequence_num is None or event.timestamp is None:
        raise ValueError(f"the event {event.id!r} is not stored")
    is_message = event.event_type in MESSAGE_EVENT_TYPES and isinstance(event.content, Mapping)
    # A message_id of null is none.
    named = _text(event.content.get("message_id")) if is_message else ""
    return TimelineItem(
        id=named or f"{event.event_type}-{event.sequence_num}",
        type=kind,
        sequence_number=event.sequence_num,
        timestamp=int(event.timestamp * 1000),
        fields=fields,
    )


def _text(value: Any) -> str:
    """Return a value that ought to be a text as one that can be shown; '' for none."""
    return "" if value is None else clean_text(value if isinstance(value, str) else str(value))
