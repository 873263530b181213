"""`hippocampus export`."""

from __future__ import annotations

import contextlib
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from pulse.errors import SessionNotFoundError
from workers.cli import databases
from workers.transfer.sessions import Exported, export_sessions

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@click.command(
    epilog="Examples:  hippocampus export --app shop > shop.jsonl;  hippocampus export --user ann -o ann.jsonl.gz"
)
@click.option("--app", help="Of this app only.")
@click.option("--user", help="Of this user only.")
@click.option("--session", help="This session only.")
@click.option(
    "-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path), help="Where to; .gz packs it. [stdout]"
)
def command(app: str | None, user: str | None, session: str | None, path: Path | None) -> None:
    """Write sessions with their events and states as JSONL, as of one moment.

    `hippocampus import` stores them in another database just as they are here. What was drawn from them is exported
    by `hippocampus memory export`.
    """

    async def work(_config: Settings, pool: Pool) -> Exported:
        with _opened(path) as file:
            done = await export_sessions(pool, file.write, app_name=app, user_id=user, session_id=session)
            if session is not None and not done.sessions:
                raise SessionNotFoundError(f"There is no session {session!r} to export: see `hippocampus sessions`.")
            return done

    done = databases.run(work)
    click.echo(f"Exported {done.sessions} sessions with {done.events} events.", err=True)


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    """Open the output; a file gets its name once it is whole."""
    if path is None:
        yield sys.stdout
        return
    part = path.with_name(f"{path.name}.part")
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(part, "wt", encoding="utf-8") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise click.ClickException(f"{path} can't be written ({error.strerror}).") from error
    finally:
        part.unlink(missing_ok=True)
