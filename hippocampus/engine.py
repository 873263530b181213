"""The one object of the library: sessions and memory of one app, on one database."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import UUID, uuid4

from hippocampus.answers import ANSWER_SECONDS, ANSWER_TOKENS, WINDOW_TOKENS, Answer, AnswerService
from hippocampus.by_hand import Edit, GivenFact, MemoryEditor
from hippocampus.context.templates import Template, TemplateName
from hippocampus.context.window import ContextWindow
from hippocampus.context_assembler import RECALL_TOKENS, ContextAssembler
from hippocampus.erasure.service import ErasureService
from hippocampus.errors import BY_SQLSTATE
from hippocampus.facts.ledger import FactLedger
from hippocampus.instructions import InstructionStore
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.memory_service import OpenMemoryService
from hippocampus.messages import CONVERSATION_MIN, MESSAGE_TYPES, Message, Messages, new_messages, read_messages
from hippocampus.names import check_names
from hippocampus.profile import PROFILE_TOKENS, Profile, read_profile
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.rerank import RERANK_SECONDS, Reranker
from hippocampus.retention.archive import MemoryArchive
from hippocampus.retention_manager import MemoryRetentionManager
from hippocampus.search import MemorySearch, SearchFilter, SearchMemoryResult
from hippocampus.store.service import ItemStore
from hippocampus.text.languages import Language
from hippocampus.transfer.given_memories import GivenMemory
from hippocampus.webhooks.service import WebhookService
from pulse import database
from pulse.cells import Cells, require_served
from pulse.database import read_address
from pulse.errors import (
    AppMovingError,
    ConcurrencyConflictError,
    InvalidInputError,
    PulseError,
    SessionExistsError,
    SessionNotFoundError,
    WrongCellError,
)
from pulse.event_rows import read_event
from pulse.postgres.backoff import Backoff
from pulse.postgres.statements import Statements
from pulse.process.counts import COUNTS
from pulse.session_key import SessionKey
from pulse.session_service import BATCH_SIZE_MAX, OpenSessionService

if TYPE_CHECKING:
    from datetime import datetime

    from hippocampus.providers.protocols import Answerer, Embedder, Generator
    from pulse.database import Pool


_STATEMENTS = Statements("hippocampus", "messages.sql", errors=BY_SQLSTATE)
_ATTEMPTS_MAX = 50
_RETRY_SECONDS = 0.005
_RETRY_SECONDS_MAX = 0.5
#: Messages of other writers among which a list is looked for, besides three times its own length.
_READ_MORE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedMessages:
    """The outcome of `Hippocampus.add`.

    Attributes:
        session_id: the session that holds the messages.
        added: how many were appended.
        known: how many the session held already.
    """

    session_id: str
    added: int
    known: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A session at one version, and what it does not hold of a list.

    Attributes:
        may_hold_more: the session does not end with the list, which may be further back.
    """

    version: int
    last_seq: int
    new: list[Message]
    may_hold_more: bool


class Hippocampus:
    """Sessions and memory of one app::

        async with Hippocampus("postgresql://localhost/agents", app="shop") as memory:
            await memory.add("ann", "I'm allergic to peanuts.", session="monday")
            found = await memory.search("ann", "what is she allergic to?")
            window = await memory.context("ann", "a snack?", session="monday", max_tokens=2000)

    The database is migrated (``hippocampus migrate``). Workers on the same database consolidate what is added; a search
    also finds what no worker has reached yet. One object serves any number of tasks of one event loop.

    `add`, `search`, `context`, `recall` and `ask` cover an agent's loop; `remember`, `correct`, `retire` and `confirm`
    are for people. For more, each service is an attribute.
    """

    def __init__(
        self,
        database: Pool | str | Cells,
        *,
        app: str,
        language: Language | None = None,
        embedder: Embedder | Literal["local"] | None = "local",
        schema: str | None = None,
        generator: Generator | Answerer | None = None,
        reranker: Reranker | None = None,
        rerank_seconds: float = RERANK_SECONDS,
    ) -> None:
        """Connect to nothing yet: enter the object, or use `connect`.

        Args:
            database: a URL (``postgresql://…``), a pool of `pulse.create_pool`, which stays the caller's to close, or
                `pulse.Cells`: then the app's own cell is used, even after the app has moved.
            app: the application that all sessions and memories belong to.
            language: of the headers and labels of context windows; None: that of each conversation.
            embedder: must be the one that the workers use: vectors of two models are never compared. None: searches
                compare words alone. It stays the caller's to close.
            schema: the database schema of a URL that names none (``?schema=…``); by default ``public``. A pool has one.
            generator: writes the answers of `ask`; None: they are passages. It stays the caller's to close.
            reranker: reorders the first 50 results of searches, of documents too, and of what windows are packed from;
                None: their own order. It stays the caller's to close.
            rerank_seconds: after which that order stands.

        Raises:
            InvalidInputError: a schema for a pool, or another one than the URL's.
        """
        if isinstance(database, str):
            read_address(database, schema)
        elif schema is not None:
            raise InvalidInputError(
                "a pool has its schema already: give `schema` to `pulse.create_pool` or `pulse.Cells`"
            )
        self._schema = schema
        self.app = app
        self.language = language
        self.embedder: Embedder | None = LocalEmbedder() if isinstance(embedder, str) else embedder
        self.generator = generator
        self.reranker = reranker
        self.rerank_seconds = rerank_seconds
        self._dsn = database if isinstance(database, str) else None
        self._cells = database if isinstance(database, Cells) else None
        self._pool = None if isinstance(database, str | Cells) else database
        self._opened = AsyncExitStack()

    @classmethod
    async def connect(
        cls,
        database: Pool | str | Cells,
        *,
        app: str,
        language: Language | None = None,
        embedder: Embedder | Literal["local"] | None = "local",
        schema: str | None = None,
        generator: Generator | Answerer | None = None,
        reranker: Reranker | None = None,
        rerank_seconds: float = RERANK_SECONDS,
    ) -> Self:
        """Return an object that is connected; `close` it. Arguments as for the class.

        Raises:
            DatabaseUnreachableError: no server, no such database, wrong password.
            SchemaError: the database has no pgvector, or its server is too old.
            WrongCellError: the URL's database does not serve the app.
            PulseError: another project named `hippocampus` is installed too.
        """
        made = cls(
            database,
            app=app,
            language=language,
            embedder=embedder,
            schema=schema,
            generator=generator,
            reranker=reranker,
            rerank_seconds=rerank_seconds,
        )
        return await made.__aenter__()

    async def __aenter__(self) -> Self:
        if self._pool is None and self._cells is not None:
            self._pool = await self._opened.enter_async_context(self._cells.pool(self.app))
        elif self._pool is None and self._dsn is not None:
            pool = await self._opened.enter_async_context(await database.create_pool(self._dsn, schema=self._schema))
            try:
                await require_served(pool, self.app)
            except BaseException:
                await self._opened.aclose()
                raise
            self._pool = pool
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send the notifications that wait; close the pool if it was opened here. Idempotent."""
        if self._pool is None:
            return
        if "sessions" in self.__dict__:
            await self.sessions.close()
        if self._dsn is not None or self._cells is not None:
            for name in _SERVICES & self.__dict__.keys():
                del self.__dict__[name]
            self._pool = None
            await self._opened.aclose()

    @property
    def pool(self) -> Pool:
        """The pool of connections.

        Raises:
            PulseError: the object is not connected.
        """
        if self._pool is None:
            raise PulseError("not connected: use `async with Hippocampus(…)` or `await Hippocampus.connect(…)`")
        return self._pool

    @property
    def dsn(self) -> str | None:
        """The URL that the object was made from; None: it was made from a pool."""
        return self._dsn

    @property
    def schema(self) -> str | None:
        """The schema that was given beside the URL; None: the URL names it, or it is ``public``, or a pool has it."""
        return self._schema

    @cached_property
    def sessions(self) -> OpenSessionService:
        """Sessions, their events and their state."""
        return OpenSessionService(self.pool)

    @cached_property
    def memory(self) -> OpenMemoryService:
        """Memories and facts: searched and listed; consolidation jobs."""
        return OpenMemoryService(self.pool, self.embedder, reranker=self.reranker, rerank_seconds=self.rerank_seconds)

    @cached_property
    def assembler(self) -> ContextAssembler:
        """Context windows."""
        return ContextAssembler(
            self.pool,
            self.embedder,
            language=self.language,
            reranker=self.reranker,
            rerank_seconds=self.rerank_seconds,
        )

    @cached_property
    def answers(self) -> AnswerService:
        """Answers to questions."""
        return AnswerService(self.assembler, self.generator)

    @cached_property
    def facts(self) -> FactLedger:
        """What consolidation decided about facts: candidates, merged keys, and which keys hold many values."""
        return FactLedger(self.pool)

    @cached_property
    def instructions(self) -> InstructionStore:
        """Instructions for agents under version control, and proposals for them."""
        return InstructionStore(self.pool)

    @cached_property
    def retention(self) -> MemoryRetentionManager:
        """How memories fade, and the clean-up that archives the weak ones."""
        return MemoryRetentionManager(self.pool)

    @cached_property
    def archive(self) -> MemoryArchive:
        """Pinned and archived memories."""
        return MemoryArchive(self.pool)

    @cached_property
    def erasure(self) -> ErasureService:
        """Erasure on request: of a user, a session, events, a memory or a fact."""
        return ErasureService(self.pool)

    @cached_property
    def webhooks(self) -> WebhookService:
        """Endpoints that receive the app's events, and what became of the deliveries."""
        return WebhookService(self.pool)

    @cached_property
    def editor(self) -> MemoryEditor:
        """What people write: memories and facts by hand."""
        return MemoryEditor(self.pool)

    @cached_property
    def items(self) -> ItemStore:
        """Items under keys in namespaces: replaced by key, returned exactly, never fading."""
        return ItemStore(self.pool, self.app)

    @cached_property
    def knowledge(self) -> KnowledgeService:
        """Corpora of documents: added, searched, and answers from them with citations."""
        return KnowledgeService(
            self.pool,
            self.app,
            self.embedder,
            reranker=self.reranker,
            rerank_seconds=self.rerank_seconds,
            generator=self.generator,
        )

    @cached_property
    def _search(self) -> MemorySearch:
        return MemorySearch(self.pool, self.embedder, reranker=self.reranker, rerank_seconds=self.rerank_seconds)

    async def add(
        self,
        user: str,
        messages: Messages,
        *,
        session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AddedMessages:
        """Append what is new of a conversation to a session, which is created if it does not exist.

        The longest beginning of `messages` that the session's messages end with is known; what follows is appended. If
        there is none, as after other writers, a list of three or more whose first two messages the session holds is the
        whole conversation: its longest beginning that the session holds in this order is known. State and run events
        do not count. A shorter list is a new turn, even if it repeats an old one. A message with an ``id`` is outside
        of this order: it is stored once per session, wherever it stands.

        Added by several processes at once, a list is stored once. Give ids where messages arrive out of order. A
        message without one gets an id made of its number in the session and of what it says, so that it stays
        recognised after its event was erased.

        Args:
            messages: a text of the user, a message, or a list of messages with ``role`` (user, assistant, tool,
                function; system and developer messages instruct the model and are left out) and ``content`` (a text or
                content parts, or none for the result of a tool; an assistant's message without content, refusal or
                tool calls is left out). Optional: ``id``, ``name``, ``timestamp`` or ``created_at`` (seconds since
                1970, ISO 8601 or a datetime), ``tool_calls``, ``metadata``; other keys are kept with the event.
            session: its id; None creates a session.
            metadata: added to that of each message that is appended; `search` can filter by it.

        Raises:
            InvalidInputError: a message has no known role, no content or a time that cannot be read, two have the same
                id, or the session is blank; nothing was written.
            ConcurrencyConflictError: other writers appended first each time; add the list again later.
            AppMovingError, WrongCellError: the app is being moved, or has moved, to another cell; with `pulse.Cells`
                the call waits, and continues there.
            EventConflictError: an id is taken by a message with other content.
            EventTooLargeError: a message is over the app's limit.
        """
        given = read_messages(messages, metadata)
        key = SessionKey(self.app, user, _session_id(session) or str(uuid4()))
        added = await self._append(key, given)
        return AddedMessages(session_id=key.session_id, added=added, known=len(given) - added)

    async def search(
        self,
        user: str,
        query: str,
        *,
        session: str | None = None,
        limit: int = 10,
        metadata: Mapping[str, Any] | None = None,
        asked_at: datetime | None = None,
        time_zone: str | None = None,
    ) -> list[SearchMemoryResult]:
        """Find what matches a query best among a user's memories, facts and messages, the best first.

        Args:
            session: only what was said in this session, or was extracted from it.
            limit: 1 to 1,000.
            metadata: only messages and memories with these metadata, and facts extracted from such messages.
            asked_at: when the query is asked: 'yesterday' is the day before. None: now.
            time_zone: whose days it means, such as Asia/Tokyo. None: the zone of `asked_at`, or UTC.

        Raises:
            InvalidInputError: the query is blank, or an argument is out of its bounds.
            SessionNotFoundError: the user has no such session.
        """
        found = await self._search.search(
            app_name=self.app,
            user_id=user,
            query=query,
            limit=limit,
            narrow=SearchFilter(session_id=_session_id(session), metadata=metadata),
            asked_at=asked_at,
            time_zone=time_zone,
        )
        return list(found.memories)

    async def context(
        self,
        user: str,
        query: str,
        *,
        session: str | None = None,
        max_tokens: int = 8000,
        system_prompt: str | None = None,
        language: Language | None = None,
        template: Template | TemplateName = "markdown",
        profile: bool = False,
        stable: bool = False,
        documents: float = 0,
        corpora: Collection[str] | None = None,
        roles: Collection[str] = (),
        asked_at: datetime | None = None,
        time_zone: str | None = None,
    ) -> ContextWindow:
        """Pack what the next turn of a session needs into a token budget; `ContextWindow.text` is the prompt.

        Args:
            query: what is searched for, usually the user's last message.
            session: whose newest messages are the history; None, and a session that `add` has not created yet: no
                history.
            system_prompt: begins the window, whole.
            language: of headers and labels; None: the object's.
            template: plain, markdown, xml, messages (then `ContextWindow.messages` is the prompt), or your own.
            profile: begin the facts with the user's profile.
            stable: begin with what does not depend on the query, for a provider's prompt cache; see
                `ContextAssembler.assemble`.
            documents: the share of the budget, up to 1, for documents that match; 0: none. Their items have the
                citation as metadata.
            corpora: where these documents are; None: all that the user may read, with these `roles`.
            asked_at, time_zone: as for `search`.

        Raises:
            CorpusNotFoundError: there is no corpus of one of the names.
            ContextBudgetError: the system prompt alone is over the budget.
            InvalidInputError: the session is blank, or an argument is out of its bounds.
        """
        return await self.assembler.assemble(
            app_name=self.app,
            user_id=user,
            session_id=_session_id(session),
            query=query,
            system_prompt=system_prompt,
            max_tokens=max_tokens,
            language=language,
            template=template,
            profile=profile,
            stable=stable,
            documents=self.knowledge.part(documents, corpora=corpora, roles=roles) if documents else None,
            asked_at=asked_at,
            time_zone=time_zone,
            may_be_new=True,
        )

    async def profile(
        self,
        user: str,
        *,
        max_tokens: int = PROFILE_TOKENS,
        language: Language | None = None,
        as_of: datetime | None = None,
    ) -> Profile:
        """Return what is known of a user, on one page, with its sources; see `hippocampus.profile.read_profile`."""
        return await read_profile(
            self.pool, app_name=self.app, user_id=user, max_tokens=max_tokens, language=language, as_of=as_of
        )

    async def recall(
        self,
        user: str,
        query: str,
        *,
        max_tokens: int = RECALL_TOKENS,
        language: Language | None = None,
        template: Template | TemplateName = "markdown",
        asked_at: datetime | None = None,
        time_zone: str | None = None,
    ) -> str:
        """Return what is known of a user for a query, as one text for an agent: facts, then passages with their dates.

        Empty if nothing is known.

        Args:
            query: what is searched for. Blank: what is known without a search.
            max_tokens: which the text never exceeds.
            language, template: as for `context`; asked_at, time_zone: as for `search`.

        Raises:
            InvalidInputError: an argument is out of its bounds.
        """
        window = await self.assembler.recall(
            app_name=self.app,
            user_id=user,
            query=query,
            max_tokens=max_tokens,
            language=language,
            template=template,
            asked_at=asked_at,
            time_zone=time_zone,
        )
        return window.text

    async def ask(
        self,
        user: str,
        question: str,
        *,
        language: Language | None = None,
        max_tokens: int = WINDOW_TOKENS,
        max_answer_tokens: int = ANSWER_TOKENS,
        max_seconds: float = ANSWER_SECONDS,
        asked_at: datetime | None = None,
        time_zone: str | None = None,
    ) -> Answer:
        """Answer a question from what is remembered of a user, with citations; see `AnswerService.ask`.

        Args:
            language: of the answer; None: that of the question.
            max_tokens: the size of the window that the generator reads; max_answer_tokens: that of the answer.
            max_seconds: for everything.
            asked_at, time_zone: as for `search`.

        Raises:
            InvalidInputError: an argument is out of its bounds.
            ProviderError: the generator did not answer.
        """
        return await self.answers.ask(
            app_name=self.app,
            user_id=user,
            question=question,
            language=language,
            max_tokens=max_tokens,
            max_answer_tokens=max_answer_tokens,
            max_seconds=max_seconds,
            asked_at=asked_at,
            time_zone=time_zone,
        )

    async def remember(self, user: str, what: str | GivenMemory | GivenFact, *, by: str | None = None) -> Edit:
        """Remember a text or a fact of a user by hand; see `MemoryEditor.remember`.

        Args:
            what: a text, or `GivenFact`, or `GivenMemory` for a text with a name, metadata or an importance.
            by: who says so; kept with it.
        """
        return await self.editor.remember(self.app, user, what, by=by)

    async def correct(self, user: str, target: UUID, new: Any, *, by: str | None = None) -> Edit:
        """Replace what a memory says, or the value of a fact, from now on; see `MemoryEditor.correct`."""
        return await self.editor.correct(self.app, user, target, new, by=by)

    async def retire(self, user: str, target: UUID, *, by: str | None = None) -> Edit:
        """Let a memory no longer be found, or a fact no longer hold; its history stays. See `MemoryEditor.retire`."""
        return await self.editor.retire(self.app, user, target, by=by)

    async def confirm(self, user: str, target: UUID, *, by: str | None = None) -> Edit:
        """Confirm that a memory or a fact is right; see `MemoryEditor.confirm`."""
        return await self.editor.confirm(self.app, user, target, by=by)

    async def _append(self, key: SessionKey, messages: list[Message]) -> int:
        """Append the messages that a session does not hold, a thousand in one transaction; return how many."""
        added = attempts = 0
        # Full jitter: writers that wait equally long conflict again.
        backoff = Backoff(_RETRY_SECONDS, _RETRY_SECONDS_MAX)
        while True:
            try:
                held = await self._held(key, messages)
                version, number = held.version, held.last_seq
                for start in range(0, len(held.new), BATCH_SIZE_MAX):
                    new = held.new[start : start + BATCH_SIZE_MAX]
                    batch = [each.numbered(number + place) for place, each in enumerate(new, 1)]
                    appended = await self.sessions.append(*key, batch, expected_version=version)
                    added += len(appended.new_events)
                    version, number = appended.version, appended.last_sequence_num
                    attempts = 0
            except (ConcurrencyConflictError, SessionNotFoundError) as error:
                # Another process was first: what it appended may be the same.
                attempts += 1
                if attempts >= _ATTEMPTS_MAX:
                    raise ConcurrencyConflictError(
                        f"session {key.session_id!r}: lost the race to other writers {attempts} times in a row;"
                        " retry later"
                    ) from error
                COUNTS.conflict_retries += 1
                await backoff.wait()
            except (AppMovingError, WrongCellError):
                attempts += 1
                if self._cells is None or attempts >= _ATTEMPTS_MAX:
                    raise
                await backoff.wait()
            else:
                return added

    async def _held(self, key: SessionKey, messages: list[Message]) -> _Held:
        """Return what a session does not hold of a list; create the session if there is none."""
        held = await self._read(key, messages, len(messages))
        if held is None:
            taken = None
            try:
                await self.sessions.create_session(*key[:2], session_id=key.session_id)
            except SessionExistsError as error:
                # Another process created it. Where it is still not found, its name is taken by a memory's own thread.
                taken = error
            held = await self._read(key, messages, len(messages))
            if held is None:
                raise taken or key.not_found()
        if held.may_hold_more:
            limit = 4 * len(messages) + _READ_MORE
            held = await self._read(key, messages, limit, is_last=True) or held
        return held

    async def _read(
        self, key: SessionKey, messages: list[Message], limit: int, *, is_last: bool = False
    ) -> _Held | None:
        """Compare a list with the newest messages of a session; None if there is none."""
        ids = [each.id for each in messages if each.id is not None]
        row = await _STATEMENTS.fetchrow(self.pool, "read_conversation", *key, ids, MESSAGE_TYPES, limit)
        if row is None:
            return None
        newest, identified = ([read_event(*each) for each in row[name] or ()] for name in ("newest", "identified"))
        reads_all = is_last or len(newest) < limit or len(messages) < CONVERSATION_MIN
        new = new_messages(messages, newest, identified, anywhere=reads_all)
        is_unmatched = sum(each.id is None for each in new) == len(messages) - len(ids)
        return _Held(
            version=row["version"], last_seq=row["last_seq"], new=new, may_hold_more=is_unmatched and not reads_all
        )


def _session_id(session: str | None) -> str | None:
    """Return the id of a session without surrounding blanks; None for none.

    Raises:
        InvalidInputError: it is blank or not a text.
    """
    check_names(session=session)
    if session is not None and not session.strip():
        raise InvalidInputError("session is blank: give the id of a session, or None")
    return None if session is None else session.strip()


_SERVICES = frozenset(name for name, value in vars(Hippocampus).items() if isinstance(value, cached_property))
