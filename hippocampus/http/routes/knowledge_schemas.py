"""The bodies of the routes of knowledge."""

from __future__ import annotations

import base64
import binascii
import uuid
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from hippocampus import answers
from hippocampus.answers import AnsweredBy
from hippocampus.http.fields import Embedding, Moment
from hippocampus.http.routes.answers_schemas import UsageView
from hippocampus.knowledge import service
from hippocampus.knowledge.chunking import TOKENS_MAX, TOKENS_MIN, Chunking
from hippocampus.knowledge.records import DocumentStatus, Fusion
from hippocampus.search import LIMIT_MAX, QUERY_LENGTH_MAX
from pulse.errors import InvalidInputError
from pulse.http.edge.schemas import WITHOUT_NUL, Body, EscapedObject, JsonObject, Name, NextCursor, View

SourceUri = Annotated[str, StringConstraints(min_length=1, max_length=service.URI_LENGTH_MAX, pattern=WITHOUT_NUL)]
Grantee = Annotated[str, StringConstraints(max_length=300, pattern=r"^(\*|(user|role):[^\x00]+)$")]
Roles = Annotated[
    list[Name],
    Field(
        default_factory=list,
        max_length=service.ROLES_MAX,
        description="The user's roles, which the caller vouches for: not with a key of one user.",
    ),
]
Corpora = Annotated[
    list[Name] | None,
    Field(min_length=1, max_length=100, description="Only these; null: all that the user may read."),
]
Metadata = Annotated[JsonObject | None, Field(description="Only documents whose metadata contains this object.")]


class ChunkingInput(Body):
    """How documents are split; sizes are in tokens."""

    chunker: Literal["fixed", "recursive", "sentence", "structure"] = "recursive"
    tokens: Annotated[int | None, Field(ge=TOKENS_MIN, le=TOKENS_MAX)] = None
    overlap: Annotated[int | None, Field(ge=0, le=TOKENS_MAX)] = None
    tokens_min: Annotated[int, Field(ge=0, le=TOKENS_MAX)] = 50

    def chunking(self) -> Chunking:
        """Return what `hippocampus.knowledge` takes."""
        return Chunking(**dict(self))


class CorpusInput(Body):
    """A corpus; what is null stays as it is."""

    description: Annotated[
        str | None, StringConstraints(max_length=service.DESCRIPTION_LENGTH_MAX, pattern=WITHOUT_NUL)
    ] = None
    chunking: Annotated[ChunkingInput | None, Field(description="Of what is added from now on.")] = None
    readers: Annotated[
        list[Grantee] | None,
        Field(max_length=service.GRANTEES_MAX, description="*, user:NAME or role:NAME. By default everyone."),
    ] = None
    writers: Annotated[
        list[Grantee] | None, Field(max_length=service.GRANTEES_MAX, description="Who may add and remove documents.")
    ] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"readers": ["*"], "writers": ["role:editor"]}]})


class DocumentInput(Body):
    """A document: its text, or its file in base64."""

    source_uri: Annotated[SourceUri, Field(description="Its address in the corpus: the same again replaces it.")]
    text: Annotated[str | None, Field(min_length=1, description="A text.")] = None
    content_base64: Annotated[
        str | None, Field(min_length=1, description="Or a file, within the largest body that the server accepts.")
    ] = None
    title: Annotated[str | None, StringConstraints(min_length=1, max_length=500, pattern=WITHOUT_NUL)] = None
    mime_type: Annotated[
        str | None,
        StringConstraints(min_length=1, max_length=255, pattern=WITHOUT_NUL),
        Field(description="By default, as its beginning or the end of its address says."),
    ] = None
    metadata: Annotated[JsonObject, Field(default_factory=dict)]
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"source_uri": "handbook.md", "text": "# Returns\n\nWithin thirty days."}]}
    )

    def content(self) -> str | bytes:
        """Return the text, or the file's bytes.

        Raises:
            InvalidInputError: there are none or both, or it is not base64.
        """
        if (self.text is None) == (self.content_base64 is None):
            raise InvalidInputError("give one of text and content_base64")
        if self.text is not None:
            return self.text
        try:
            return base64.b64decode(self.content_base64 or "", validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInputError("content_base64 is not valid base64") from None


class KnowledgeSearchInput(Body):
    """A search in documents."""

    query: Annotated[str, StringConstraints(min_length=1, max_length=QUERY_LENGTH_MAX)]
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 10
    corpora: Corpora = None
    roles: Roles
    metadata: Metadata = None
    sources: Annotated[
        list[SourceUri] | None, Field(min_length=1, max_length=1000, description="Only documents of these addresses.")
    ] = None
    as_of: Annotated[Moment | None, Field(description="What was searched at this time, as far as it is kept.")] = None
    per_document: Annotated[
        int | None, Field(ge=1, le=LIMIT_MAX, description="At most this many chunks of each document.")
    ] = None
    fusion: Annotated[Fusion, Field(description="minmax: weighted scores; rrf: reciprocal ranks.")] = "minmax"
    query_embedding: Embedding | None = None
    embedding_model: Annotated[
        Name | None, Field(description="The model of query_embedding; by default the server's.")
    ] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "How long may goods be returned?"}]})


class KnowledgeQuestionInput(Body):
    """A question about documents."""

    question: Annotated[str, StringConstraints(min_length=1, max_length=answers.QUESTION_LENGTH_MAX)]
    corpora: Corpora = None
    roles: Roles
    metadata: Metadata = None
    as_of: Moment | None = None
    language: Literal["en", "zh"] | None = None
    max_tokens: Annotated[int, Field(ge=answers.WINDOW_TOKENS_MIN, le=answers.WINDOW_TOKENS_MAX)] = (
        answers.WINDOW_TOKENS
    )
    max_answer_tokens: Annotated[int, Field(ge=answers.ANSWER_TOKENS_MIN, le=answers.ANSWER_TOKENS_MAX)] = (
        answers.ANSWER_TOKENS
    )
    max_seconds: Annotated[float, Field(ge=answers.ANSWER_SECONDS_MIN, le=answers.ANSWER_SECONDS_MAX)] = (
        answers.ANSWER_SECONDS
    )
    model_config = ConfigDict(json_schema_extra={"examples": [{"question": "Who pays customs duties?"}]})


class ChunkingView(View):
    """How documents are split."""

    chunker: str
    tokens: int
    overlap: int
    tokens_min: int


class CorpusView(View):
    """A corpus."""

    name: str
    owner: Annotated[str | None, Field(description="The user whose own it is; null: the app's.")]
    description: str
    chunking: ChunkingView
    readers: list[str]
    writers: list[str]
    documents: int
    chunks: int
    created_at: datetime
    updated_at: datetime


class CorpusPageView(View):
    """A page of corpora, by their names."""

    corpora: list[CorpusView]
    next_cursor: NextCursor


class RemovedCorpusView(View):
    """What a removal took."""

    documents: int


class AddedDocumentView(View):
    """What an addition did."""

    document_id: uuid.UUID
    is_new: Annotated[bool, Field(description="False: the document says the same as before.")]


class RemovedDocumentView(View):
    """The document that was removed."""

    document_id: uuid.UUID


class DocumentView(View):
    """A document."""

    id: uuid.UUID
    corpus: str
    source_uri: str
    title: str
    mime_type: str
    metadata: EscapedObject
    version: Annotated[int, Field(description="That is searched; 0: none yet.")]
    last_version: Annotated[int, Field(description="That was given last.")]
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


class DocumentPageView(View):
    """A page of documents."""

    documents: list[DocumentView]
    next_cursor: NextCursor


class DocumentTextView(View):
    """A range of a document's text."""

    document_id: uuid.UUID
    corpus: str
    source_uri: str
    title: str
    version: int
    char_from: int
    char_upto: int
    length: Annotated[int, Field(description="Of the whole text, in characters.")]
    content: str


class KnowledgeHitView(View):
    """A chunk that matches, and where it is."""

    id: uuid.UUID
    document_id: uuid.UUID
    corpus: str
    source_uri: str
    title: str
    metadata: EscapedObject
    version: int
    chunk_index: int
    heading_path: list[str]
    page: int | None
    char_from: int
    char_upto: int
    content: str
    language: str | None
    score: float
    relevance_score: float
    bm25: float
    similarity: float | None
    matched_terms: list[str]


class KnowledgeResponseView(View):
    """What a search found, the best first."""

    hits: list[KnowledgeHitView]
    total_count: int
    query: str
    degraded: Annotated[str | None, Field(description="Why only the text was searched; null if nothing failed.")]
    reranked: Annotated[bool, Field(description="Whether a reranker ordered the first 50 of what was found.")]
    rerank_failure: Annotated[str | None, Field(description="Why not, although there is one: the first order stands.")]


class KnowledgeCitationView(View):
    """A place that an answer rests on."""

    id: uuid.UUID
    document_id: uuid.UUID
    corpus: str
    source_uri: str
    title: str
    version: int
    heading_path: list[str]
    page: int | None
    char_from: int
    char_upto: int
    text: str


class KnowledgeAnswerView(View):
    """An answer from documents."""

    text: Annotated[str, Field(description="Never empty; says so if the answer is not known.")]
    is_known: bool
    answered_by: AnsweredBy | None
    citations: list[KnowledgeCitationView]
    language: Literal["en", "zh"]
    model: str | None
    usage: UsageView
    degraded: str | None
