"""A database of ADK's own DatabaseSessionService, read page by page.

Version 1 of its schema is supported, which google-adk 2.x writes and records in ``adk_internal_metadata``. Version 0,
of google-adk 1.x, contains pickles: ADK's own ``adk migrate session`` converts it to version 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.sessions.schemas import v1
from sqlalchemy import ColumnElement, func, inspect, select, tuple_
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, InvalidRequestError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from pulse.errors import InvalidInputError

PAGE_SESSIONS: Final = 200
PAGE_EVENTS: Final = 200
SCHEMA_VERSION: Final = "1"
_DRIVERS: Final = {
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
    "mysql": "mysql+aiomysql",
}
_TABLES: Final = {
    "sessions": v1.StorageSession,
    "events": v1.StorageEvent,
    "app_states": v1.StorageAppState,
    "user_states": v1.StorageUserState,
}


class SourceError(InvalidInputError):
    """The source cannot be read, or is not a database of ADK's. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSession:
    """A session without its events; `state` has the keys of its own scope."""

    app_name: str
    user_id: str
    session_id: str
    state: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A shared state: a user's, or an app's where `user_id` is None. Keys have no prefix."""

    app_name: str
    user_id: str | None
    state: Mapping[str, Any]


class Source:
    """Reads ADK's tables. Each page is a separate query: no transaction stays open while a page is copied."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def counts(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        async with AsyncSession(self._engine) as session:
            return {
                name: int(await session.scalar(select(func.count()).select_from(table)) or 0)
                for name, table in _TABLES.items()
            }

    async def sessions(self) -> AsyncIterator[SourceSession]:
        """Yield every session, by app, user and id."""
        key = tuple_(v1.StorageSession.app_name, v1.StorageSession.user_id, v1.StorageSession.id)
        query = select(v1.StorageSession).order_by(*key).limit(PAGE_SESSIONS)
        after: tuple[str, str, str] | None = None
        while page := await self._page(query if after is None else query.where(key > after)):
            for row in page:
                yield SourceSession(
                    app_name=row.app_name,
                    user_id=row.user_id,
                    session_id=row.id,
                    state=dict(row.state),
                    created_at=_aware(row.create_time),
                    updated_at=_aware(row.update_time),
                )
            after = (page[-1].app_name, page[-1].user_id, page[-1].id)

    async def count_events(self, session: SourceSession) -> int:
        """Return the number of events of a session."""
        query = select(func.count()).select_from(v1.StorageEvent).where(*_of(session))
        async with AsyncSession(self._engine) as opened:
            return int(await opened.scalar(query) or 0)

    async def has_session(self, app_name: str, user_id: str, session_id: str) -> bool:
        """Whether a session with exactly these names exists."""
        async with AsyncSession(self._engine) as session:
            return await session.get(v1.StorageSession, (app_name, user_id, session_id)) is not None

    async def events(self, session: SourceSession) -> AsyncIterator[list[Event]]:
        """Yield a session's events in pages, by time and id."""
        table = v1.StorageEvent
        key = tuple_(table.timestamp, table.id)
        query = select(table).where(*_of(session)).order_by(table.timestamp, table.id).limit(PAGE_EVENTS)
        after: tuple[datetime, str] | None = None
        while page := await self._page(query if after is None else query.where(key > after)):
            yield [_event(row) for row in page]
            after = (page[-1].timestamp, page[-1].id)

    async def states(self) -> AsyncIterator[SourceState]:
        """Yield the states of all apps, then those of all users."""
        apps = select(v1.StorageAppState).order_by(v1.StorageAppState.app_name).limit(PAGE_SESSIONS)
        app: str | None = None
        while page := await self._page(apps if app is None else apps.where(v1.StorageAppState.app_name > app)):
            for row in page:
                yield SourceState(app_name=row.app_name, user_id=None, state=dict(row.state))
            app = page[-1].app_name
        key = tuple_(v1.StorageUserState.app_name, v1.StorageUserState.user_id)
        users = select(v1.StorageUserState).order_by(*key).limit(PAGE_SESSIONS)
        user: tuple[str, str] | None = None
        while page := await self._page(users if user is None else users.where(key > user)):
            for row in page:
                yield SourceState(app_name=row.app_name, user_id=row.user_id, state=dict(row.state))
            user = (page[-1].app_name, page[-1].user_id)

    async def _page(self, query: Any) -> list[Any]:
        async with AsyncSession(self._engine) as session:
            return list((await session.scalars(query)).all())


def _of(session: SourceSession) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions on the events of a session."""
    table = v1.StorageEvent
    return (
        table.app_name == session.app_name,
        table.user_id == session.user_id,
        table.session_id == session.session_id,
    )


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Source]:
    """Open ADK's database at a URL; the driver is chosen if the URL names none.

    Raises:
        SourceError: the URL is not valid, the database is unreachable, or its schema is not version 1.
    """
    try:
        address = make_url(url)
        if "+" not in address.drivername:
            address = address.set(drivername=_DRIVERS[address.drivername])
        _require_file(address)
        engine = create_async_engine(address)
    except ModuleNotFoundError as error:
        raise SourceError(
            f"Reading ADK's database needs the driver {error.name}, which is not installed: pip install {error.name}"
        ) from error
    except (ArgumentError, InvalidRequestError, KeyError, ImportError) as error:
        raise SourceError(
            "The address of ADK's database is not valid: write it as for DatabaseSessionService, such as"
            f" postgresql+asyncpg://user:password@host/name or sqlite+aiosqlite:///sessions.db ({type(error).__name__})"
        ) from error
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_check_version)
        yield Source(engine)
    except (SQLAlchemyError, OSError) as error:
        where = address.render_as_string(hide_password=True)
        raise SourceError(f"ADK's database at {where} cannot be read: {_reason(error)}") from error
    finally:
        await engine.dispose()


def _require_file(address: URL) -> None:
    """Refuse a missing file: SQLite would create it."""
    name = address.database or ":memory:"
    if (
        address.get_backend_name() == "sqlite"
        and not name.startswith((":memory:", "file:"))
        and not Path(name).exists()
    ):
        raise SourceError(
            f"There is no file {Path(name).absolute()}: use the address of DatabaseSessionService. With three slashes"
            " (sqlite:///sessions.db) it is relative to this directory, with four (sqlite:////) it is absolute."
        )


def _check_version(connection: Connection) -> None:
    inspector = inspect(connection)
    if not inspector.has_table(v1.StorageMetadata.__tablename__):
        columns = inspector.get_columns("events") if inspector.has_table("events") else []
        has_pickles = "actions" in {column["name"] for column in columns}
        raise SourceError(
            "This database has version 0 of ADK's schema, of google-adk 1.x: run `adk migrate session` first, and use"
            " the address of the database that it creates."
            if has_pickles and inspector.has_table("sessions")
            else "This is not a database of ADK's DatabaseSessionService: there is no table"
            f" {v1.StorageMetadata.__tablename__}."
        )
    version = connection.scalar(select(v1.StorageMetadata.value).where(v1.StorageMetadata.key == "schema_version"))
    if version != SCHEMA_VERSION:
        raise SourceError(f"This database has version {version} of ADK's schema; only version 1 can be copied.")


def _event(row: v1.StorageEvent) -> Event:
    try:
        return row.to_event()
    except ValueError as error:
        raise SourceError(
            f"the installed google-adk cannot read event {row.id!r} of session {row.session_id!r}: {error}"
        ) from error


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _reason(error: BaseException) -> str:
    # The full text of a driver's error contains the statement and its parameters.
    origin = getattr(error, "orig", None) or error
    return (str(origin).splitlines() or [type(origin).__name__])[0][:300]
