"""The parts of an app: which user is in which never changes, here and in SQL."""

from __future__ import annotations

from collections import Counter

import asyncpg
import pytest

from pulse.cells import PARTS_MAX, part_of, parts_of
from pulse.errors import InvalidInputError

IN_SQL = """
SELECT 'shop.' || (('x' || left(encode(sha256(convert_to($1, 'UTF8')), 'hex'), 8))::bit(32)::bigint * $2 >> 32)
"""


def test_a_user_is_always_in_the_same_part() -> None:
    # The hashes are those of `printf ann | sha256sum`: whoever changes the function loses sight of stored users.
    assert {user: part_of("shop", user, 16) for user in ("ann", "ben", "mei 梅", "🦉")} == {
        "ann": "shop.4",
        "ben": "shop.6",
        "mei 梅": "shop.13",
        "🦉": "shop.15",
    }
    assert part_of("shop", "ann", 1) == "shop.0"
    users = [f"user-{number}" for number in range(16_000)]
    counts = Counter(part_of("shop", user, 16) for user in users)
    assert sorted(counts) == sorted(parts_of("shop", 16))
    assert all(850 < count < 1_150 for count in counts.values()), counts
    # Parts are ranges of one order: with twice as many, each is cut in two.
    for user in users[:500]:
        coarse, fine = (int(part_of("shop", user, parts).rpartition(".")[2]) for parts in (16, 32))
        assert fine // 2 == coarse


async def test_sql_finds_the_same_part(pool: asyncpg.Pool) -> None:
    for user in ("ann", "mei 梅", "🦉", *(f"user-{number}" for number in range(20))):
        for parts in (1, 7, 16, PARTS_MAX):
            assert await pool.fetchval(IN_SQL, user, parts) == part_of("shop", user, parts)


@pytest.mark.parametrize(
    ("app", "user", "parts", "said"),
    [
        ("", "ann", 4, "app's name is empty"),
        ("shop", "", 4, "user's id is empty"),
        ("shop", "\ud83d", 4, "lone surrogate"),
        ("shop", "ann", 0, "0 parts: use 1 to 65536"),
        ("shop", "ann", PARTS_MAX + 1, "65537 parts"),
    ],
)
def test_what_has_no_part_is_refused(app: str, user: str, parts: int, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        part_of(app, user, parts)
