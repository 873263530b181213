"""`hippocampus export`."""

from __future__ import annotations

import contextlib
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from pulse.session_key import session_not_found
from workers.cli import databases, output
from workers.cli.options import filter_options
from workers.transfer.sessions import Exported, export_sessions

if TYPE_CHECKING:
    from pulse.database import Pool


@click.command(
    epilog="Examples:  hippocampus export --app shop > shop.jsonl;  hippocampus export --user ann -o ann.jsonl.gz"
)
@filter_options("app", "user", "session")
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; a name that ends in .gz is compressed.  [default: stdout]",
)
def command(app: str | None, user: str | None, session: str | None, path: Path | None) -> None:
    """Write sessions with their events and states as JSONL, in one consistent snapshot.

    `hippocampus import` stores them in another database unchanged. `hippocampus memory export` writes what was derived
    from them.
    """

    async def work(pool: Pool) -> Exported:
        with _opened(path) as file:
            done = await export_sessions(pool, file.write, app_name=app, user_id=user, session_id=session)
            if session is not None and not done.sessions:
                raise session_not_found(session, app_name=app, user_id=user, hint="see `hippocampus sessions`")
            return done

    done = databases.run(work)
    click.echo(
        f"Exported {output.counted(done.sessions, 'session')} with {output.counted(done.events, 'event')}.", err=True
    )


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    """Open the output. A file gets its name once it is complete."""
    if path is None:
        yield sys.stdout
        return
    partial = path.with_name(f"{path.name}.part")
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(partial, "wt", encoding="utf-8") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written ({error.strerror}).") from error
    finally:
        partial.unlink(missing_ok=True)
