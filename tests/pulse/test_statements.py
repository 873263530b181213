"""The statement gateway: it runs statements by name, translates SQLSTATEs and reports durations."""

from __future__ import annotations

import re
from pathlib import Path

import asyncpg
import pytest

from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.postgres.statements import Statements, load_queries, observe_statements, translate

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize(
    ("statement", "arguments", "which"),
    [
        ("SELECT $1::text, $2::integer", ("a", 2**40), r"argument \$2"),
        ("SELECT $1::text[]", (["secret", "\ud800"],), r"argument \$1"),
        ("SELECT $1::text, $2::text", ("a", "secret\0"), r"argument \$2"),
        ("SELECT $1::jsonb", ("secret\ud800",), r"argument \$1"),
        ("SELECT $1::bigint::integer", (2**40,), "one of the arguments"),
        ("SELECT $1::text::jsonb", (r'"secret\u0000"',), "one of the arguments"),
    ],
)
async def test_the_message_names_the_argument(
    conn: asyncpg.Connection, statements: Statements, statement: str, arguments: tuple[object, ...], which: str
) -> None:
    """By its number, when the driver or the server names it."""
    with pytest.raises(InvalidInputError, match=f"cannot hold {which}: ") as caught, statements.translating():
        await conn.fetch(statement, *arguments)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "arguments", "kind"),
    [
        ("SELECT 1 / $1::integer", (0,), asyncpg.DivisionByZeroError),
        ("SELECT $1::text::integer", ("five",), asyncpg.InvalidTextRepresentationError),
        ("SELECT to_tsvector(repeat($1, 500000) || string_agg(n::text, ' ')) FROM generate_series(1, 200000) AS n",
         ("a ",), asyncpg.ProgramLimitExceededError),
    ],
)  # fmt: skip
async def test_a_fault_of_our_own_sql_is_raised_unchanged(
    conn: asyncpg.Connection, statements: Statements, statement: str, arguments: tuple[object, ...], kind: type
) -> None:
    """The caller's arguments are not to blame for it."""
    with pytest.raises(kind), statements.translating():
        await conn.fetch(statement, *arguments)


async def test_a_name_that_is_too_long_for_an_index_is_invalid_input(
    conn: asyncpg.Connection, statements: Statements
) -> None:
    """A statement that is too complex has nothing to do with names, though asyncpg's class is a subclass."""
    await conn.execute("CREATE TEMPORARY TABLE names (name text PRIMARY KEY)")
    with pytest.raises(InvalidInputError, match="too long for an index"), statements.translating():
        await conn.execute("INSERT INTO names SELECT string_agg(sha512(n::text::bytea)::text, '') "
                           "FROM generate_series(1, 30) AS n")  # fmt: skip
    complex_ = asyncpg.StatementTooComplexError("stack depth limit exceeded")
    assert translate(complex_) is complex_


async def test_a_whole_class_of_sqlstates_can_have_an_error_class(conn: asyncpg.Connection) -> None:
    statements = Statements("pulse", "sessions.sql", errors={"22": LookupError, "22012": ArithmeticError})
    with pytest.raises(LookupError), statements.translating():
        await conn.fetch("SELECT 'five'::text::integer")
    with pytest.raises(ArithmeticError), statements.translating():
        await conn.fetch("SELECT 1 / 0")


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
    assert reports == [("sessions.finalize_session", False)]


def test_no_two_statements_are_reported_under_one_name() -> None:
    """Query files of one name exist in several packages; their statements' names differ."""
    files = [file for package in ("pulse", "hippocampus", "workers") for file in (ROOT / package).rglob("*.sql")]
    names = [
        f"{file.stem}.{name}" for file in files for name in re.findall(r"^-- name: (\w+)$", file.read_text(), re.M)
    ]
    assert len(names) == len(set(names)) > 100


def test_a_statement_that_is_missing_is_a_key_error(statements: Statements) -> None:
    """A misspelt name fails at once."""
    with pytest.raises(KeyError):
        statements["no_such_statement"]
    assert load_queries("pulse", "sessions.sql")["list_sessions"] == statements["list_sessions"]
