"""The routes of knowledge: an app's corpora and documents, and searches and answers on behalf of a user.

The app's routes act for the app, or for the user that the query names.
"""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from hippocampus.http import problems as memory_problems
from hippocampus.http.routes import knowledge_schemas as schemas
from hippocampus.knowledge.records import DocumentStatus
from hippocampus.knowledge.service import READ_MAX, KnowledgeServices
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.preconditions import OnlyNew
from pulse.http.edge.roles import asserted_roles, require
from pulse.http.edge.routing import APP_PATH, READS_FILE, USER_PATH, make_router
from pulse.http.edge.schemas import AppName, Name, PathName
from pulse.http.edge.services import service

router = make_router("knowledge", APP_PATH)
user_router = make_router("knowledge", USER_PATH)

Knowledge = Annotated[KnowledgeServices, service(KnowledgeServices)]
Acting = Annotated[Name | None, Query(description="Act for this user; by default for the app itself.")]

_MISSING = problems.documented(problems.NOT_FOUND, problems.INVALID_REQUEST)
_CHANGE = problems.documented(
    *problems.BODY, problems.NOT_FOUND, problems.INVALID_REQUEST, memory_problems.CORPUS_ACCESS
)


@router.get("/corpora", summary="List corpora", dependencies=[require("read")], response_model=schemas.CorpusPageView)
async def list_corpora(
    app_name: AppName, knowledge: Knowledge, page: Annotated[Page, page_of(100)], user: Acting = None
) -> Response:
    """List corpora by their names."""
    found = await knowledge.of(app_name).corpora(
        user_id=user, limit=page.limit, after=page.start(tuple[str, uuid.UUID])
    )
    following = page.next_cursor(found, lambda each: (each.name, each.id))
    return reply(schemas.CorpusPageView(corpora=[schemas.CorpusView.of(each) for each in found], next_cursor=following))


@router.put(
    "/corpora/{corpus}",
    summary="Create or change a corpus",
    dependencies=[require("admin")],
    response_model=schemas.CorpusView,
    responses=problems.documented(*problems.BODY, problems.INVALID_REQUEST, memory_problems.CORPUS_EXISTS),
)
async def put_corpus(
    app_name: AppName,
    corpus: PathName,
    body: schemas.CorpusInput,
    knowledge: Knowledge,
    only_new: OnlyNew,
    user: Acting = None,
) -> Response:
    """Create a corpus, of the app or of a user, or change one. What is null stays. `If-None-Match: *` only creates."""
    made = await knowledge.of(app_name).put_corpus(
        corpus,
        owner=user,
        description=body.description,
        chunking=None if body.chunking is None else body.chunking.chunking(),
        readers=body.readers,
        writers=body.writers,
        only_new=only_new,
    )
    return reply(schemas.CorpusView.of(made))


@router.get(
    "/corpora/{corpus}",
    summary="Read a corpus",
    dependencies=[require("read")],
    response_model=schemas.CorpusView,
    responses=_MISSING,
)
async def get_corpus(app_name: AppName, corpus: PathName, knowledge: Knowledge, user: Acting = None) -> Response:
    """Read what a corpus is, and how much is in it."""
    return reply(schemas.CorpusView.of(await knowledge.of(app_name).corpus(corpus, user_id=user)))


@router.delete(
    "/corpora/{corpus}",
    summary="Remove a corpus",
    dependencies=[require("admin")],
    response_model=schemas.RemovedCorpusView,
    responses=problems.documented(problems.NOT_FOUND, problems.INVALID_REQUEST, memory_problems.CORPUS_ACCESS),
)
async def remove_corpus(app_name: AppName, corpus: PathName, knowledge: Knowledge, user: Acting = None) -> Response:
    """Remove a corpus with everything in it."""
    count = await knowledge.of(app_name).remove_corpus(corpus, user_id=user)
    return reply(schemas.RemovedCorpusView(documents=count))


@router.get(
    "/corpora/{corpus}/documents",
    summary="List documents",
    dependencies=[require("read")],
    response_model=schemas.DocumentPageView,
    responses=_MISSING,
)
async def list_documents(
    app_name: AppName,
    corpus: PathName,
    knowledge: Knowledge,
    page: Annotated[Page, page_of(100)],
    user: Acting = None,
    status: DocumentStatus | None = None,
) -> Response:
    """List documents with what became of their ingest, in the order of their additions."""
    found = await knowledge.of(app_name).documents(
        corpus=corpus, status=status, user_id=user, limit=page.limit, after=page.start(uuid.UUID)
    )
    following = page.next_cursor(found, lambda each: each.id)
    return reply(
        schemas.DocumentPageView(documents=[schemas.DocumentView.of(each) for each in found], next_cursor=following)
    )


@router.post(
    "/corpora/{corpus}/documents",
    summary="Add or replace a document",
    dependencies=[require("append"), READS_FILE],
    response_model=schemas.AddedDocumentView,
    responses=problems.documented(
        *problems.BODY,
        problems.NOT_FOUND,
        problems.INVALID_REQUEST,
        memory_problems.CORPUS_ACCESS,
        memory_problems.UNREADABLE_DOCUMENT,
        memory_problems.LIBRARY_MISSING,
    ),
)
async def add_document(
    app_name: AppName, corpus: PathName, body: schemas.DocumentInput, knowledge: Knowledge, user: Acting = None
) -> Response:
    """Read a document, and have a worker ingest it; its former version is found until then."""
    added = await knowledge.of(app_name).add(
        corpus,
        body.content(),
        source_uri=body.source_uri,
        title=body.title,
        mime_type=body.mime_type,
        metadata=body.metadata,
        user_id=user,
    )
    return reply(schemas.AddedDocumentView.of(added))


@router.delete(
    "/corpora/{corpus}/documents",
    summary="Remove a document",
    dependencies=[require("append")],
    response_model=schemas.RemovedDocumentView,
    responses=problems.documented(problems.NOT_FOUND, problems.INVALID_REQUEST, memory_problems.CORPUS_ACCESS),
)
async def remove_document(
    app_name: AppName,
    corpus: PathName,
    knowledge: Knowledge,
    source_uri: Annotated[schemas.SourceUri, Query(description="The document's address.")],
    user: Acting = None,
) -> Response:
    """Remove a document with its versions, chunks, vectors and waiting job."""
    removed = await knowledge.of(app_name).remove(corpus, source_uri, user_id=user)
    return reply(schemas.RemovedDocumentView(document_id=removed))


@router.get(
    "/documents/{document_id}",
    summary="Read a document's state",
    dependencies=[require("read")],
    response_model=schemas.DocumentView,
    responses=_MISSING,
)
async def get_document(
    app_name: AppName, document_id: uuid.UUID, knowledge: Knowledge, user: Acting = None
) -> Response:
    """Read what a document is, and what became of its ingest."""
    return reply(schemas.DocumentView.of(await knowledge.of(app_name).document(document_id, user_id=user)))


@router.post(
    "/documents/{document_id}/retry",
    summary="Ingest a document again",
    dependencies=[require("append")],
    response_model=schemas.DocumentView,
    responses=problems.documented(
        problems.NOT_FOUND, problems.INVALID_REQUEST, memory_problems.CORPUS_ACCESS, memory_problems.JOB_NOT_FAILED
    ),
)
async def retry_document(
    app_name: AppName, document_id: uuid.UUID, knowledge: Knowledge, user: Acting = None
) -> Response:
    """Have a worker ingest a document again whose ingest has failed."""
    of_app = knowledge.of(app_name)
    await of_app.retry(document_id, user_id=user)
    return reply(schemas.DocumentView.of(await of_app.document(document_id, user_id=user)))


@user_router.get(
    "/documents/{document_id}/text",
    summary="Read a document's text",
    dependencies=[require("read")],
    response_model=schemas.DocumentTextView,
    responses=_MISSING,
)
async def read_document(
    owner: PathOwner,
    document_id: uuid.UUID,
    knowledge: Knowledge,
    request: Request,
    char_from: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    length: Annotated[int, Query(ge=1, le=READ_MAX)] = READ_MAX,
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="By default that which is searched.")] = None,
    role: Annotated[list[Name] | None, Query(max_length=100, description="A role of the user. Repeatable.")] = None,
) -> Response:
    """Read a range of a document's text, such as what is around a citation."""
    text = await knowledge.of(owner.app_name).read(
        document_id,
        char_from=char_from,
        char_upto=min(char_from + length, 2**31 - 1),
        version=version,
        user_id=owner.user_id,
        roles=asserted_roles(request, role or []),
    )
    return reply(schemas.DocumentTextView.of(text))


@user_router.post(
    "/knowledge/search",
    summary="Search documents",
    dependencies=[require("read")],
    response_model=schemas.KnowledgeResponseView,
    responses=_CHANGE,
)
async def search_knowledge(
    owner: PathOwner, body: schemas.KnowledgeSearchInput, knowledge: Knowledge, request: Request
) -> Response:
    """Find the chunks that match best in the corpora that the user may read."""
    given = {**dict(body), "roles": asserted_roles(request, body.roles)}
    found = await knowledge.of(owner.app_name).search(given.pop("query"), user_id=owner.user_id, **given)
    hits = [schemas.KnowledgeHitView.of(each) for each in found.hits]
    return reply(schemas.KnowledgeResponseView.of(found, hits=hits))


@user_router.post(
    "/knowledge/ask",
    summary="Answer a question from documents",
    dependencies=[require("read")],
    response_model=schemas.KnowledgeAnswerView,
    responses=problems.documented(
        *problems.BODY,
        problems.NOT_FOUND,
        problems.INVALID_REQUEST,
        memory_problems.MODEL_REFUSED,
        memory_problems.MODEL_UNAVAILABLE,
    ),
)
async def ask_knowledge(
    owner: PathOwner, body: schemas.KnowledgeQuestionInput, knowledge: Knowledge, request: Request
) -> Response:
    """Answer from the corpora that the user may read, with citations; without a model, by the passages that match."""
    given = {**dict(body), "roles": asserted_roles(request, body.roles)}
    answer = await knowledge.of(owner.app_name).ask(given.pop("question"), user_id=owner.user_id, **given)
    citations = [schemas.KnowledgeCitationView.of(each) for each in answer.citations]
    return reply(schemas.KnowledgeAnswerView.of(answer, citations=citations))
