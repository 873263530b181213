"""The retention's SQL: scores equal to those of Python, a trustworthy clock, functions safe for any caller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.retention import curves
from tests.support.properties import examples

if TYPE_CHECKING:
    from pulse.database import Connection

NOW = datetime(2031, 5, 4, 12, tzinfo=UTC)
ADD = """
INSERT INTO memories (app_name, user_id, content, initial_score, access_count, last_accessed_at, created_at)
VALUES ($1, 'u', $2, $3, $4, $5, $5) RETURNING id
"""


async def start_clock(conn: Connection) -> None:
    await conn.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")
    await travel(conn, 0)


async def travel(conn: Connection, days: float) -> None:
    """Set the database's clock to that many days after NOW, for this connection."""
    await conn.execute("SELECT set_config('hippocampus.fake_time', $1, false)", str(NOW + timedelta(days=days)))


async def add(conn: Connection, app: str = "shop", initial: float = 0.5, count: int = 0, days_ago: float = 0) -> UUID:
    found: UUID = await conn.fetchval(ADD, app, "Ana likes tea", initial, count, NOW - timedelta(days=days_ago))
    return found


async def score_of(conn: Connection, memory_id: UUID) -> float:
    found: float = await conn.fetchval(
        "SELECT retention_score(m, p) FROM memories AS m, app_policy(m.app_name) AS p WHERE m.id = $1", memory_id
    )
    return found


async def test_the_classic_score_has_its_published_value(conn: Connection) -> None:
    assert await conn.fetchval("SELECT calculate_retention_score(5, now() - interval '3 days')") == pytest.approx(
        0.4136372565, abs=1e-9
    )
    rows = await conn.fetch("SELECT calculate_retention_score(n, now()) FROM unnest(ARRAY[0, 1, 5, 10, 54]) AS n")
    expected = [0.2, 0.3386294361, 0.5583518938, 0.6795790546, 1.0]
    assert [row[0] for row in rows] == pytest.approx(expected, abs=1e-9)


@examples(30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["strength", "classic"]),
            st.floats(0, 1),
            st.integers(-3, 2**31 - 1),
            st.timedeltas(timedelta(days=-3000), timedelta(days=15000)).map(lambda age: NOW - age),
            st.floats(0, 100),
        ),
        min_size=1,
        max_size=50,
    )
)
def test_the_database_and_python_compute_the_same(
    dsn: str, cases: list[tuple[curves.Curve, float, int, datetime, float]]
) -> None:
    """To 1e-9, for both curves, any count, past and future accesses, any rate of a policy."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT retention_score(c, i, n, t, r, %s) FROM unnest("
            "%s::text[], %s::float8[], %s::int[], %s::timestamptz[], %s::float8[]) AS x (c, i, n, t, r)",
            [NOW, *(list(column) for column in zip(*cases, strict=True))],
        ).fetchall()
    for (found,), (curve, initial, count, at, rate) in zip(rows, cases, strict=True):
        days = (NOW - at).total_seconds() / 86400
        assert found == pytest.approx(curves.score(curve, initial, count, days, rate), abs=1e-9)


async def test_every_input_has_a_defined_score(conn: Connection) -> None:
    """NULL, the future, the infinite past, a negative count, a huge rate: none is an error, and none yields endless
    life."""
    row = await conn.fetchrow("""
        SELECT calculate_retention_score(NULL, now()) AS no_count,
               calculate_retention_score(-4, now()) AS negative_count,
               calculate_retention_score(2147483647, now()) AS greatest_count,
               calculate_retention_score(0, NULL) AS no_time,
               calculate_retention_score(0, now() + interval '9 years') AS future,
               calculate_retention_score(0, 'infinity') AS never_ends,
               calculate_retention_score(0, '-infinity') AS never_began,
               calculate_retention_score(0, now() - interval '1 day', -1) AS negative_rate,
               calculate_retention_score(0, now() - interval '900 years', 100) AS long_gone,
               calculate_retention_score(5, now() - interval '3 days', NULL) AS no_rate,
               memory_strength(NULL, NULL, NULL, NULL) AS nothing,
               memory_strength(7, 0, now()) AS too_strong""")
    assert row is not None
    assert dict(row) == pytest.approx(
        {
            "no_count": 0.2,
            "negative_count": 0.2,
            "greatest_count": 1.0,
            "no_time": 0.2,
            "future": 0.2,
            "never_ends": 0.2,
            "never_began": 0.0,
            "negative_rate": 0.2,
            "long_gone": 0.0,
            "no_rate": 0.4136372565,
            "nothing": 0.5,
            "too_strong": 1.0,
        },
        abs=1e-9,
    )


async def test_a_memory_fades_by_the_clock_without_being_written(conn: Connection) -> None:
    """The score falls while the row keeps its version."""
    await start_clock(conn)
    memory = await add(conn, initial=0.8)
    version = "SELECT xmin::text || ctid::text FROM memories WHERE id = $1"
    before = await conn.fetchval(version, memory)
    scores = []
    for days in (0, 1, 7, 30):
        await travel(conn, days)
        scores.append(await score_of(conn, memory))
    assert scores == pytest.approx([curves.strength(0.8, 0, days) for days in (0, 1, 7, 30)], abs=1e-9)
    assert scores == sorted(scores, reverse=True)
    assert await conn.fetchval(version, memory) == before


async def test_a_policys_curve_and_rate_decide(conn: Connection) -> None:
    await start_clock(conn)
    memory = await add(conn, "shop", initial=1.0, count=3)
    await travel(conn, 5)
    assert await score_of(conn, memory) == pytest.approx(curves.strength(1.0, 3, 5, 0.1), abs=1e-9)
    await conn.execute("""SELECT set_app_policy('shop', '{"retention_curve": "classic", "decay_rate": 0.3}')""")
    assert await score_of(conn, memory) == pytest.approx(curves.classic(3, 5, 0.3), abs=1e-9)


async def test_the_fake_clock_works_for_the_owner_alone(conn: Connection, dsn: str) -> None:
    """Another role may set the setting, and still gets the real time and the real scores."""
    await start_clock(conn)
    await travel(conn, 365)
    assert await conn.fetchval("SELECT engine_now()") == NOW + timedelta(days=365)
    role = "guest_" + await conn.fetchval("SELECT md5(current_database())")
    await conn.execute(f'CREATE ROLE "{role}" LOGIN; GRANT SELECT ON engine_settings TO "{role}"')
    try:
        await conn.execute(f'SET SESSION AUTHORIZATION "{role}"')
        await conn.execute("SET hippocampus.fake_time = '2099-01-01'")
        assert await conn.fetchval("SELECT engine_now() = now()")
        assert await conn.fetchval("SELECT calculate_retention_score(0, now())") == pytest.approx(0.2)
        await conn.execute("RESET SESSION AUTHORIZATION")
        await conn.execute(f'SET ROLE "{role}"')  # The owner acting as another role is still the owner.
        assert await conn.fetchval("SELECT engine_now() = '2099-01-01'")
    finally:
        await conn.execute("RESET ROLE; RESET SESSION AUTHORIZATION")
        await conn.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


async def test_a_database_in_production_has_no_fake_clock(conn: Connection) -> None:
    """Without test_clock even the owner gets the real time."""
    await travel(conn, 365)
    assert await conn.fetchval("SELECT engine_now() = now()")
    assert await conn.fetchval("SELECT calculate_retention_score(0, now())") == pytest.approx(0.2)


async def test_scores_over_many_rows_are_inlined(conn: Connection) -> None:
    """The plan has the formula, not a function call per row, and reads the policy and the clock once."""
    rows = await conn.fetch("""EXPLAIN (VERBOSE, COSTS OFF)
        SELECT retention_score(m, p, n) FROM memories AS m, app_policy('shop') AS p, engine_now() AS n""")
    plan = "\n".join(row[0] for row in rows)
    assert "exp(" in plan
    assert "retention_score(" not in plan
    rows = await conn.fetch(
        "EXPLAIN (VERBOSE) SELECT calculate_retention_score(access_count, created_at) FROM memories"
    )
    assert "exp(" in "\n".join(row[0] for row in rows)
    rows = await conn.fetch(
        "EXPLAIN (VERBOSE) SELECT FROM memories WHERE is_weak(initial_score, 0.1, pinned, created_at, 7, now())"
    )
    assert "is_weak(" not in "\n".join(row[0] for row in rows)


async def test_a_callers_search_path_changes_no_score(conn: Connection) -> None:
    """A function of the same name, earlier in the path, is not called."""
    expected = await conn.fetchval("SELECT calculate_retention_score(5, now() - interval '3 days')")
    await conn.execute("""
        CREATE SCHEMA evil;
        CREATE FUNCTION evil.exp(double precision) RETURNS double precision LANGUAGE sql RETURN 42;
        CREATE FUNCTION evil.engine_now() RETURNS timestamptz LANGUAGE sql RETURN 'epoch'::timestamptz;
        SET search_path = evil, pg_catalog, public""")
    assert await conn.fetchval("SELECT exp(1::double precision)") == 42
    found = await conn.fetchval("SELECT public.calculate_retention_score(5, now() - interval '3 days')")
    assert found == pytest.approx(expected, abs=1e-9)


async def test_every_function_is_safe_from_a_callers_search_path(conn: Connection) -> None:
    """Each pins its search_path, or was bound when it was created."""
    rows = await conn.fetch("""
        SELECT proname FROM pg_proc
        WHERE proname IN ('calculate_retention_score', 'memory_strength', 'retention_score', 'check_cleanup_arguments',
                          'is_weak', 'weak_memories', 'archive_weak_memories', 'cleanup_low_value_memories',
                          'retention_stats', 'set_app_policy')
          AND prosqlbody IS NULL AND NOT coalesce(proconfig::text LIKE '%search_path=%', false)""")
    assert rows == []


async def test_the_sql_cleanup_is_bounded_and_terminates(conn: Connection) -> None:
    """cleanup_low_value_memories removes up to 1,000 a call, and returns 0 once it is done."""
    await start_clock(conn)
    await conn.execute(
        "INSERT INTO memories (app_name, user_id, content) SELECT 'shop', 'u', 'x' FROM generate_series(1, 1500)"
    )
    assert await conn.fetchval("SELECT cleanup_low_value_memories()") == 0
    await travel(conn, 17)
    assert [await conn.fetchval("SELECT cleanup_low_value_memories()") for _ in range(3)] == [1000, 500, 0]
    assert await conn.fetchval("SELECT count(*) FROM memories_archive") == 1500


async def test_the_sql_cleanup_honours_explicit_limits(conn: Connection) -> None:
    """An explicit threshold or age, even 0, overrides those of the policies."""
    await start_clock(conn)
    for days_ago in (1, 17, 40):
        await add(conn, days_ago=days_ago)
    assert await conn.fetchval("SELECT cleanup_low_value_memories(0, 0)") == 0
    assert await conn.fetchval("SELECT cleanup_low_value_memories(0.1, 30)") == 1
    assert await conn.fetchval("SELECT cleanup_low_value_memories()") == 1
    assert await conn.fetchval("SELECT cleanup_low_value_memories(1.0, 0)") == 1


async def test_bad_arguments_are_refused_by_the_database(conn: Connection) -> None:
    """A call out of bounds raises HP007 and changes nothing."""
    await start_clock(conn)
    await add(conn, days_ago=100)
    for call in (
        "cleanup_low_value_memories(1.5)",
        "cleanup_low_value_memories('NaN')",
        "cleanup_low_value_memories(0.1, -1)",
        "archive_weak_memories(p_limit => 0)",
        "archive_weak_memories(p_limit => 1001)",
        "archive_weak_memories(p_limit => NULL)",
        "archive_weak_memories(p_min_age_days => 1e9)",
        "archive_weak_memories(p_decay_rate => -0.1)",
        "weak_memories(p_threshold => -1)",
        "retention_stats(p_threshold => 2)",
        """set_app_policy('shop', '{"decay": 1}')""",
        """set_app_policy('shop', '{"app_name": "other"}')""",
        """set_app_policy('', '{"decay_rate": 1}')""",
    ):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await conn.fetch(f"SELECT * FROM {call}")
        assert caught.value.sqlstate == "HP007", call
    assert await conn.fetchval("SELECT count(*) FROM memories") == 1
    assert await conn.fetchval("SELECT count(*) FROM app_policies") == 1


async def test_a_missing_default_policy_is_an_error_not_an_empty_run(conn: Connection) -> None:
    await conn.execute("DELETE FROM app_policies")
    for call in ("archive_weak_memories()", "retention_stats()", "weak_memories()", "set_app_policy('a', '{}')"):
        with pytest.raises(asyncpg.PostgresError, match="no row '\\*'"):
            await conn.fetch(f"SELECT * FROM {call}")


async def test_the_archive_has_every_column_of_a_memory(conn: Connection) -> None:
    """A column that a later migration adds to memories must reach the archive, unless it is derived."""
    await start_clock(conn)
    await conn.execute(
        """INSERT INTO memories (thread_id, app_name, user_id, memory_type, content, embedding, embedding_model,
               metadata, initial_score, access_count, last_accessed_at, from_seq, upto_seq, source_seqs, job_id,
               prompt_hash, model, occurred_at, created_at)
           SELECT t.thread_id, 'shop', 'u', 'summary', 'c', array_fill(0.5, ARRAY[1536])::vector, 'e', '{"a": 1}', 0.6,
                  3, $1, 4, 9, '{4,7}', new_id(), 'h', 'm', $1, $1
           FROM create_session('shop', 'u', 's') AS t""",
        NOW - timedelta(days=200),
    )
    rows = await conn.fetch("SELECT to_jsonb(m) - 'search' AS whole FROM memories AS m")
    assert all(value is not None for value in rows[0]["whole"].values())
    assert await conn.fetchval("SELECT archived FROM archive_weak_memories()") == 1
    archived = await conn.fetchrow(
        "SELECT to_jsonb(a) AS whole, score, archived_at, archive_reason FROM memories_archive AS a"
    )
    assert archived is not None
    whole = archived["whole"]
    assert {name: whole[name] for name in rows[0]["whole"]} == rows[0]["whole"]
    assert archived["score"] == pytest.approx(curves.strength(0.6, 3, 200), abs=1e-9)
    assert archived["archived_at"] == NOW
    assert archived["archive_reason"] == "strength < 0.1 at rate 0.1"


async def test_a_restored_memory_can_be_archived_again(conn: Connection) -> None:
    """The archive has the later state."""
    await start_clock(conn)
    memory = await add(conn, days_ago=50)
    for count in (0, 2):
        await conn.execute("UPDATE memories SET access_count = $1", count)
        assert await conn.fetchval("SELECT archived FROM archive_weak_memories(p_threshold => 1)") == 1
        if count == 0:
            await conn.execute(
                "INSERT INTO memories (id, app_name, user_id, content, created_at, last_accessed_at)"
                " SELECT id, app_name, user_id, content, created_at, last_accessed_at FROM memories_archive"
            )
    rows = await conn.fetch("SELECT id, access_count FROM memories_archive")
    assert [tuple(row) for row in rows] == [(memory, 2)]
