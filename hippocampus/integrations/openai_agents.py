"""Sessions of the OpenAI Agents SDK on Hippocampus. Needs the extra ``[openai-agents]``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hippocampus.errors import BY_SQLSTATE, MemoryNotFoundError
from hippocampus.integrations.extras import missing_library
from hippocampus.integrations.session_events import RECORD, record_event, session_key
from pulse.errors import InvalidInputError, SessionExistsError, SessionNotFoundError
from pulse.event_rows import read_event
from pulse.events import Event
from pulse.postgres.statements import Statements
from pulse.session_service import BATCH_SIZE_MAX

try:
    from agents import SessionSettings
except ModuleNotFoundError as error:
    raise missing_library("openai-agents", error) from error

if TYPE_CHECKING:
    from agents import TResponseInputItem

    from hippocampus.engine import Hippocampus

__all__ = ["HippocampusSession"]

#: The type of the events of items that no participant said: calls, their results, reasoning, instructions.
_ITEM = "openai_item"
_STATEMENTS = Statements("hippocampus.integrations", "openai_agents.sql", errors=BY_SQLSTATE)


class HippocampusSession:
    """A `Session` of the OpenAI Agents SDK: one session of a user::

        async with Hippocampus(url, app="shop") as memory:
            session = HippocampusSession(memory, "ann", "monday")
            await Runner.run(agent, "I'm allergic to peanuts.", session=session)

    Items come back exactly as they were added. The texts of users and assistants among them are turns of the session:
    found by the next search, and consolidated by workers. What other clients of the session said is an item, too.

    An item that is popped, and the items of a session that is cleared, are erased with everything that was extracted
    from them, as `ErasureService` does; this cannot be undone.

    Raises, from every method:
        InvalidInputError: an argument is out of its bounds, or an item is not JSON; nothing was changed.
    """

    def __init__(
        self, memory: Hippocampus, user: str, session_id: str, *, session_settings: SessionSettings | None = None
    ) -> None:
        """Read and write nothing yet; the first item creates the session.

        Args:
            memory: opened in the event loop that all calls come from.
            user: the session belongs to this user of the memory's app.
            session_settings: its `limit` applies where `get_items` is given none.
        """
        self._key = session_key(memory.app, user, session_id)
        self._memory = memory
        self.session_id = session_id
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items in order: all, or the newest `limit` of them; of 0 or less, none."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return [_item(event) for event in await self._newest(limit)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, a thousand in one transaction.

        Raises:
            EventTooLargeError: an item is over the app's limit.
        """
        events = [_event(item) for item in items]
        for start in range(0, len(events), BATCH_SIZE_MAX):
            batch = events[start : start + BATCH_SIZE_MAX]
            try:
                await self._memory.sessions.append(*self._key, batch)
            except SessionNotFoundError:
                with contextlib.suppress(SessionExistsError):
                    await self._memory.sessions.create_session(*self._key[:2], session_id=self._key.session_id)
                await self._memory.sessions.append(*self._key, batch)

    async def pop_item(self) -> TResponseInputItem | None:
        """Erase the newest item and return it; None if there is none. Called twice at once, it returns two items."""
        while newest := await self._newest(1):
            (event,) = newest
            numbers = [event.sequence_num or 0]
            try:
                erased = await self._memory.erasure.erase_events(*self._key, sequence_nums=numbers)
            except SessionNotFoundError:
                return None
            except MemoryNotFoundError:  # cleared and begun again
                continue
            if erased.sequence_nums:
                return _item(event)
        return None

    async def clear_session(self) -> None:
        """Erase the session with its items, its state and what was extracted from it. The next item begins it again."""
        try:
            await self._memory.erasure.erase_session(*self._key)
        except SessionNotFoundError:
            return

    async def _newest(self, limit: int | None) -> list[Event]:
        if limit is not None and limit <= 0:
            return []
        rows = await _STATEMENTS.fetch(self._memory.pool, "newest_items", *self._key, _ITEM, limit)
        return [read_event(*row) for row in rows]


def _event(item: Any) -> Event:
    if not isinstance(item, Mapping):
        raise InvalidInputError(f"an item must be a mapping, not {type(item).__name__}")
    is_said = item.get("role") in ("user", "assistant") and item.get("type", "message") == "message"
    text = _text(item.get("content")) if is_said else ""
    role = item["role"] if is_said else None
    is_plain = item == {"role": role, "content": text}
    return record_event(dict(item), _ITEM, said_by=role, text=text, is_rebuilt=is_plain and bool(text.strip()))


def _item(event: Event) -> TResponseInputItem:
    record = event.actions.other.get(RECORD)
    if record is None:
        text = event.content.get("text") if isinstance(event.content, Mapping) else None
        record = {"role": event.role, "content": text if isinstance(text, str) and text else event.text}
    return cast("TResponseInputItem", record)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    texts = ((part.get("text") or part.get("refusal")) for part in parts if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())
