"""The timeline of a conversation: messages, thoughts and tool calls, in the order in which they were stored.

A conversation is a session; its events are read page by page, and shown as items:

    event               item
    user_message        user_message        content; parts, if it has images or files
    assistant_message   assistant_message   content
    thought             thought             content; a blank one is left out
    act                 tool_call           toolName, toolInput
    observe             tool_result         toolName, toolOutput, isError

What a run had streamed when it failed or was cancelled has the field isPartial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulse.errors import InvalidInputError
from pulse.event_rows import read_event
from pulse.event_types import MESSAGE_EVENT_TYPES, TIMELINE_EVENT_TYPES
from pulse.events import Event, message_text
from pulse.message_parts import media_of
from pulse.postgres.json_values import clean_text
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements
from pulse.session_key import SessionKey

if TYPE_CHECKING:
    from pulse.database import Pool

PAGE_SIZE_MAX = 1000
_STATEMENTS = Statements("pulse", "timeline.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineItem:
    """One item.

    Attributes:
        id: the message's id if the event has one, else ``{event_type}-{sequence_num}``.
        timestamp: when it happened, in milliseconds since 1970.
        fields: the further fields of the item's type, by their names on the wire.
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
        next_cursor: the `after_sequence` of the next page; None after the last, and for pages that go backwards.
        previous_cursor: the `before_sequence` of the previous page; None before the first, and for pages that go
            forwards.
    """

    conversation_id: str
    items: Sequence[TimelineItem]
    next_cursor: int | None
    previous_cursor: int | None = None


class TimelineService:
    """Reads timelines."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

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
            after_sequence: only events past this number.
            before_sequence: the newest events before this number; `after_sequence` is then ignored.
            limit: 1 to 1,000 events; blank thoughts are left out of the page.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        if after_sequence < 0:
            raise InvalidInputError(f"after_sequence must be at least 0, not {after_sequence}")
        check_limit(limit, PAGE_SIZE_MAX)
        is_forwards = before_sequence is None
        key = SessionKey(app_name, user_id, conversation_id.strip())
        row = await _STATEMENTS.fetchrow(
            self._pool,
            "list_timeline" if is_forwards else "list_timeline_before",
            *key,
            after_sequence if before_sequence is None else before_sequence,
            limit + 1,
            sorted(TIMELINE_EVENT_TYPES),
        )
        if row is None:
            raise key.not_found()
        events = [read_event(*fields) for fields in row["events"] or ()]
        shown = events[:limit] if is_forwards else events[-limit:]
        # Where the next page begins, if there is one.
        end = shown[-1 if is_forwards else 0].sequence_num if len(events) > limit else None
        return ConversationTimeline(
            conversation_id=key.session_id,
            items=[item for item in map(timeline_item, shown) if item is not None],
            next_cursor=end if is_forwards else None,
            previous_cursor=None if is_forwards else end,
        )


def timeline_item(event: Event) -> TimelineItem | None:
    """Return the item of a stored event; None for a blank thought or an event that a timeline does not show."""
    content = event.content if isinstance(event.content, Mapping) else {}
    shown: TimelineItem | None = None
    match event.event_type:
        case "user_message" | "assistant_message":
            media = {"parts": found} if (found := media_of(event.content)) else {}
            shown = _item(event, event.event_type, {"content": message_text(event.content) or "", **media})
        case "thought":
            text = _text(content.get("thought")) or message_text(event.content) or ""
            shown = _item(event, "thought", {"content": text}) if text.strip() else None
        case "act":
            fields = {
                "toolName": _text(content.get("tool_name")),
                "toolInput": content.get("tool_input", content.get("tool_args")),
            }
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
    named = _text(event.content.get("message_id")) if is_message else ""
    if isinstance(event.content, Mapping) and event.content.get("partial") is True:
        fields = {**fields, "isPartial": True}
    return TimelineItem(
        id=named or f"{event.event_type}-{event.sequence_num}",
        type=kind,
        sequence_number=event.sequence_num,
        timestamp=int(event.timestamp * 1000),
        fields=fields,
    )


def _text(value: Any) -> str:
    """Return a value as text; '' for None."""
    return "" if value is None else clean_text(value if isinstance(value, str) else str(value))
