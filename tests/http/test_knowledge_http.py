"""The routes of knowledge, at a real writer, through the client; and who may assert roles."""

from __future__ import annotations

from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hippocampus.client import ConflictError, HippocampusClient, InvalidRequestError, KeyRefusedError, NotFoundError
from hippocampus.http.routes import knowledge
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from pulse import database
from pulse.api_keys import Grant
from pulse.http.edge import problems
from pulse.http.edge.bodies import Admission, FileAdmission
from pulse.http.edge.roles import require
from pulse.http.edge.routing import APP_PATH, READS_FILE, make_router
from pulse.http.edge.services import provide
from tests.support import documents
from tests.support.key_scene import made
from tests.support.writer_process import KEY, WriterProcess


async def test_documents_through_the_client(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """A corpus is made, filled, searched, asked and removed; what cannot be read is refused with the reason."""
    async with (
        HippocampusClient(writer.url, KEY, app_name=app) as client,
        await database.create_pool(writer_dsn) as pool,
    ):
        service = KnowledgeService(pool, app, LocalEmbedder())
        made_corpus = await client.put_corpus(
            "book", chunking={"chunker": "structure"}, readers=["user:ann", "role:hr"]
        )
        assert (made_corpus.owner, made_corpus.chunking["tokens"]) == (None, 512)
        with pytest.raises(ConflictError, match="there is a corpus 'book' of this owner"):
            await client.put_corpus("book", description="", readers=["*"], writers=[], only_new=True)
        assert await client.corpus("book") == made_corpus
        assert (await client.put_corpus("book", user="eve", only_new=True)).owner == "eve"
        assert await client.remove_corpus("book", user="eve") == 0
        pdf = documents.pdf(["The kiln is lit at dawn.", "Customs duties are paid by the receiver."])
        added = await client.add_document("book", "kiln.pdf", pdf, metadata={"k": 1})
        assert (added.is_new, (await client.document(added.document_id)).status) == (True, "waiting")
        await service.ingest(UUID(added.document_id))
        assert not (await client.add_document("book", "kiln.pdf", pdf, metadata={"k": 1})).is_new
        await client.add_document("book", "b.md", "# B\n\ntext")
        assert [each.source_uri async for each in client.documents("book", page_size=1)] == ["kiln.pdf", "b.md"]
        assert [each.name async for each in client.corpora(page_size=1)] == ["book"]
        (hit,) = await client.search_knowledge("ann", "who pays customs duties?", limit=1, metadata={"k": 1})
        assert (hit.source_uri, hit.page) == ("kiln.pdf", 2)
        text = await client.read_document("ann", hit.document_id, char_from=hit.char_from, length=7)
        assert text == hit.content[:7]
        plain = await client.context("ann", "customs duties", explain=True)
        window = await client.context("ann", "customs duties", document_ratio=0.5, explain=True)
        (item,) = [each for each in window.items if each["metadata"]["page"] == 2]
        assert (item["context_type"], item["metadata"]["document_id"]) == ("document", hit.document_id)
        assert "[kiln.pdf, 2 (kiln.pdf)] Customs duties" in window.text
        assert not plain.text
        assert not (await client.context("bob", "customs duties", document_ratio=0.5)).text
        with pytest.raises(NotFoundError):
            await client.context("bob", "customs", document_ratio=0.5, corpora=["book"])
        assert (await client.context("bob", "customs", document_ratio=0.5, corpora=["book"], roles=["hr"])).items
        answer = await client.ask_knowledge("ann", "who pays customs duties?")
        assert (answer.answered_by, answer.citations[0].page) == ("passages", 2)
        assert await client.search_knowledge("bob", "customs") == []
        assert len(await client.search_knowledge("bob", "customs", roles=["hr"])) == 1
        with pytest.raises(NotFoundError):
            await client.read_document("bob", hit.document_id)
        for wrong in (documents.encrypted_pdf(), b""):
            with pytest.raises(InvalidRequestError):
                await client.add_document("book", "wrong.pdf", wrong)
        with pytest.raises(KeyRefusedError, match="may read corpus"):
            await client.add_document("book", "x.md", "x", user="ann")
        with pytest.raises(NotFoundError):
            await client.add_document("nothing", "x.md", "x")
        (waiting,) = [each async for each in client.documents("book", status="waiting")]
        with pytest.raises(ConflictError, match="is waiting: only one whose ingest has failed"):
            await client.retry_document(waiting.id)
        failed = "UPDATE knowledge_documents SET status = 'failed', error_code = 'x', error = 'y' WHERE id = $1"
        await pool.execute(failed, UUID(waiting.id))
        with pytest.raises(KeyRefusedError, match="may read corpus"):
            await client.retry_document(waiting.id, user="ann")
        with pytest.raises(NotFoundError):
            await client.retry_document(waiting.id, user="bob")
        assert (await client.retry_document(waiting.id)).status == "waiting"
        assert await pool.fetchval("SELECT error FROM knowledge_documents WHERE id = $1", UUID(waiting.id)) is None
        await service.ingest(UUID(waiting.id))
        assert (await client.document(waiting.id)).status == "ready"
        assert await client.remove_document("book", "b.md")
        assert (await client.corpus("book")).documents == 1
        assert await client.remove_corpus("book") == 1
        with pytest.raises(NotFoundError):
            await client.corpus("book")


async def test_a_key_of_one_user_asserts_no_roles(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """The user may hold it: roles are the app's to assert. It searches what the user may read, and changes nothing."""
    key = await made(writer_dsn, app, "admin", user_id="ann")
    async with HippocampusClient(writer.url, key.text, app_name=app) as client:
        assert await client.search_knowledge("ann", "anything") == []
        with pytest.raises(KeyRefusedError):
            await client.search_knowledge("ann", "anything", roles=["hr"])
        with pytest.raises(KeyRefusedError):
            await client.context("ann", "anything", document_ratio=0.1, roles=["hr"])
        with pytest.raises(KeyRefusedError):
            await client.put_corpus("book", user="ann")


async def test_a_file_takes_no_slot_of_other_writes() -> None:
    """While every place of the uploads is taken, another write is served, and an upload is refused."""
    router = make_router("knowledge", APP_PATH)
    router.add_api_route("/file", _written, methods=["PUT"], dependencies=[require("append"), READS_FILE])
    router.add_api_route("/text", _written, methods=["PUT"], dependencies=[require("append")])
    api = FastAPI()
    api.router.routes.extend(router.routes)
    provide(api, {Admission: Admission(at_once=1), FileAdmission: FileAdmission(at_once=1, waiting_max=0)})
    problems.install(api, lambda kind: None)

    async def as_service(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["grant"] = Grant(key_id="k", app_name=None, roles=frozenset(["append"]))
        await api(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(as_service), base_url="http://test") as client:
        assert (await client.put("/v1/apps/shop/text")).status_code == 204
        assert (await client.put("/v1/apps/shop/file")).status_code == 503
    marked = [
        each.path for each in knowledge.router.routes if isinstance(each, APIRoute) and READS_FILE in each.dependencies
    ]
    assert marked == [f"{APP_PATH}/corpora/{{corpus}}/documents"]


async def _written() -> Response:
    return Response(status_code=204)
