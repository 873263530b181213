"""Corpora of an app: documents are added, listed and removed, and searched with citations that lead to the place."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from hippocampus.answers import ANSWER_SECONDS, ANSWER_TOKENS, WINDOW_TOKENS
from hippocampus.context.documents import DocumentPart
from hippocampus.context.window import ContextItem
from hippocampus.errors import CorpusAccessError, DocumentNotFoundError, UnreadableDocumentError
from hippocampus.knowledge.answers import KnowledgeAnswer, ask_documents
from hippocampus.knowledge.chunking import Chunking
from hippocampus.knowledge.ingest import STATEMENTS, DocumentIngest, WillRetry, never
from hippocampus.knowledge.reading import BYTES_MAX, TITLE_MAX, read_document
from hippocampus.knowledge.records import (
    DOCUMENT_STATUSES,
    AddedDocument,
    Corpus,
    Document,
    DocumentStatus,
    DocumentText,
    Fusion,
    Ingested,
    KnowledgeHit,
    KnowledgeResponse,
)
from hippocampus.names import check_app_name, check_count, check_name, check_names, check_word, check_zones
from hippocampus.rerank import RERANK_SECONDS, Reranker, Reranking
from hippocampus.search import LIMIT_MAX, MemorySearch, clean_query
from pulse.errors import InvalidInputError
from pulse.names import check_app, check_filled
from pulse.postgres.json_values import clean_text, escape_state, unescape
from pulse.postgres.limits import check_limit
from pulse.tracing.manager import current_tracing, spanned

if TYPE_CHECKING:
    import asyncpg

    from hippocampus.providers.protocols import Answerer, Embedder, Generator
    from hippocampus.text.languages import Language
    from pulse.database import Pool

URI_LENGTH_MAX: Final = 2_048
DESCRIPTION_LENGTH_MAX: Final = 2_000
LIST_LENGTH_MAX: Final = 1_000
ROLES_MAX: Final = 100
GRANTEES_MAX: Final = 1_000
#: Characters of a text that are read at once.
READ_MAX: Final = 100_000
#: What is read at once, each in a process of its own.
_READS_MAX: Final = 2
_REMOVED_AT_ONCE: Final = 50


class KnowledgeService:
    """The corpora of one app.

    A caller is a user (`user_id`) with `roles`, asserted by the calling program, or the app itself (None). A user
    reaches the user's own corpora, and those of which a reader or writer is ``*``, ``user:NAME`` or ``role:NAME``. The
    app reaches those that no user owns.

    Args:
        embedder: must be the one that the workers use. None: searches compare words alone.
        reranker: reorders the best results of a search.
        rerank_seconds: after which the order of the search stands.
        generator: writes the answers of `ask`, if it is a `hippocampus.providers.protocols.Answerer`; else they are
            passages.
        reads: admits the processes that read files; None: two at once.
    """

    def __init__(
        self,
        pool: Pool,
        app_name: str,
        embedder: Embedder | None = None,
        *,
        reranker: Reranker | None = None,
        rerank_seconds: float = RERANK_SECONDS,
        generator: Generator | Answerer | None = None,
        reads: asyncio.Semaphore | None = None,
    ) -> None:
        self._pool = pool
        self._app = check_app_name(app_name)
        self._embedder = embedder
        self._search = MemorySearch(pool, embedder)
        self._reranking = Reranking(reranker, rerank_seconds)
        self._generator = generator
        self._reads = reads or asyncio.Semaphore(_READS_MAX)

    async def put_corpus(
        self,
        name: str,
        *,
        owner: str | None = None,
        description: str | None = None,
        chunking: Chunking | None = None,
        readers: Collection[str] | None = None,
        writers: Collection[str] | None = None,
        only_new: bool = False,
    ) -> Corpus:
        """Create a corpus, or change one; None leaves what it has.

        Another way of chunking holds for what is added from then on: add its documents again.

        Args:
            owner: the user whose own it is, and with whom it is erased; None: the app's.
            readers: by default everyone for a corpus of the app, and only the owner for a user's.
            only_new: create it, and change none that exists.

        Raises:
            CorpusExistsError: `only_new`, and the owner has a corpus of this name; nothing was changed.
            InvalidInputError: an argument is out of its bounds; nothing was changed.
        """
        check_app(self._app)
        check_name("corpus", name)
        if owner is not None:
            check_filled("owner", owner)
        check_names(description=description)
        if description is not None and len(description) > DESCRIPTION_LENGTH_MAX:
            raise InvalidInputError(
                f"a description must have at most {DESCRIPTION_LENGTH_MAX:,} characters, not {len(description):,}"
            )
        given_readers, given_writers = _grantees("readers", readers), _grantees("writers", writers)
        config = None if chunking is None else chunking.config()
        await STATEMENTS.fetchrow(
            self._pool,
            "put_corpus",
            self._app,
            owner,
            name,
            description,
            config,
            given_readers,
            given_writers,
            only_new,
        )
        return await self.corpus(name, user_id=owner)

    async def corpus(self, name: str, *, user_id: str | None = None, roles: Collection[str] = ()) -> Corpus:
        """Return a corpus: the caller's own of this name, else the app's, else a shared one.

        Raises:
            CorpusNotFoundError: there is none that the caller may read.
        """
        rows = await STATEMENTS.fetch(
            self._pool, "list_corpora", self._app, *_caller(user_id, roles), check_name("corpus", name), 100, None, None
        )
        if not rows:
            # For its words.
            await STATEMENTS.execute(
                self._pool, "corpus_to_remove", self._app, *_caller(user_id, roles), check_name("corpus", name)
            )
        return _corpus(min(rows, key=lambda row: (row["user_id"] != user_id, row["user_id"] is not None)))

    async def corpora(
        self,
        *,
        user_id: str | None = None,
        roles: Collection[str] = (),
        limit: int = 100,
        after: tuple[str, UUID] | None = None,
    ) -> list[Corpus]:
        """Return the corpora that the caller may read, by their names."""
        rows = await STATEMENTS.fetch(
            self._pool, "list_corpora", self._app, *_caller(user_id, roles), None,
            check_limit(limit, LIST_LENGTH_MAX), *(after or (None, None)),
        )  # fmt: skip
        return [_corpus(row) for row in rows]

    async def remove_corpus(self, name: str, *, user_id: str | None = None) -> int:
        """Remove a corpus with everything in it; return how many documents there were.

        Raises:
            CorpusNotFoundError: there is no such corpus.
            CorpusAccessError: it is not the caller's own.
        """
        corpus_id = await STATEMENTS.fetchval(
            self._pool, "corpus_to_remove", self._app, *_caller(user_id, ()), check_name("corpus", name)
        )
        if corpus_id is None:
            raise CorpusAccessError(f"corpus {name!r} belongs to another user: only its owner may remove it")
        total = 0
        while count := int(
            (await STATEMENTS.execute(self._pool, "remove_documents", corpus_id, _REMOVED_AT_ONCE)).split()[-1]
        ):
            total += count
        await STATEMENTS.execute(self._pool, "remove_corpus", corpus_id)
        return total

    async def add(
        self,
        corpus: str,
        content: str | bytes | os.PathLike[str],
        *,
        source_uri: str | None = None,
        title: str | None = None,
        mime_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        user_id: str | None = None,
        roles: Collection[str] = (),
        inline: bool = False,
    ) -> AddedDocument:
        """Read a document and give it to a worker, which chunks and embeds it; the former version is found until then.

        A document that says what it said before, under the same title, changes nothing but its metadata.

        Args:
            content: a text, a file's bytes, or its path. HTML, PDF and Office files are read in a process of their own.
            source_uri: the document's address in the corpus; None: that of the path.
            title: None: its own, else the end of its address.
            mime_type: None: as its beginning or the end of its address says.
            metadata: a search can filter by them; None: none.
            inline: ingest it here and now, by the embedder of this object, without a worker.

        Raises:
            UnreadableDocumentError: it is too large, encrypted, damaged, without text, or of an unknown kind.
            SecretRefusedError: it holds secrets, which the app's policy refuses.
            CorpusNotFoundError, CorpusAccessError: there is no such corpus, or the caller may only read it.
            InvalidInputError: an argument is out of its bounds.
            ProviderError: only `inline`.

        Nothing is stored of what raises, other than by `inline`.
        """
        given = content
        if not isinstance(given, str | bytes):
            path = Path(given)
            source_uri = source_uri or path.as_posix()
            given = await asyncio.to_thread(read_file, path)
        uri = _uri(source_uri)
        check_names(title=title, mime_type=mime_type)
        read = await read_document(given, name=uri, mime_type=mime_type, admission=self._reads)
        # The job links to the span that caused it.
        traceparent = current_tracing().traceparent
        name, more = ("put_document", []) if traceparent is None else ("put_document_traced", [traceparent])
        row = await STATEMENTS.fetch_one(
            self._pool, name, self._app, *_caller(user_id, roles), check_name("corpus", corpus), uri,
            (title or read.title or uri.rstrip("/").rpartition("/")[2] or uri)[:TITLE_MAX], list(read.parts),
            read.paged, read.is_markdown, read.mime_type, escape_state(dict(metadata or {}), where="metadata"),
            read.size, not inline, *more,
        )  # fmt: skip
        added = AddedDocument(document_id=row["document_id"], is_new=row["is_new"])
        if inline:
            await self.ingest(added.document_id)
        return added

    async def ingest(self, document_id: UUID, *, will_retry: WillRetry = never) -> Ingested | None:
        """Ingest the pending version of a document, as a worker does; see `hippocampus.knowledge.ingest`."""
        return await DocumentIngest(self._pool, self._embedder).run(document_id, will_retry=will_retry)

    async def documents(
        self,
        *,
        corpus: str | None = None,
        status: DocumentStatus | None = None,
        user_id: str | None = None,
        roles: Collection[str] = (),
        limit: int = 100,
        after: UUID | None = None,
    ) -> list[Document]:
        """Return documents of a corpus, or of all that the caller may read, in the order of their additions.

        Raises:
            CorpusNotFoundError: there is no such corpus.
        """
        check_word("status", status, DOCUMENT_STATUSES)
        caller = _caller(user_id, roles)
        if corpus is not None:
            await self.corpus(corpus, user_id=user_id, roles=roles)
        rows = await STATEMENTS.fetch(
            self._pool, "list_documents", self._app, *caller, corpus, None, None, status,
            check_limit(limit, LIST_LENGTH_MAX), after,
        )  # fmt: skip
        return [_document(row) for row in rows]

    async def document(self, document_id: UUID, *, user_id: str | None = None, roles: Collection[str] = ()) -> Document:
        """Return a document.

        Raises:
            DocumentNotFoundError: there is none of this id that the caller may read.
        """
        row = await STATEMENTS.fetchrow(
            self._pool, "list_documents", self._app, *_caller(user_id, roles), None, None, document_id, None, 1, None
        )
        if row is None:
            raise DocumentNotFoundError(f"there is no document {document_id} for this caller in app {self._app!r}")
        return _document(row)

    async def retry(self, document_id: UUID, *, user_id: str | None = None, roles: Collection[str] = ()) -> None:
        """Have a worker ingest a document again whose ingest has failed; it continues where the last attempt ended.

        Raises:
            DocumentNotFoundError: there is none of this id that the caller may read.
            CorpusAccessError: the caller may only read its corpus.
            JobNotFailedError: it waits, runs, or is ready; nothing was changed.
        """
        traceparent = current_tracing().traceparent
        name, more = ("retry_document", []) if traceparent is None else ("retry_document_traced", [traceparent])
        await STATEMENTS.execute(self._pool, name, self._app, *_caller(user_id, roles), document_id, *more)

    async def remove(
        self, corpus: str, source_uri: str, *, user_id: str | None = None, roles: Collection[str] = ()
    ) -> UUID:
        """Remove a document with its versions, chunks, vectors and waiting job; return its id.

        Raises:
            CorpusNotFoundError, CorpusAccessError: there is no such corpus, or the caller may only read it.
            DocumentNotFoundError: there is no such document in it.
        """
        removed: UUID = await STATEMENTS.fetchval(
            self._pool,
            "remove_document",
            self._app,
            *_caller(user_id, roles),
            check_name("corpus", corpus),
            _uri(source_uri),
        )
        return removed

    async def read(
        self,
        document_id: UUID,
        *,
        char_from: int = 0,
        char_upto: int | None = None,
        version: int | None = None,
        user_id: str | None = None,
        roles: Collection[str] = (),
    ) -> DocumentText:
        """Return a range of a document's text, such as what is around a citation; at most 100,000 characters.

        Args:
            version: None: the one that is searched.

        Raises:
            DocumentNotFoundError: there is none of this id that the caller may read, or no such version of it.
        """
        check_count("char_from", char_from, 0, 2**31 - 1)
        upto = char_from + READ_MAX if char_upto is None else check_count("char_upto", char_upto, char_from, 2**31 - 1)
        upto = min(upto, char_from + READ_MAX)
        if version is not None:
            check_count("version", version, 1, 2**31 - 1)
        row = await STATEMENTS.fetchrow(
            self._pool, "read_text", self._app, *_caller(user_id, roles), document_id, char_from, upto, version
        )
        if row is None:
            raise DocumentNotFoundError(
                f"there is no document {document_id} for this caller in app {self._app!r}, or not this version of it"
            )
        return DocumentText(
            document_id=row["id"],
            corpus=row["corpus"],
            source_uri=row["source_uri"],
            title=row["title"],
            version=row["version"],
            char_from=char_from,
            char_upto=min(upto, max(row["length"], char_from)),
            length=row["length"],
            content=row["content"],
        )

    @spanned("search_knowledge", operation="retrieval")
    async def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        roles: Collection[str] = (),
        corpora: Collection[str] | None = None,
        limit: int = 10,
        metadata: Mapping[str, Any] | None = None,
        sources: Collection[str] | None = None,
        as_of: datetime | None = None,
        per_document: int | None = None,
        fusion: Fusion = "minmax",
        query_embedding: Sequence[float] | None = None,
        embedding_model: str | None = None,
    ) -> KnowledgeResponse:
        """Find the chunks that match a query best.

        Args:
            corpora: None: all that the caller may read.
            metadata: only documents whose metadata contain these (JSONB containment).
            sources: only documents of these addresses.
            as_of: what was searched at that time. Superseded versions are kept for 30 days, by setting; documents that
                were removed are not kept.
            per_document: at most this many chunks of each document.
            fusion: ``minmax`` weighs normalised scores of words and vectors; ``rrf`` adds up reciprocal ranks.
            query_embedding: by the model that `embedding_model` names (default: the embedder's). None: it is made.

        Raises:
            InvalidInputError: the query is blank, or an argument is out of its bounds.
            CorpusNotFoundError: there is no corpus of one of the names.
            EmbeddingDimensionError: the vector has other dimensions than those stored of its model.
        """
        text = clean_query(query)
        check_limit(limit, LIMIT_MAX)
        check_word("fusion", fusion, ("minmax", "rrf"))
        check_zones(as_of=as_of)
        if per_document is not None:
            check_count("per_document", per_document, 1, LIMIT_MAX)
        caller = _caller(user_id, roles)
        names = None if corpora is None else [check_name("corpus", each) for each in _several("corpora", corpora)]
        uris = None if sources is None else [_uri(each) for each in _several("sources", sources)]
        vector, degraded = await self._search.embed_query(text, query_embedding, app_name=self._app)
        model = embedding_model or (self._embedder.model if self._embedder else None)
        if query_embedding is not None and model is None:
            raise InvalidInputError("a query_embedding needs embedding_model: two models are never mixed in one search")
        rows = await STATEMENTS.fetch(
            self._pool, "search_knowledge", self._app, *caller, text, vector, model,
            self._reranking.depth(limit), names,
            None if metadata is None else escape_state(dict(metadata), where="metadata"), uris, as_of, per_document,
            fusion,
        )  # fmt: skip
        found = await self._reranking.order(
            self._pool, self._app, text, [_hit(row) for row in rows], lambda hit: hit.content
        )
        return KnowledgeResponse(
            hits=tuple(found.results[:limit]),
            total_count=rows[0]["total"] if rows else 0,
            query=query,
            degraded=degraded,
            reranked=found.is_reranked,
            rerank_failure=found.failure,
        )

    def part(
        self, ratio: float, *, corpora: Collection[str] | None = None, roles: Collection[str] = ()
    ) -> DocumentPart:
        """Return what makes documents a part of a context window: `ContextAssembler.assemble` takes it.

        Args:
            ratio: their share of the window's budget, over 0 and at most 1.
            corpora: None: all that the window's user may read.
            roles: the roles of the window's user.

        Raises:
            InvalidInputError: the ratio is out of its bounds.
        """

        async def search(
            query: str, *, app_name: str, user_id: str, limit: int, vector: Sequence[float] | None, model: str | None
        ) -> list[ContextItem]:
            if app_name != self._app:
                raise InvalidInputError(
                    f"the documents are of app {self._app!r}, and the window is of {app_name!r}: use one app"
                )
            # Without an embedder: a query that has no vector so far gets none.
            lean = KnowledgeService(self._pool, self._app)
            found = await lean.search(
                query, user_id=user_id, roles=roles, corpora=corpora, limit=limit, query_embedding=vector,
                embedding_model=model,
            )  # fmt: skip
            return [_context_item(hit) for hit in found.hits]

        return DocumentPart(ratio, search)

    async def ask(
        self,
        question: str,
        *,
        user_id: str | None = None,
        roles: Collection[str] = (),
        corpora: Collection[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        as_of: datetime | None = None,
        language: Language | None = None,
        max_tokens: int = WINDOW_TOKENS,
        max_answer_tokens: int = ANSWER_TOKENS,
        max_seconds: float = ANSWER_SECONDS,
    ) -> KnowledgeAnswer:
        """Answer a question from documents, with citations; without a model, by the passages that match best.

        Args:
            language: of the answer; None: that of the question.
            max_tokens: the size of the passages that the model reads.
            max_answer_tokens: the length of the answer's text.
            max_seconds: for everything.

        Raises:
            InvalidInputError: an argument is out of its bounds.
            CorpusNotFoundError: there is no corpus of one of the names.
            ProviderError: the model did not answer in time, or not in the requested form.
        """
        return await ask_documents(
            self.search, self._pool, self._app, self._generator, question, user_id=user_id, roles=roles,
            corpora=corpora, metadata=metadata, as_of=as_of, language=language, max_tokens=max_tokens,
            max_answer_tokens=max_answer_tokens, max_seconds=max_seconds,
        )  # fmt: skip


class KnowledgeServices:
    """The knowledge services of all apps, on one pool."""

    def __init__(
        self,
        pool: Pool,
        embedder: Embedder | None,
        generator: Generator | Answerer | None = None,
        *,
        reranker: Reranker | None = None,
        rerank_seconds: float = RERANK_SECONDS,
    ) -> None:
        self._pool = pool
        self._embedder = embedder
        self._generator = generator
        self._reranker = reranker
        self._rerank_seconds = rerank_seconds
        self._reads = asyncio.Semaphore(_READS_MAX)

    def of(self, app_name: str) -> KnowledgeService:
        """Return the service of an app."""
        return KnowledgeService(
            self._pool,
            app_name,
            self._embedder,
            reranker=self._reranker,
            rerank_seconds=self._rerank_seconds,
            generator=self._generator,
            reads=self._reads,
        )


def read_file(path: Path) -> bytes:
    """Return a file's bytes, at most one more than are read of a document.

    Raises:
        UnreadableDocumentError: it cannot be opened.
    """
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise UnreadableDocumentError(f"{path} cannot be opened: {error.strerror}", code="unopened") from None
    return data


def _caller(user_id: str | None, roles: Collection[str]) -> tuple[str | None, list[str]]:
    """Return a caller as the statements take it."""
    if user_id is not None:
        check_name("user_id", user_id)
    names = [check_name("role", each) for each in _several("roles", roles)] if roles else []
    if len(names) > ROLES_MAX:
        raise InvalidInputError(f"a caller must have at most {ROLES_MAX} roles, not {len(names)}")
    if names and user_id is None:
        raise InvalidInputError("roles need a user: give user_id, too")
    return user_id, names


def _several(what: str, values: Collection[str]) -> list[str]:
    if isinstance(values, str):
        raise InvalidInputError(f"{what} must be a list of texts, not one text")
    if not values or len(values) > LIST_LENGTH_MAX:
        raise InvalidInputError(f"{what} must be from 1 to {LIST_LENGTH_MAX:,} texts, not {len(values):,}")
    return list(values)


def _grantees(what: str, given: Collection[str] | None) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, str) or len(given) > GRANTEES_MAX:
        raise InvalidInputError(f"{what} must be a list of at most {GRANTEES_MAX:,} texts")
    for each in given:
        kind, _, name = str(each).partition(":")
        if each != "*" and (kind not in ("user", "role") or not name):
            raise InvalidInputError(f"each of {what} must be *, user:NAME or role:NAME, not {each!r:.80}")
        check_name(what, name or "*")
    return sorted(set(given))


def _uri(given: str | None) -> str:
    if not isinstance(given, str) or not given.strip() or clean_text(given) != given or len(given) > URI_LENGTH_MAX:
        raise InvalidInputError(
            f"source_uri must be the document's address, of 1 to {URI_LENGTH_MAX:,} characters, not {given!r:.80}"
        )
    return given


def _context_item(hit: KnowledgeHit) -> ContextItem:
    """Return a chunk for a window, with its citation."""
    metadata = {
        "source": "document",
        "chunk_id": hit.id,
        "document_id": hit.document_id,
        "corpus": hit.corpus,
        "source_uri": hit.source_uri,
        "title": hit.title,
        "version": hit.version,
        "heading_path": hit.heading_path,
        "page": hit.page,
        "char_from": hit.char_from,
        "char_upto": hit.char_upto,
    }
    return ContextItem(
        context_type="document", content=hit.content, relevance_score=hit.relevance_score, metadata=metadata
    )


def _corpus(row: asyncpg.Record) -> Corpus:
    return Corpus(
        id=row["id"],
        name=row["name"],
        owner=row["user_id"],
        description=row["description"],
        chunking=Chunking.of(row["config"]),
        readers=tuple(row["readers"]),
        writers=tuple(row["writers"]),
        documents=row["documents"],
        chunks=row["chunks"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _document(row: asyncpg.Record) -> Document:
    return Document(**{**dict(row), "metadata": unescape(row["metadata"])})


def _hit(row: asyncpg.Record) -> KnowledgeHit:
    found = dict(row)
    del found["total"]
    found["relevance_score"] = found.pop("relevance")
    return KnowledgeHit(
        **{
            **found,
            "metadata": unescape(found["metadata"]),
            "heading_path": tuple(found["heading_path"]),
            "matched_terms": tuple(found["matched_terms"]),
        }
    )
