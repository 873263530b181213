"""The calls about knowledge: corpora, documents, searches and answers with citations."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import pick


class KnowledgeOptions(TypedDict, total=False):
    """The filters of a search in documents; see the API's document."""

    corpora: Sequence[str]
    roles: Sequence[str]
    metadata: Mapping[str, Any]
    sources: Sequence[str]
    as_of: datetime
    per_document: int
    fusion: Literal["minmax", "rrf"]
    query_embedding: Sequence[float]
    embedding_model: str


class KnowledgeQuestionOptions(TypedDict, total=False):
    """The options of a question about documents; see the API's document."""

    corpora: Sequence[str]
    roles: Sequence[str]
    metadata: Mapping[str, Any]
    as_of: datetime
    language: Literal["en", "zh"]
    max_tokens: int
    max_answer_tokens: int
    max_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusRecord:
    """A corpus; `owner` is None if it is the app's."""

    name: str
    owner: str | None
    description: str
    chunking: Mapping[str, Any]
    readers: Sequence[str]
    writers: Sequence[str]
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRecord:
    """A document, and what became of its ingest."""

    id: str
    corpus: str
    source_uri: str
    title: str
    mime_type: str
    metadata: Mapping[str, Any]
    version: int
    last_version: int
    status: Literal["waiting", "running", "ready", "failed"]
    error_code: str | None
    error: str | None
    chunks: int
    chunks_done: int
    chunks_total: int | None
    without_vector: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedDocumentRecord:
    """The outcome of an addition; not `is_new`: the document says the same as before."""

    document_id: str
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeHitRecord:
    """A chunk that matches, and where it is."""

    id: str
    document_id: str
    corpus: str
    source_uri: str
    title: str
    metadata: Mapping[str, Any]
    version: int
    heading_path: Sequence[str]
    page: int | None
    char_from: int
    char_upto: int
    content: str
    score: float
    relevance_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeCitationRecord:
    """A place that an answer rests on."""

    document_id: str
    corpus: str
    source_uri: str
    title: str
    version: int
    heading_path: Sequence[str]
    page: int | None
    char_from: int
    char_upto: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeAnswerRecord:
    """An answer from documents."""

    text: str
    is_known: bool
    answered_by: Literal["model", "passages"] | None
    citations: Sequence[KnowledgeCitationRecord]


class KnowledgeCalls(Calls):
    """Adds, lists, removes and reads documents, and searches them on behalf of a user."""

    async def corpora(self, *, user: str | None = None, page_size: int = 100) -> AsyncIterator[CorpusRecord]:
        """Yield the corpora of the app, or those that a user may read."""
        async for each in self._pages(self._app("corpora"), "corpora", limit=page_size, user=user):
            yield pick(CorpusRecord, each)

    async def corpus(self, name: str, *, user: str | None = None) -> CorpusRecord:
        """Read a corpus."""
        return pick(CorpusRecord, await self._call("GET", self._app("corpora", name), params=plain({"user": user})))

    async def put_corpus(
        self,
        name: str,
        *,
        user: str | None = None,
        description: str | None = None,
        chunking: Mapping[str, Any] | None = None,
        readers: Sequence[str] | None = None,
        writers: Sequence[str] | None = None,
        only_new: bool = False,
    ) -> CorpusRecord:
        """Create a corpus of the app or of a user, or change one; None leaves what it has.

        Args:
            only_new: create it; a ConflictError if there is one, which is not changed.
        """
        body = {"description": description, "chunking": chunking, "readers": readers, "writers": writers}
        path, headers = self._app("corpora", name), {"If-None-Match": "*"} if only_new else {}
        given = await self._call("PUT", path, json=plain(body), params=plain({"user": user}), headers=headers)
        return pick(CorpusRecord, given)

    async def remove_corpus(self, name: str, *, user: str | None = None) -> int:
        """Remove a corpus with everything in it; return how many documents there were."""
        found = await self._call("DELETE", self._app("corpora", name), params=plain({"user": user}))
        return int(found["documents"])

    async def add_document(
        self,
        corpus: str,
        source_uri: str,
        content: str | bytes,
        *,
        title: str | None = None,
        mime_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        user: str | None = None,
    ) -> AddedDocumentRecord:
        """Add a document, or replace the one of this address: a text, or a file's bytes."""
        body: dict[str, Any] = {"source_uri": source_uri, "title": title, "mime_type": mime_type, "metadata": metadata}
        if isinstance(content, str):
            body["text"] = content
        else:
            body["content_base64"] = base64.b64encode(content).decode()
        path = self._app("corpora", corpus, "documents")
        given = await self._call("POST", path, json=plain(body), params=plain({"user": user}))
        return pick(AddedDocumentRecord, given)

    async def documents(
        self, corpus: str, *, status: str | None = None, user: str | None = None, page_size: int = 100
    ) -> AsyncIterator[DocumentRecord]:
        """Yield the documents of a corpus."""
        path = self._app("corpora", corpus, "documents")
        async for each in self._pages(path, "documents", limit=page_size, status=status, user=user):
            yield pick(DocumentRecord, each)

    async def document(self, document_id: str, *, user: str | None = None) -> DocumentRecord:
        """Read what a document is, and what became of its ingest."""
        path = self._app("documents", document_id)
        return pick(DocumentRecord, await self._call("GET", path, params=plain({"user": user})))

    async def retry_document(self, document_id: str, *, user: str | None = None) -> DocumentRecord:
        """Have a worker ingest a document again whose ingest has failed."""
        path = self._app("documents", document_id, "retry")
        return pick(DocumentRecord, await self._call("POST", path, params=plain({"user": user})))

    async def remove_document(self, corpus: str, source_uri: str, *, user: str | None = None) -> str:
        """Remove a document; return its id."""
        path = self._app("corpora", corpus, "documents")
        found = await self._call("DELETE", path, params=plain({"source_uri": source_uri, "user": user}))
        return str(found["document_id"])

    async def read_document(
        self, user_id: str, document_id: str, *, char_from: int = 0, length: int | None = None
    ) -> str:
        """Return a range of a document's text, such as what is around a citation."""
        path = self._user(user_id, "documents", document_id, "text")
        found = await self._call("GET", path, params=plain({"char_from": char_from, "length": length}))
        return str(found["content"])

    async def search_knowledge(
        self, user_id: str, query: str, *, limit: int = 10, **options: Unpack[KnowledgeOptions]
    ) -> list[KnowledgeHitRecord]:
        """Return the chunks that match best in the corpora that a user may read."""
        body = {"query": query, "limit": limit, **plain(options)}
        path = self._user(user_id, "knowledge", "search")
        found = await self._call("POST", path, json=body, is_safe=True)
        return [pick(KnowledgeHitRecord, each) for each in found["hits"]]

    async def ask_knowledge(
        self, user_id: str, question: str, **options: Unpack[KnowledgeQuestionOptions]
    ) -> KnowledgeAnswerRecord:
        """Answer a question from the corpora that a user may read."""
        body = {"question": question, **plain(options)}
        found = await self._call("POST", self._user(user_id, "knowledge", "ask"), json=body)
        cited = [pick(KnowledgeCitationRecord, each) for each in found["citations"]]
        return pick(KnowledgeAnswerRecord, {**found, "citations": cited})
