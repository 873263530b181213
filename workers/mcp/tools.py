"""The tools: their arguments, their answers, and what each does.

Every answer is bounded: texts are cut at `TEXT_MAX` characters, and an answer ends near `ANSWER_MAX`. `truncated` says
that something was cut or left out, `next_cursor` where to continue. No argument names an app or a user.
"""

# Annotations are evaluated: pydantic reads those of the models.

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from mcp.types import ToolAnnotations
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hippocampus.answers import QUESTION_LENGTH_MAX, AnsweredBy
from hippocampus.http.fields import AskedAt, Moment, TimeZone
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.records import FactType, Importance
from hippocampus.search import SearchFilter, SearchMemoryResult, Source
from hippocampus.transfer.given_memories import GivenMemory
from pulse.api_keys import Role
from pulse.errors import InvalidInputError
from pulse.http.edge.schemas import Escaped, Id, Name
from pulse.postgres import cursors
from workers.mcp.caller import Caller
from workers.telemetry import overview
from workers.telemetry.discovery import SEEN_SECONDS_MAX

#: Characters of one text in an answer, and of all texts of an answer together: about 10,000 tokens of English.
TEXT_MAX = 2_000
ANSWER_MAX = 40_000
#: Turns that explain one memory, at most.
TURNS_SHOWN_MAX = 50
_TURNS_MAX = 200
_CONTENT_MAX = 10_000
_TURN_MAX = 100_000
_NO_WORKER = (
    "The turns are stored, and found by search. No worker runs that extracts summaries and facts from them:"
    " `hippocampus up --detach` starts all of them."
)
#: Clients give a call about a minute.
_ANSWER_SECONDS_MAX = 50.0

#: What is found: a memory that was extracted or given, a fact, or a turn of a conversation.
Kind: TypeAlias = Literal["memory", "fact", "turn"]
_SOURCES: dict[Kind, Source] = {"memory": "memory", "fact": "fact", "turn": "message"}
_KINDS: dict[Source, Kind] = {source: kind for kind, source in _SOURCES.items()}


class Arguments(BaseModel):
    """The arguments of a tool. Those that it does not describe are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """The answer of a tool."""

    model_config = ConfigDict(frozen=True)

    def shown(self) -> str:
        """Return the answer for clients that read no structured content."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))


class _Budget:
    """The characters that are left of an answer."""

    def __init__(self) -> None:
        self.left = ANSWER_MAX
        self.was_cut = False

    def cut(self, text: str) -> str:
        """Return a text, shortened if it is long, and count it."""
        if len(text) > TEXT_MAX:
            self.was_cut = True
            text = text[: TEXT_MAX - 1] + "…"
        self.left -= len(text)
        return text

    def is_spent(self) -> bool:
        """Return whether nothing more may be added, and note that something is left out."""
        self.was_cut = self.was_cut or self.left <= 0
        return self.left <= 0


def _from_text(value: Any) -> Any:
    """Read a list that a client sent as a text with JSON in it."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError("this must be a list") from None
    return value


class SearchArguments(Arguments):
    """The arguments of search_memory."""

    query: Annotated[str, Field(min_length=1, max_length=32_768, description="What to look for, in plain words.")]
    limit: Annotated[int, Field(ge=1, le=50, description="How many results at most.")] = 10
    kinds: Annotated[
        list[Kind] | None, BeforeValidator(_from_text), Field(min_length=1, description="Only these; all by default.")
    ] = None
    since: Annotated[Moment | None, Field(description="Only what was said at this time or later.")] = None
    until: Annotated[Moment | None, Field(description="Only what was said before this time.")] = None
    asked_at: AskedAt = None
    time_zone: TimeZone = None


class Hit(Answer):
    """One result of a search."""

    id: Annotated[UUID, Field(description="For explain_memory and forget_memory.")]
    kind: Kind
    type: Annotated[str, Field(description="Of a memory or a fact its type, of a turn who speaks.")]
    content: str
    score: Annotated[float, Field(description="0 to 1, in which order the results are.")]
    occurred_at: datetime | None
    session_id: str | None


class Found(Answer):
    """What a search found, the best first."""

    results: list[Hit]
    truncated: Annotated[bool, Field(description="Whether a text was cut or a result left out, to be short.")]
    note: Annotated[str | None, Field(description="Why the search was weaker than usual, if it was.")] = None


async def search_memory(caller: Caller, given: SearchArguments) -> Found:
    """Find what matches best among memories, facts and turns."""
    found = await caller.services.search.search(
        app_name=caller.app_name,
        user_id=caller.user_id,
        query=given.query,
        limit=given.limit,
        narrow=_narrowed(given),
        asked_at=given.asked_at,
        time_zone=given.time_zone,
    )
    budget = _Budget()
    results: list[Hit] = []
    for each in found.memories:
        if budget.is_spent():
            break
        results.append(_hit(each, budget))
    return Found(results=results, truncated=budget.was_cut, note=_note(found.degraded, found.rerank_failure))


def _note(*reasons: str | None) -> str | None:
    """Return why a search did less than it could, None if nothing failed."""
    return "; ".join(filter(None, reasons)) or None


def _narrowed(given: SearchArguments) -> SearchFilter:
    if given.kinds is None:
        return SearchFilter(since=given.since, until=given.until)
    return SearchFilter(sources=[_SOURCES[kind] for kind in given.kinds], since=given.since, until=given.until)


def _hit(found: SearchMemoryResult, budget: _Budget) -> Hit:
    return Hit(
        id=found.memory_id,
        kind=_KINDS[found.source],
        type=found.memory_type,
        content=budget.cut(found.content),
        score=round(found.score, 4),
        occurred_at=found.occurred_at,
        session_id=found.session_id,
    )


class ContextArguments(Arguments):
    """The arguments of get_context."""

    query: Annotated[str, Field(min_length=1, max_length=32_768, description="What the next turn is about.")]
    max_tokens: Annotated[int, Field(ge=100, le=8_000, description="The budget; it is never exceeded.")] = 2_000
    session_id: Annotated[Id | None, Field(description="A session whose newest turns to include.")] = None
    asked_at: AskedAt = None
    time_zone: TimeZone = None


class Context(Answer):
    """A context window."""

    text: str
    tokens: int

    def shown(self) -> str:
        """Return the window itself."""
        return self.text


async def get_context(caller: Caller, given: ContextArguments) -> Context:
    """Pack what is known into a budget."""
    window = await caller.services.assembler.assemble(
        app_name=caller.app_name,
        user_id=caller.user_id,
        session_id=given.session_id,
        query=given.query,
        max_tokens=given.max_tokens,
        asked_at=given.asked_at,
        time_zone=given.time_zone,
    )
    return Context(text=window.text, tokens=window.total_tokens)


class AskArguments(Arguments):
    """The arguments of ask_memory."""

    question: Annotated[str, Field(min_length=1, max_length=QUESTION_LENGTH_MAX, description="In plain words.")]
    asked_at: AskedAt = None
    time_zone: TimeZone = None


class Cited(Answer):
    """What an answer rests on."""

    id: Annotated[UUID, Field(description="For explain_memory.")]
    kind: Kind
    content: str
    occurred_at: datetime | None
    session_id: str | None


class Answered(Answer):
    """An answer."""

    text: str
    is_known: bool
    answered_by: Annotated[
        AnsweredBy | None, Field(description="passages: no model wrote it. Null: nothing is remembered.")
    ]
    citations: list[Cited]
    truncated: Annotated[bool, Field(description="Whether a text was cut, to be short.")]


async def ask_memory(caller: Caller, given: AskArguments) -> Answered:
    """Answer a question from what is known."""
    found = await caller.services.answers.ask(
        app_name=caller.app_name,
        user_id=caller.user_id,
        question=given.question,
        max_seconds=_ANSWER_SECONDS_MAX,
        asked_at=given.asked_at,
        time_zone=given.time_zone,
    )
    budget = _Budget()
    text = budget.cut(found.text)
    cited: list[Cited] = []
    for each in found.citations:
        if budget.is_spent():
            break
        cited.append(
            Cited(
                id=each.id,
                kind=each.source,
                content=budget.cut(each.text),
                occurred_at=each.occurred_at,
                session_id=each.session_id,
            )
        )
    return Answered(
        text=text,
        is_known=found.is_known,
        answered_by=found.answered_by,
        citations=cited,
        truncated=budget.was_cut,
    )


class KnowledgeArguments(Arguments):
    """The arguments of search_knowledge."""

    query: Annotated[str, Field(min_length=1, max_length=32_768, description="What to look for, in plain words.")]
    limit: Annotated[int, Field(ge=1, le=50, description="How many passages at most.")] = 5
    corpora: Annotated[
        list[Name] | None,
        BeforeValidator(_from_text),
        Field(min_length=1, max_length=100, description="Only these collections of documents; all by default."),
    ] = None


class Passage(Answer):
    """A passage of a document, and where it is."""

    document_id: Annotated[UUID, Field(description="For read_document.")]
    corpus: str
    source_uri: str
    title: str
    headings: list[str]
    page: int | None
    char_from: Annotated[int, Field(description="Where it begins in the document, in characters.")]
    char_upto: int
    version: int
    content: str
    score: Annotated[float, Field(description="0 to 1, in which order the passages are.")]


class Passages(Answer):
    """What a search in documents found, the best first."""

    results: list[Passage]
    truncated: Annotated[bool, Field(description="Whether a text was cut or a result left out, to be short.")]
    note: Annotated[str | None, Field(description="Why the search was weaker than usual, if it was.")] = None


async def search_knowledge(caller: Caller, given: KnowledgeArguments) -> Passages:
    """Find the passages of documents that match best."""
    found = await _knowledge(caller).search(
        given.query, user_id=caller.user_id, roles=caller.roles, limit=given.limit, corpora=given.corpora
    )
    budget = _Budget()
    results: list[Passage] = []
    for hit in found.hits:
        if budget.is_spent():
            break
        results.append(
            Passage(
                document_id=hit.document_id,
                corpus=hit.corpus,
                source_uri=hit.source_uri,
                title=hit.title,
                headings=list(hit.heading_path),
                page=hit.page,
                char_from=hit.char_from,
                char_upto=hit.char_upto,
                version=hit.version,
                content=budget.cut(hit.content),
                score=hit.score,
            )
        )
    return Passages(results=results, truncated=budget.was_cut, note=_note(found.degraded, found.rerank_failure))


class DocumentArguments(Arguments):
    """The arguments of read_document."""

    document_id: Annotated[UUID, Field(description="The document of a passage, from search_knowledge.")]
    char_from: Annotated[int, Field(ge=0, le=2**31 - 1, description="Where to begin, in characters.")] = 0
    length: Annotated[int, Field(ge=1, le=20_000, description="How many characters at most.")] = 4_000


class DocumentPart(Answer):
    """A part of a document's text."""

    corpus: str
    source_uri: str
    title: str
    version: int
    char_from: int
    char_upto: int
    length: Annotated[int, Field(description="Of the whole text, in characters.")]
    content: str


async def read_document(caller: Caller, given: DocumentArguments) -> DocumentPart:
    """Read a part of a document, such as what is around a passage."""
    text = await _knowledge(caller).read(
        given.document_id,
        char_from=given.char_from,
        char_upto=min(given.char_from + given.length, 2**31 - 1),
        user_id=caller.user_id,
        roles=caller.roles,
    )
    return DocumentPart(
        corpus=text.corpus,
        source_uri=text.source_uri,
        title=text.title,
        version=text.version,
        char_from=text.char_from,
        char_upto=text.char_upto,
        length=text.length,
        content=text.content,
    )


def _knowledge(caller: Caller) -> KnowledgeService:
    assert caller.services.knowledge is not None  # noqa: S101 - every transport provides it
    return caller.services.knowledge.of(caller.app_name)


class FactArguments(Arguments):
    """The arguments of list_facts."""

    type: Annotated[FactType | None, Field(description="Only facts of this type.")] = None
    key: Annotated[Name | None, Field(description="Only this key, such as home_city.")] = None
    as_of: Annotated[Moment | None, Field(description="What was true then; now by default.")] = None
    limit: Annotated[int, Field(ge=1, le=100, description="How many facts at most.")] = 50
    cursor: Annotated[
        str | None,
        Field(max_length=cursors.CURSOR_LENGTH_MAX, description="next_cursor of the page before, same arguments."),
    ] = None


class FactShown(Answer):
    """A fact."""

    id: Annotated[UUID, Field(description="For explain_memory and forget_memory.")]
    type: FactType
    key: str
    value: Escaped
    confidence: float
    since: Annotated[datetime | None, Field(description="Since when it is true.")]


class FactPage(Answer):
    """A page of facts, by type and key."""

    facts: list[FactShown]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last one.")]
    truncated: Annotated[bool, Field(description="Whether a value was cut, to be short.")]


async def list_facts(caller: Caller, given: FactArguments) -> FactPage:
    """List the facts that hold, a page at a time."""
    as_of = None if given.as_of is None else given.as_of.isoformat()
    scope = cursors.scope_of("mcp facts", caller.app_name, caller.user_id, given.type, given.key, as_of)
    try:
        after = None if given.cursor is None else cursors.read(scope, given.cursor, tuple[str, str])
    except cursors.CursorError as error:
        raise InvalidInputError(f"cursor: {error}") from None
    found = await caller.services.memory.list_facts(
        app_name=caller.app_name,
        user_id=caller.user_id,
        fact_type=given.type,
        key=given.key,
        as_of=given.as_of,
        # One more shows whether there is a next page.
        limit=given.limit + 1,
        after=after,
    )
    budget = _Budget()
    shown: list[FactShown] = []
    for fact in found[: given.limit]:
        # What does not fit comes with the next page; a page has at least one.
        if budget.left <= 0:
            break
        shown.append(
            FactShown(
                id=fact.id,
                type=fact.fact_type,
                key=fact.key,
                value=_short(fact.value, budget),
                confidence=fact.confidence,
                since=fact.valid_from,
            )
        )
    last = found[len(shown) - 1] if shown else None
    more = last is not None and len(shown) < len(found)
    following = cursors.write(scope, (last.fact_type, last.key)) if more and last is not None else None
    return FactPage(facts=shown, next_cursor=following, truncated=budget.was_cut)


def _short(value: Any, budget: _Budget) -> Any:
    """Return a fact's value, or the beginning of its text if it is long."""
    if isinstance(value, str):
        return budget.cut(value)
    written = json.dumps(value, ensure_ascii=False)
    if len(written) > TEXT_MAX:
        return budget.cut(written)
    budget.left -= len(written)
    return value


class ExplainArguments(Arguments):
    """The arguments of explain_memory."""

    memory_id: Annotated[UUID, Field(description="The id of a memory, a fact or a turn, as other tools return it.")]


class Explained(Answer):
    """A memory, a fact or a turn."""

    id: UUID
    kind: Kind
    type: str
    content: str
    recorded_at: datetime
    model: Annotated[str | None, Field(description="The model that extracted it; null if it was given.")]


class Turn(Answer):
    """A turn of a conversation."""

    session_id: str | None
    number: int
    author: str
    text: Annotated[str | None, Field(description="Null if it has none, or was forgotten.")]
    occurred_at: datetime
    forgotten: bool


class Explanation(Answer):
    """Why something is known."""

    memory: Explained
    turns: Annotated[list[Turn], Field(description="What was said, in order; empty if the memory was given.")]
    truncated: Annotated[bool, Field(description="Whether a text was cut or a turn left out, to be short.")]


async def explain_memory(caller: Caller, given: ExplainArguments) -> Explanation:
    """Trace a memory or a fact to the turns that it comes from."""
    origin = (await caller.services.provenance(caller.app_name, caller.user_id, given.memory_id))[0]
    budget = _Budget()
    drawn = origin.drawn
    memory = Explained(
        id=drawn.id,
        kind="fact" if drawn.source.startswith("fact") else "turn" if drawn.source == "turn" else "memory",
        type=drawn.kind,
        content=budget.cut(drawn.content),
        recorded_at=drawn.recorded_at,
        model=drawn.model,
    )
    turns: list[Turn] = []
    for event in origin.events[:TURNS_SHOWN_MAX]:
        if budget.is_spent():
            break
        turns.append(
            Turn(
                session_id=drawn.session_id,
                number=event.sequence_num,
                author=event.author,
                text=None if event.text is None else budget.cut(event.text),
                occurred_at=event.occurred_at,
                forgotten=event.erased_at is not None,
            )
        )
    return Explanation(memory=memory, turns=turns, truncated=budget.was_cut or len(turns) < len(origin.events))


class RememberArguments(Arguments):
    """The arguments of remember."""

    content: Annotated[
        str, Field(min_length=1, max_length=_CONTENT_MAX, description="One statement that makes sense by itself.")
    ]
    name: Annotated[Name | None, Field(description="A later memory of the same name replaces this one.")] = None
    importance: Annotated[Importance, Field(description="How long it is kept.")] = "high"
    occurred_at: Annotated[Moment | None, Field(description="The time that it is about; now by default.")] = None


class Remembered(Answer):
    """A stored memory."""

    id: UUID


async def remember(caller: Caller, given: RememberArguments) -> Remembered:
    """Store a memory in the caller's words: by hand, and by the caller's key."""
    memory = GivenMemory(
        content=given.content, name=given.name, importance=given.importance, occurred_at=given.occurred_at
    )
    by = caller.grant.key_id
    edit = await caller.services.editor.remember(caller.app_name, caller.user_id, memory, by=by)
    return Remembered(id=edit.ids[0])


class TurnGiven(Arguments):
    """A turn to store."""

    id: Annotated[Id | None, Field(description="Your id of the turn: given again, it is stored once.")] = None
    role: Literal["user", "assistant"]
    text: Annotated[str, Field(min_length=1, max_length=_TURN_MAX)]
    at: Annotated[Moment | None, Field(description="When it was said; now by default.")] = None


class TurnsArguments(Arguments):
    """The arguments of add_turns."""

    session_id: Annotated[Id, Field(description="The conversation, which is created if it does not exist.")]
    turns: Annotated[
        list[TurnGiven],
        BeforeValidator(_from_text),
        Field(min_length=1, max_length=_TURNS_MAX, description="In the order in which they were said."),
    ]
    finalize: Annotated[
        bool, Field(description="The conversation is over: extract memories now, not after a while.")
    ] = False


class TurnsAdded(Answer):
    """What was stored of the turns."""

    session_id: str
    version: Annotated[int, Field(description="The session's version now.")]
    appended: int
    known: Annotated[int, Field(description="How many the session held already.")]
    hint: Annotated[str | None, Field(description="What the operator has to do; null: nothing.")] = None


async def add_turns(caller: Caller, given: TurnsArguments) -> TurnsAdded:
    """Append what is new of a conversation."""
    messages = [
        {
            "role": turn.role,
            "content": turn.text,
            **({} if turn.id is None else {"id": turn.id}),
            **({} if turn.at is None else {"timestamp": turn.at}),
        }
        for turn in given.turns
    ]
    engine = caller.services.engine(caller.app_name)
    added = await engine.add(caller.user_id, messages, session=given.session_id)
    key = (caller.app_name, caller.user_id, added.session_id)
    if given.finalize:
        await caller.services.sessions.finalize_session(*key)
    session = await caller.services.sessions.get_session(*key, num_recent_events=0)
    is_served = await overview.has_workers(caller.services.pool, within_seconds=SEEN_SECONDS_MAX)
    return TurnsAdded(
        session_id=added.session_id,
        version=0 if session is None else session.version,
        appended=added.added,
        known=added.known,
        hint=None if is_served else _NO_WORKER,
    )


class ForgetArguments(Arguments):
    """The arguments of forget_memory."""

    memory_id: Annotated[UUID, Field(description="The id of a memory, a fact or a turn, from search_memory.")]


class Forgotten(Answer):
    """Whether something was erased."""

    forgotten: Annotated[bool, Field(description="False if there is nothing of this id, such as the second time.")]


async def forget_memory(caller: Caller, given: ForgetArguments) -> Forgotten:
    """Erase one memory, fact or turn for good."""
    erased = await caller.services.given.erase(caller.app_name, caller.user_id, given.memory_id)
    return Forgotten(forgotten=erased)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as clients see it, the role that a key needs for it, and its function."""

    name: str
    title: str
    description: str
    role: Role
    arguments: type[Arguments]
    answer: type[Answer]
    hints: ToolAnnotations
    run: Callable[[Caller, Any], Awaitable[Answer]]


def _hints(*, writes: bool = False, destroys: bool = False) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=not writes, destructive_hint=destroys, idempotent_hint=True, open_world_hint=False
    )


_ALL: Sequence[Tool] = (
    Tool(
        name="search_memory",
        title="Search the memory",
        description="Search what is remembered of the user: memories, facts, and what was said in conversations.",
        role="read",
        arguments=SearchArguments,
        answer=Found,
        hints=_hints(),
        run=search_memory,
    ),
    Tool(
        name="get_context",
        title="Get a context window",
        description="Get what is known that helps with a question, as one text within a number of tokens: facts,"
        " memories and, with session_id, the newest turns of that conversation.",
        role="read",
        arguments=ContextArguments,
        answer=Context,
        hints=_hints(),
        run=get_context,
    ),
    Tool(
        name="ask_memory",
        title="Ask the memory",
        description="Get a short answer to a question about the user, with citations; says so if it is not known.",
        role="read",
        arguments=AskArguments,
        answer=Answered,
        hints=_hints(),
        run=ask_memory,
    ),
    Tool(
        name="search_knowledge",
        title="Search documents",
        description="Search the app's documents, such as handbooks, that the user may read: passages with the place"
        " that each is from.",
        role="read",
        arguments=KnowledgeArguments,
        answer=Passages,
        hints=_hints(),
        run=search_knowledge,
    ),
    Tool(
        name="read_document",
        title="Read a document",
        description="Read a part of a document, such as what is around a passage that search_knowledge found.",
        role="read",
        arguments=DocumentArguments,
        answer=DocumentPart,
        hints=_hints(),
        run=read_document,
    ),
    Tool(
        name="list_facts",
        title="List facts",
        description="List the facts that hold of the user, or held at another time, such as name, home and likes.",
        role="read",
        arguments=FactArguments,
        answer=FactPage,
        hints=_hints(),
        run=list_facts,
    ),
    Tool(
        name="explain_memory",
        title="Explain a memory",
        description="Show the turns from which a memory or a fact is known, or a turn, and when it was recorded.",
        role="read",
        arguments=ExplainArguments,
        answer=Explanation,
        hints=_hints(),
        run=explain_memory,
    ),
    Tool(
        name="remember",
        title="Remember",
        description="Store one statement about the user that should be known in later conversations. Give it a name if"
        " it may change: the same name again replaces it.",
        role="append",
        arguments=RememberArguments,
        answer=Remembered,
        hints=_hints(writes=True),
        run=remember,
    ),
    Tool(
        name="add_turns",
        title="Store a conversation",
        description="Store turns of a conversation; memories and facts are extracted from them later. Turns that are"
        " stored already, by id or in the same order, are skipped.",
        role="append",
        arguments=TurnsArguments,
        answer=TurnsAdded,
        hints=_hints(writes=True),
        run=add_turns,
    ),
    Tool(
        name="forget_memory",
        title="Forget a memory",
        description="Erase one memory, fact or turn for good, when the user asks for it. It cannot be undone.",
        role="admin",
        arguments=ForgetArguments,
        answer=Forgotten,
        hints=_hints(writes=True, destroys=True),
        run=forget_memory,
    ),
)

#: Every tool, by name, in the order of the list.
TOOLS: dict[str, Tool] = {tool.name: tool for tool in _ALL}
