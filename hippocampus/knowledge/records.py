"""What the knowledge service returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from hippocampus.knowledge.chunking import Chunking

DocumentStatus: TypeAlias = Literal["waiting", "running", "ready", "failed"]
DOCUMENT_STATUSES: tuple[DocumentStatus, ...] = ("waiting", "running", "ready", "failed")
Fusion: TypeAlias = Literal["minmax", "rrf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A collection of documents.

    Attributes:
        owner: the user whose own it is; None: the app's.
        readers, writers: who else may: ``*``, ``user:NAME`` or ``role:NAME``. Who may write may read.
        chunks: that are searched.
    """

    id: UUID
    name: str
    owner: str | None
    description: str
    chunking: Chunking
    readers: tuple[str, ...]
    writers: tuple[str, ...]
    documents: int
    chunks: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document of a corpus.

    Attributes:
        version: the version that is searched; 0 if none is yet. `last_version` was given last.
        status: waiting (for a worker), running, ready, or failed: `error` says why, and the former version is searched.
        chunks: how many `version` has. `chunks_done` of `chunks_total` are stored of the version that is ingested.
        without_vector: chunks that are found by their words alone until the backfill reaches them.
    """

    id: UUID
    corpus: str
    source_uri: str
    title: str
    mime_type: str
    metadata: Mapping[str, Any]
    version: int
    last_version: int
    status: DocumentStatus
    error_code: str | None
    error: str | None
    chunks: int
    chunks_done: int
    chunks_total: int | None
    without_vector: int
    created_at: datetime
    updated_at: datetime
    ingested_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedDocument:
    """The outcome of an addition.

    Attributes:
        is_new: whether there is a new version to ingest. If not, the document says the same as before.
    """

    document_id: UUID
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeHit:
    """A chunk that matches, and where it is.

    Attributes:
        version: the version of the document in which `char_from` to `char_upto` is the chunk.
        page: on which it begins, from 1; None if the document has no pages.
        score: 0 to 1, by which results are ordered; normalised among them.
        relevance_score: 0 to 1, the same whatever else matches: the cosine similarity, or the weighted part of the
            query's words that the chunk holds, whichever is greater.
        similarity: None if the chunk or the query has no vector.
    """

    id: UUID
    document_id: UUID
    corpus: str
    source_uri: str
    title: str
    metadata: Mapping[str, Any]
    version: int
    chunk_index: int
    heading_path: tuple[str, ...]
    page: int | None
    char_from: int
    char_upto: int
    content: str
    language: str | None
    score: float
    relevance_score: float
    bm25: float
    similarity: float | None
    matched_terms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeResponse:
    """What a search found, the best first.

    Attributes:
        total_count: how many chunks match; in corpora of over 5,000 chunks, of those that were scored.
        degraded: why text alone was searched although there is an embedder; None if nothing failed.
        reranked: whether a reranker ordered the first 50; scores stay those of the search.
        rerank_failure: why not, although there is one. The search's own order stands.
    """

    hits: tuple[KnowledgeHit, ...]
    total_count: int
    query: str
    degraded: str | None = None
    reranked: bool = False
    rerank_failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentText:
    """A range of a document's text, as it was read.

    Attributes:
        length: characters of the whole text.
    """

    document_id: UUID
    corpus: str
    source_uri: str
    title: str
    version: int
    char_from: int
    char_upto: int
    length: int
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What ingesting a version took.

    Attributes:
        embedded: texts that were sent to the embedder; `kept` chunks were stored already.
        degraded: why chunks have no vector yet; None if nothing failed.
    """

    version: int
    chunks: int
    kept: int
    embedded: int
    degraded: str | None = field(default=None)
