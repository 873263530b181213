"""Conversations and recall for pydantic-ai on Hippocampus. Needs the extra ``[pydantic-ai]``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hippocampus.context_assembler import RECALL_TOKENS
from hippocampus.errors import BY_SQLSTATE
from hippocampus.integrations.extras import missing_library
from hippocampus.integrations.session_events import RECORD, record_event, session_key
from hippocampus.search import QUERY_LENGTH_MAX
from pulse.errors import ConcurrencyConflictError, SessionExistsError, SessionNotFoundError
from pulse.events import Event, EventActions
from pulse.postgres.backoff import Backoff
from pulse.postgres.json_values import decode_body, escape_state, unescape
from pulse.postgres.statements import Statements
from pulse.session_service import BATCH_SIZE_MAX

try:
    from pydantic import TypeAdapter
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        TextPart,
        UserPromptPart,
    )
except ModuleNotFoundError as error:
    raise missing_library("pydantic-ai", error) from error

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import RunContext

    from hippocampus.engine import Hippocampus
    from pulse.session_key import SessionKey

__all__ = ["HippocampusConversationStore", "RecallMemory"]

#: The types of the events of a save: its links, and a message that no participant said.
_SAVED = "pydantic_ai_saved"
_MESSAGE = "pydantic_ai_message"
_ENTRY_TYPES = (_MESSAGE, "user_message", "assistant_message")
#: The key of the session's state that holds the conversation's record.
_RECORD_KEY = "pydantic_ai"
#: What the conversation waits for, with the revision of the record that it belongs to. It quotes the last message, with
#: whose event it is stored: erased with it, an older value is left, of another revision.
_WAITING_KEY = "pydantic_ai:waiting"
#: Events that are read first for a message of a bounded history.
_READ_AHEAD = 50
_ATTEMPTS_MAX = 50
_RETRY_SECONDS = 0.005
_RETRY_SECONDS_MAX = 0.5
#: Newest entries whose conversation is remembered, so that no other session is searched for them.
_KNOWN_MAX = 1000
_STATEMENTS = Statements("hippocampus.integrations", "pydantic_ai.sql", errors=BY_SQLSTATE)
_RECORDS: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


@dataclass(slots=True)
class _Line:
    """What was read of the events of a session: messages as JSON by entry, and the entry before each."""

    session_id: str
    messages: dict[str, Any] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    before: int = 0

    def walk(self, entry_id: str, limit: int | None) -> tuple[list[str], bool]:
        """Return the entries up to this one, the newest first, and whether their beginning or the limit was reached."""
        found: list[str] = []
        current: str | None = entry_id
        while current is not None and (limit is None or len(found) < limit):
            if current not in self.parents:
                return found, False
            # A message that was erased is left out; those before it are still linked.
            if current in self.messages:
                found.append(current)
            current = self.parents[current]
        return found, True

    def entries(self, ids: Sequence[str]) -> list[ConversationEntry]:
        """Return entries by their ids, the newest first, as the library has them, the oldest first."""
        ids = list(reversed(ids))
        messages = ModelMessagesTypeAdapter.validate_json(json.dumps([self.messages[each] for each in ids]))
        pairs = zip(ids, messages, strict=True)
        return [ConversationEntry(id=each, parent_id=self.parents[each], message=message) for each, message in pairs]


class HippocampusConversationStore(ConversationStore):
    """A `ConversationStore` of pydantic-ai: the conversations of one user::

        async with Hippocampus(url, app="shop") as memory:
            store = HippocampusConversationStore(memory, "ann")
            conversation = await store.load("monday") or Conversation(conversation_id="monday")
            result = await agent.run("I'm allergic to peanuts.", conversation=conversation)
            await store.save(result)

    A conversation is the user's session of the same id. Messages come back as they were saved. What the user and the
    model said are turns of the session: found by the next search, and consolidated by workers. A branch that a
    conversation has left stays remembered, since it was said; a fork has copies of its history that are not turns.

    `delete` erases the conversation's session with its messages and everything that was extracted from them; forks keep
    their history. A message that was erased by itself is left out of the history.

    Raises, from every method:
        InvalidInputError: a conversation's id is not valid for a session, or a value is not JSON; nothing was changed.
    """

    def __init__(self, memory: Hippocampus, user: str) -> None:
        """Read and write nothing yet.

        Args:
            memory: opened in the event loop that all calls come from.
            user: only this user's conversations, of the memory's app, are read and written, whatever their scope.
        """
        self._memory = memory
        self._user = user
        self._conversations: dict[str, str] = {}
        session_key(memory.app, user, "any")

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """See the base class."""
        _, record = await self._read_version(self._key(conversation_id))
        if record is not None and record.head_id is not None:
            self._remember(record.head_id, conversation_id)
        return record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """See the base class."""
        wanted = None if scope is None else escape_state(scope)
        rows = await _STATEMENTS.fetch(self._memory.pool, "records", self._memory.app, self._user, wanted, limit)
        return [_read_record(unescape(row["record"]), unescape(row["waiting"])) for row in rows]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """See the base class. Up to 999 new entries are stored together with the record, in one transaction."""
        key = self._key(record.conversation_id)
        backoff = Backoff(_RETRY_SECONDS, _RETRY_SECONDS_MAX)
        for _ in range(_ATTEMPTS_MAX):
            version, stored = await self._read_version(key)
            if (stored.revision if stored is not None else None) != expected_revision:
                raise ConversationConflict(record.conversation_id)
            shared = await self._shared(record, new_entries, stored)
            events = [_saved(record, shared, new_entries)]
            events += [_event(entry, is_said=False) for entry in shared]
            events += [_event(entry, is_said=True) for entry in new_entries]
            events[-1] = _waiting(events[-1], record)
            try:
                await self._append(key, events, version)
            except (ConcurrencyConflictError, SessionExistsError, SessionNotFoundError):
                # Another process was first: it may have saved the conversation, or only appended to the session.
                await backoff.wait()
            else:
                return
        raise ConversationConflict(record.conversation_id)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """See the base class. The session is erased with everything that was extracted from it."""
        key = self._key(conversation_id)
        backoff = Backoff(_RETRY_SECONDS, _RETRY_SECONDS_MAX)
        for _ in range(_ATTEMPTS_MAX):
            version, stored = await self._read_version(key)
            if stored is None or stored.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            try:
                await _STATEMENTS.execute(self._memory.pool, "erase_conversation", *key, version)
            except (ConcurrencyConflictError, SessionNotFoundError):
                await backoff.wait()
            else:
                return
        raise ConversationConflict(conversation_id)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """See the base class.

        Raises:
            KeyError: no conversation of the user has the entry, or it was erased.
        """
        found = await self.read_history(entry_id, limit=1)
        if not found or found[-1].id != entry_id:
            raise KeyError(entry_id)
        return found[-1]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """See the base class. A history is one statement, a bounded one usually as well.

        Raises:
            KeyError: no conversation of the user has the entry.
        """
        if head_id is None or limit == 0:
            return []
        conversation_id = self._conversations.get(head_id)
        found = await self._read_line(conversation_id, head_id, limit) if conversation_id is not None else None
        # Another process may have deleted the conversation, and a fork may hold the entry.
        found = found or await self._read_line(None, head_id, limit)
        if found is None:
            raise KeyError(head_id)
        return found

    async def _read_line(
        self, session_id: str | None, head_id: str, limit: int | None
    ) -> list[ConversationEntry] | None:
        """Read a history from a session, or from whichever has its last entry; None if there is none."""
        rows_max = None if limit is None else 2 * limit + _READ_AHEAD
        line: _Line | None = None
        while True:
            names = (self._memory.app, self._user, session_id if line is None else line.session_id, head_id)
            types = (*_ENTRY_TYPES, _SAVED)
            before = None if line is None else line.before
            rows = await _STATEMENTS.fetch(self._memory.pool, "line", *names, types, before, rows_max)
            if line is None:
                if not rows:
                    return None
                line = _Line(rows[0]["session_id"])
            for row in rows:
                line.before = row["sequence_num"]
                if row["event_type"] == _SAVED:
                    links = decode_body(row["content"])["links"]
                    line.parents.update((entry, parent) for entry, parent in links)
                else:
                    message = decode_body(row["actions"]).get(RECORD)
                    if message is not None:
                        line.messages[row["id"]] = message
            ids, is_complete = line.walk(head_id, limit)
            if is_complete:
                return line.entries(ids)
            if rows_max is None or len(rows) < rows_max:
                return None
            rows_max *= 2

    async def _shared(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], stored: ConversationRecord | None
    ) -> list[ConversationEntry]:
        """Return the entries of other conversations that a record's history begins with.

        Raises:
            ConversationConflict: the history begins with an entry that does not exist.
        """
        new = {entry.id for entry in new_entries}
        own = {stored.head_id} if stored is not None else set()
        anchors = {record.head_id, *(entry.parent_id for entry in new_entries)} - new - own - {None}
        shared: dict[str, ConversationEntry] = {}
        for anchor in sorted(each for each in anchors if each is not None):
            if await self._read_line(record.conversation_id, anchor, 1) is not None:
                continue
            line = await self._read_line(None, anchor, None)
            if line is None:
                raise ConversationConflict(record.conversation_id)
            shared |= {entry.id: entry for entry in line}
        return list(shared.values())

    async def _append(self, key: SessionKey, events: list[Event], version: int | None) -> None:
        for start in range(0, len(events), BATCH_SIZE_MAX):
            batch = events[start : start + BATCH_SIZE_MAX]
            if version is None:
                version = (await self._memory.sessions.create_session(*key[:2], session_id=key.session_id)).version
            version = (await self._memory.sessions.append(*key, batch, expected_version=version)).version

    async def _read_version(self, key: SessionKey) -> tuple[int | None, ConversationRecord | None]:
        keys = [_RECORD_KEY, _WAITING_KEY]
        session = await self._memory.sessions.get_session(*key, num_recent_events=0, state_keys=keys)
        if session is None:
            return None, None
        record, waiting = (session.state.get(each) for each in keys)
        return session.version, None if record is None else _read_record(record, waiting)

    def _key(self, conversation_id: str) -> SessionKey:
        return session_key(self._memory.app, self._user, conversation_id)

    def _remember(self, entry_id: str, conversation_id: str) -> None:
        if len(self._conversations) >= _KNOWN_MAX:
            self._conversations.clear()
        self._conversations[entry_id] = conversation_id


@dataclass
class RecallMemory(AbstractCapability[Any]):
    """A capability that puts what is known of a user before the newest message, for the request alone::

        agent = Agent(model, capabilities=[RecallMemory(memory, "ann")])

    It is not part of the run's messages: a store that saves them does not take it for something that was said.

    Attributes:
        max_tokens: which what is known never exceeds.
    """

    memory: Hippocampus
    user: str
    max_tokens: int = RECALL_TOKENS
    _recalled: tuple[str, str] | None = field(default=None, init=False, repr=False)

    async def for_run(self, ctx: RunContext[Any]) -> RecallMemory:
        """Return a copy for a run, which searches once for each message of the user."""
        return replace(self)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Insert what is known before the newest message of the user; see the base class."""
        messages = list(request_context.messages)
        newest = next((place for place in reversed(range(len(messages))) if _prompts(messages[place])), None)
        if newest is None:
            return request_context
        query = _said(messages[newest])[:QUERY_LENGTH_MAX]
        if self._recalled is None or self._recalled[0] != query:
            self._recalled = query, await self.memory.recall(self.user, query, max_tokens=self.max_tokens)
        if self._recalled[1]:
            known = f"<memory>\n{self._recalled[1]}\n</memory>"
            messages.insert(newest, ModelRequest(parts=[UserPromptPart(content=known)]))
            request_context.messages = messages
        return request_context


def _read_record(stored: Mapping[str, Any], waiting: Mapping[str, Any] | None) -> ConversationRecord:
    current = waiting is not None and waiting["revision"] == stored["revision"]
    requests = waiting["requests"] if current and waiting is not None else None
    return _RECORDS.validate_json(json.dumps({**stored, "deferred_tool_requests": requests}))


def _waiting(event: Event, record: ConversationRecord) -> Event:
    """Return an event that also stores what the conversation waits for, if it does."""
    if record.deferred_tool_requests is None:
        return event
    requests = _RECORDS.dump_python(record, mode="json")["deferred_tool_requests"]
    delta = {**event.actions.state_delta, _WAITING_KEY: {"revision": record.revision, "requests": requests}}
    return replace(event, actions=EventActions(state_delta=delta, other=event.actions.other))


def _saved(
    record: ConversationRecord, shared: Sequence[ConversationEntry], new_entries: Sequence[ConversationEntry]
) -> Event:
    """Return the event that stores a record, and which entry is before each of those that follow.

    The links are not kept with the messages, whose erasure would cut the history.
    """
    links = [(entry.id, entry.parent_id) for entry in (*shared, *new_entries)]
    dumped = _RECORDS.dump_python(replace(record, deferred_tool_requests=None), mode="json")
    actions = EventActions(state_delta={_RECORD_KEY: dumped})
    return Event(author="agent", event_type=_SAVED, content={"links": links}, actions=actions)


def _event(entry: ConversationEntry, *, is_said: bool) -> Event:
    (message,) = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
    said_by = "user" if isinstance(entry.message, ModelRequest) else "assistant"
    return record_event(
        message,
        _MESSAGE,
        said_by=said_by if is_said else None,
        text=_said(entry.message),
        id=entry.id,
        timestamp=_time(entry.message),
    )


def _time(message: ModelMessage) -> float | None:
    time = message.timestamp
    return time.timestamp() if time is not None and time.tzinfo is not None else None


def _prompts(message: ModelMessage) -> list[UserPromptPart]:
    return [part for part in message.parts if isinstance(part, UserPromptPart)]


def _said(message: ModelMessage) -> str:
    """Return the words of the user or the model in a message."""
    if isinstance(message, ModelResponse):
        return "".join(part.content for part in message.parts if isinstance(part, TextPart))
    contents = (part.content for part in _prompts(message))
    pieces = (piece for content in contents for piece in ([content] if isinstance(content, str) else content))
    texts = (piece if isinstance(piece, str) else getattr(piece, "content", None) for piece in pieces)
    return "\n".join(text for text in texts if isinstance(text, str))
