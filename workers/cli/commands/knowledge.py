"""`hippocampus knowledge`: documents of an app's corpora."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from hippocampus.errors import CorpusNotFoundError, UnreadableDocumentError
from hippocampus.knowledge.chunking import CHUNKERS, Chunker, Chunking
from hippocampus.knowledge.records import (
    DOCUMENT_STATUSES,
    AddedDocument,
    Corpus,
    Document,
    DocumentStatus,
    KnowledgeHit,
    KnowledgeResponse,
)
from workers import settings
from workers.cli import databases, output
from workers.cli.embedder import open_embedder, reranking
from workers.cli.groups import Listing
from workers.cli.options import json_option, known_or_set_up_app
from workers.cli.paging import Paged, PageOptions, limit_option, page_options

if TYPE_CHECKING:
    from hippocampus.knowledge.service import KnowledgeService
    from pulse.database import Pool

_POLL_SECONDS = 0.2
_SHOWN = 300
_CORPUS_COLUMNS = ("name", "owner", "documents", "chunks", "chunker", "readers", "writers", "description")
_COLUMNS = ("source", "title", "status", "version", "chunks", "error", "id")

app_option = click.option("--app", required=True, help="The app whose corpora these are.")
_read_app_option = click.option(
    "--app", required=True, callback=known_or_set_up_app, help="The app whose corpora these are."
)
user_option = click.option("--user", help="Act for this user; by default for the app itself.")


@click.group(cls=Listing, epilog="Example:  hippocampus knowledge add handbook docs/*.md --app shop")
def command() -> None:
    """Documents of an app's corpora: added, searched, listed and removed."""


@command.command("list", epilog="Example:  hippocampus knowledge list handbook --app shop")
@click.argument("corpus", required=False)
@_read_app_option
@user_option
@click.option("--status", type=click.Choice(DOCUMENT_STATUSES), help="Only documents of this status.")
@page_options(100)
def list_(corpus: str | None, app: str, user: str | None, status: DocumentStatus | None, options: PageOptions) -> None:
    """List the corpora, or the documents of one."""
    if corpus is None and status is None:
        _list_corpora(app, user, options)
        return

    async def work(pool: Pool) -> Paged[Document]:
        pages = options.of("documents", app, corpus, user, status)
        found = await _service(pool, app).documents(
            corpus=corpus, status=status, user_id=user, limit=options.limit, after=pages.begin(UUID)
        )
        return pages.full(found, lambda each: each.id)

    options.write(databases.run(work), _COLUMNS, _row, empty="There are no such documents.")


def _list_corpora(app: str, user: str | None, options: PageOptions) -> None:
    async def work(pool: Pool) -> Paged[Corpus]:
        pages = options.of("corpora", app, user)
        found = await _service(pool, app).corpora(
            user_id=user, limit=options.limit, after=pages.begin(tuple[str, UUID])
        )
        return pages.full(found, lambda each: (each.name, each.id))

    empty = "There are no corpora: see `hippocampus knowledge add --help`."
    options.write(databases.run(work), _CORPUS_COLUMNS, _corpus_row, empty=empty)


@command.command(epilog="Example:  hippocampus knowledge add handbook docs/*.md --app shop --wait")
@click.argument("corpus")
@click.argument("files", nargs=-1, required=True)
@app_option
@user_option
@click.option("--source", help="The document's address in the corpus, of one file; by default its path.")
@click.option("--title", help="Of one file; by default its own, or its name.")
@click.option("--reader", "readers", multiple=True, help="Of a new corpus: *, user:NAME or role:NAME. Repeatable.")
@click.option("--chunker", type=click.Choice(CHUNKERS), help="How documents are split from now on.")
@click.option("--tokens", type=int, help="The size of a chunk, with --chunker.")
@click.option("--wait", is_flag=True, help="Until workers have ingested them.")
@json_option
def add(
    corpus: str,
    files: tuple[str, ...],
    app: str,
    user: str | None,
    source: str | None,
    title: str | None,
    readers: tuple[str, ...],
    chunker: Chunker | None,
    tokens: int | None,
    wait: bool,
    as_json: bool,
) -> int:
    """Add files to a corpus, which is created if it does not exist; what is unchanged costs nothing."""
    if len(files) > 1 and (source is not None or title is not None):
        raise click.UsageError("--source and --title are of one file.")
    if tokens is not None and chunker is None:
        raise click.UsageError("--tokens needs --chunker.")
    chunking = None if chunker is None else Chunking(chunker=chunker, tokens=tokens)

    async def work(pool: Pool) -> tuple[list[dict[str, Any]], list[str]]:
        from hippocampus.knowledge.reading import read_document
        from hippocampus.knowledge.service import read_file

        service = _service(pool, app)
        done, refused = list[dict[str, Any]](), list[str]()
        is_prepared = False
        for name in files:
            try:
                if not is_prepared:
                    # Before anything is created for a file that cannot be read.
                    await read_document(read_file(Path(name)), name=name)
                    await _prepare(service, corpus, user, readers, chunking)
                    is_prepared = True
                added = await service.add(corpus, Path(name), source_uri=source, title=title, user_id=user)
            except UnreadableDocumentError as error:
                refused.append(str(error) if error.code == "unopened" else f"{name}: {error}")
                continue
            shown = await _shown(service, added, user, wait=wait)
            done.append({**output.plain(added), "source_uri": shown.source_uri, "status": shown.status})
            if shown.status == "failed":
                refused.append(f"{name}: {shown.error}")
        return done, refused

    done, refused = databases.run(work)
    if not done and refused:
        raise click.ClickException("; ".join(refused))
    if as_json:
        output.write_json(done)
    else:
        for each in done:
            click.echo(f"{each['status'] if each['is_new'] else 'unchanged':9} {each['source_uri']}")
    for line in refused:
        click.echo(f"refused   {line}", err=True)
    return 1 if refused else 0


async def _prepare(
    service: KnowledgeService, corpus: str, user: str | None, readers: Sequence[str], chunking: Chunking | None
) -> None:
    """Create the corpus, or change it as the options say."""
    if chunking is None and not readers:
        with contextlib.suppress(CorpusNotFoundError):
            await service.corpus(corpus, user_id=user)
            return
    await service.put_corpus(corpus, owner=user, readers=readers or None, chunking=chunking)


async def _shown(service: KnowledgeService, added: AddedDocument, user: str | None, *, wait: bool) -> Document:
    while True:
        found = await service.document(added.document_id, user_id=user)
        if not wait or found.status in ("ready", "failed"):
            return found
        await asyncio.sleep(_POLL_SECONDS)


@command.command(epilog="Example:  hippocampus knowledge search 'who pays customs duties' --app shop")
@click.argument("query")
@_read_app_option
@user_option
@click.option("--role", "roles", multiple=True, help="A role of the user. Repeatable.")
@click.option("--corpus", "corpora", multiple=True, help="Only this corpus. Repeatable.")
@limit_option(5)
@json_option
def search(
    query: str,
    app: str,
    user: str | None,
    roles: tuple[str, ...],
    corpora: tuple[str, ...],
    limit: int,
    as_json: bool,
) -> None:
    """Search documents, and show where each passage is."""

    async def work(pool: Pool) -> KnowledgeResponse:
        config = settings.load()
        embedder = open_embedder(config, pool)
        try:
            async with reranking(config, pool) as reranked:
                return await _service(pool, app, embedder, **reranked).search(
                    query, user_id=user, roles=roles, corpora=corpora or None, limit=limit
                )
        finally:
            await embedder.close()

    found = databases.run(work)
    for note in filter(None, (found.degraded, found.rerank_failure)):
        click.echo(note, err=True)
    if as_json:
        output.write_json([output.plain(each) for each in found.hits])
        return
    for number, hit in enumerate(found.hits, 1):
        text = " ".join(hit.content.split())
        click.echo(f"{number}. {_place(hit)}  ({hit.score:.2f})")
        click.echo(f"   {text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}")
    if not found.hits:
        click.echo("Nothing matches.")


@command.command(epilog="Example:  hippocampus knowledge show 0192… --app shop")
@click.argument("document_id", type=click.UUID)
@_read_app_option
@user_option
@json_option
def show(document_id: UUID, app: str, user: str | None, as_json: bool) -> None:
    """Show a document, and what became of its ingest."""
    found = databases.run(lambda pool: _service(pool, app).document(document_id, user_id=user))
    output.write_record(output.plain(found), as_json=as_json)


@command.command(epilog="Example:  hippocampus knowledge remove handbook docs/old.md --app shop")
@click.argument("corpus")
@click.argument("source", required=False)
@_read_app_option
@user_option
@click.option("--whole", is_flag=True, help="The whole corpus, with every document.")
@json_option
def remove(corpus: str, source: str | None, app: str, user: str | None, whole: bool, as_json: bool) -> None:
    """Remove a document, or with --whole a corpus: nothing of it is found any more."""
    if whole == (source is not None):
        raise click.UsageError("Name a document, or give --whole.")

    async def work(pool: Pool) -> int:
        service = _service(pool, app)
        if source is None:
            return await service.remove_corpus(corpus, user_id=user)
        await service.remove(corpus, source, user_id=user)
        return 1

    count = databases.run(work)
    if as_json:
        output.write_json({"documents": count})
    else:
        click.echo(f"{count} {'document is' if count == 1 else 'documents are'} removed.")


def _service(pool: Pool, app: str, embedder: Any = None, **options: Any) -> KnowledgeService:
    from hippocampus.knowledge.service import KnowledgeService

    return KnowledgeService(pool, app, embedder, **options)


def _place(hit: KnowledgeHit) -> str:
    headings = "".join(f" › {each}" for each in hit.heading_path)
    page = "" if hit.page is None else f", page {hit.page}"
    return f"{hit.corpus}: {hit.source_uri}{headings}{page}, characters {hit.char_from} to {hit.char_upto}"


def _row(each: Document) -> tuple[Any, ...]:
    chunks = each.chunks if each.status == "ready" else f"{each.chunks_done}/{each.chunks_total or '?'}"
    return (each.source_uri, each.title, each.status, each.version, chunks, each.error, each.id)


def _corpus_row(each: Corpus) -> tuple[Any, ...]:
    chunking = f"{each.chunking.chunker} {each.chunking.tokens}"
    readers, writers = " ".join(each.readers), " ".join(each.writers)
    return (each.name, each.owner, each.documents, each.chunks, chunking, readers, writers, each.description)
