"""The statement gateway: it runs statements by name, translates SQLSTATEs and reports durations."""

from __future__ import annotations

import asyncpg
import pytest

from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.postgres.statements import Statements, load_queries, observe_statements


@pytest.fixture
def statements() -> Statements:
    """The session engine's statements."""
    return Statements("pulse", "sessions.sql")


async def test_our_sqlstate_becomes_its_error_class(pool: asyncpg.Pool, statements: Statements) -> None:
    """The message is the function's, the cause is the database's error."""
    with pytest.raises(SessionNotFoundError) as caught:
        await statements.fetch(pool, "finalize_session", "app", "ann", "nowhere")
    assert isinstance(caught.value.__cause__, asyncpg.PostgresError)


async def test_a_value_that_postgresql_cannot_store_is_invalid_input(
    pool: asyncpg.Pool, statements: Statements
) -> None:
    """The message does not quote the argument."""
    with pytest.raises(InvalidInputError, match="cannot hold") as caught:
        await statements.fetch(pool, "finalize_session", "app", "secret \0", "s")
    assert "secret" not in str(caught.value)


async def test_an_error_without_a_class_is_raised_unchanged(pool: asyncpg.Pool, statements: Statements) -> None:
    """Such as a missing table: a fault of the schema, not of the caller."""
    await pool.execute("ALTER TABLE threads RENAME TO elsewhere")
    with pytest.raises(asyncpg.UndefinedTableError):
        await statements.fetchrow(pool, "get_session", "app", "ann", "s", 0, None, None)


async def test_a_transaction_is_translated_too(conn: asyncpg.Connection, statements: Statements) -> None:
    """Statements outside the query file run inside `translating`."""
    with pytest.raises(InvalidInputError), statements.translating():
        await conn.fetchval("SELECT $1::text", "\ud800\0".encode("utf-8", "surrogatepass").decode("utf-8", "replace"))


async def test_durations_are_reported_until_the_observer_is_removed(pool: asyncpg.Pool, statements: Statements) -> None:
    """Also for failed statements."""
    reports: list[tuple[str, bool]] = []
    remove = observe_statements(lambda name, seconds, ok: reports.append((name, ok and seconds > 0)))
    with pytest.raises(SessionNotFoundError):
        await statements.fetch(pool, "finalize_session", "app", "ann", "nowhere")
    remove()
    with pytest.raises(SessionNotFoundError):
        await statements.fetch(pool, "finalize_session", "app", "ann", "nowhere")
    assert reports == [("finalize_session", False)]


def test_a_statement_that_is_missing_is_a_key_error(statements: Statements) -> None:
    """A misspelt name fails at once."""
    with pytest.raises(KeyError):
        statements["no_such_statement"]
    assert load_queries("pulse", "sessions.sql")["list_sessions"] == statements["list_sessions"]
