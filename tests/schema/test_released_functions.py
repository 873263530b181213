"""What a released program calls exists for as long as its contract fits the database."""

from __future__ import annotations

import asyncpg
import pytest

from tests.support import signatures
from tests.support.signatures import Signature
from workers.migrate import default_folder, read_schema

ADVICE = """
A running program of an earlier release calls it, and would fail from the moment of `migrate` until it is replaced. Keep
it: give a new argument a default, at the end; append a column to a result; give anything else a new name. To take it
away, raise the contract, which takes two releases: see schema/README.md."""


async def test_every_released_function_still_serves_its_callers(conn: asyncpg.Connection) -> None:
    ours = read_schema(default_folder())
    required = max(each.contract for each in (*ours.migrations, *ours.functions))
    promised = [each for contract, each in signatures.released() if contract >= required]
    rows = await conn.fetch(signatures.QUERY)
    present = [Signature.of(row) for row in rows]
    for each in promised:
        now = [str(other) for other in present if other.name == each.name]
        assert any(other.serves(each) for other in present), f"\nreleased: {each}\nnow: {now or 'none'}{ADVICE}"


async def test_the_list_has_what_the_programs_call(conn: asyncpg.Connection) -> None:
    """Most of the functions are called, and most of the called ones are released: the list is no empty promise."""
    called = await signatures.called(conn)
    listed = [each for _, each in signatures.released()]
    assert len(called) > 100
    assert sum(each in listed for each in called) > len(called) / 2


@pytest.mark.parametrize(
    ("now", "serves"),
    [
        ("f(a text, b integer?) -> TABLE(x uuid)", True),
        ("f(a text, b integer?, c text?) -> TABLE(x uuid)", True),
        ("f(a text?, b integer?) -> TABLE(x uuid)", True),
        ("f(a text, b integer?) -> TABLE(x uuid, y text)", True),
        ("f(a text, b integer?, c text) -> TABLE(x uuid)", False),
        ("f(a text, b integer) -> TABLE(x uuid)", False),
        ("f(a text) -> TABLE(x uuid)", False),
        ("f(a text, b bigint?) -> TABLE(x uuid)", False),
        ("f(z text, b integer?) -> TABLE(x uuid)", False),
        ("f(a text, c text?, b integer?) -> TABLE(x uuid)", False),
        ("f(a text, b integer?) -> TABLE(y uuid)", False),
        ("f(a text, b integer?) -> TABLE(x uuidx)", False),
        ("g(a text, b integer?) -> TABLE(x uuid)", False),
    ],
)
def test_what_a_signature_serves(now: str, serves: bool) -> None:
    released = Signature("f", ("a text", "b integer?"), "TABLE(x uuid)")
    name, _, rest = now.partition("(")
    arguments, _, result = rest.partition(") -> ")
    assert Signature(name, tuple(arguments.split(", ")), result).serves(released) == serves
