"""Bitemporal facts: what was true when, as known when, against a plain model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import hypothesis
import psycopg
import pytest
from hypothesis import strategies as st

from tests.support.bitemporal_model import BitemporalFact
from tests.support.properties import examples

DAY = timedelta(days=1)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 8

#: (value, confidence, when it was said, how long after the previous one it was recorded): in days.
HEARD = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from([0.3, 0.55, 0.75, 0.8, 0.9, 1.0]),
        st.integers(0, DAYS),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=7,
)
RECORD = """
SELECT r.outcome
FROM (SELECT (jsonb_populate_record(NULL::threads,
          jsonb_build_object('app_name', 'app', 'user_id', %(user)s::text))).*) AS t
CROSS JOIN LATERAL record_fact(
    ROW(t.*)::threads, ROW(NULL, 1, 1, NULL, NULL, NULL)::slice_origin,
    ROW('profile', 'k', to_jsonb(%(value)s::text), 'k', NULL, %(confidence)s, ARRAY[%(seq)s::bigint],
        %(said)s::timestamptz, 'k', NULL, '')::fact_input) AS r
"""
HELD = """
SELECT a.as_of, k.known_at, f.value #>> '{}', f.confidence
FROM unnest(%(days)s::timestamptz[]) AS a (as_of) CROSS JOIN unnest(%(days)s::timestamptz[]) AS k (known_at)
CROSS JOIN LATERAL facts_as_of('app', %(user)s, a.as_of, k.known_at) AS f
"""
_users = itertools.count()


def day(number: int) -> datetime:
    return EPOCH + number * DAY


@contextmanager
def at(conn: psycopg.Connection, number: int) -> Iterator[None]:
    """Set the engine's clock to a day."""
    with conn.transaction():
        conn.execute("SELECT set_config('hippocampus.fake_time', %s, true)", [day(number).isoformat()])
        yield


@pytest.mark.hypothesis
def test_every_pair_of_times_agrees_with_the_plain_model(dsn: str) -> None:
    """Statements in any order, certain and uncertain, late and repeated: every as_of and known_at agrees."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")

        @examples(30)
        @hypothesis.given(HEARD)
        def agrees(statements: list[tuple[str, float, int, int]]) -> None:
            user, model, now = f"u{next(_users)}", BitemporalFact(), 0
            for seq, (value, confidence, said, pause) in enumerate(statements, 1):
                now += pause
                with at(conn, now):
                    conn.execute(
                        RECORD,
                        {"user": user, "value": value, "confidence": confidence, "said": day(said), "seq": seq},
                    )
                model.record(value, confidence, said, now)
            days = range(max(DAYS, now) + 2)
            rows = conn.execute(HELD, {"user": user, "days": [day(n) for n in days]}).fetchall()
            held = {(row[0], row[1]): (row[2], row[3]) for row in rows}
            for as_of, known_at in itertools.product(days, days):
                assert held.get((day(as_of), day(known_at))) == model.holds(as_of, known_at), (as_of, known_at)
            current = conn.execute("SELECT value #>> '{}', confidence FROM facts WHERE user_id = %s", [user]).fetchone()
            assert current == model.holds(now, now)

        agrees()


def test_what_was_known_is_never_rewritten(dsn: str) -> None:
    """A backdated confirmation extends a fact's validity from now on; what was known before stays unchanged."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")
        for now, said, confidence in ((5, 5, 0.6), (7, 2, 0.9)):
            with at(conn, now):
                conn.execute(
                    RECORD, {"user": "u", "value": "Porto", "confidence": confidence, "said": day(said), "seq": now}
                )

        def held(as_of: int, known_at: int) -> object:
            query = "SELECT value #>> '{}', confidence FROM facts_as_of('app', 'u', %s, %s)"
            return conn.execute(query, [day(as_of), day(known_at)]).fetchone()

        assert held(3, 6) is None
        assert held(3, 7) == ("Porto", 0.9)
        assert held(6, 6) == ("Porto", 0.6)


def test_an_uncertain_statement_that_arrives_late_is_never_valid(dsn: str) -> None:
    """Neither between two certain ones, nor before the first; repeated often enough, it holds from when it was said."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")

        def record(value: str, confidence: float, said: int, now: int) -> str:
            with at(conn, now):
                values = {"user": "u", "value": value, "confidence": confidence, "said": day(said), "seq": now}
                row = conn.execute(RECORD, values).fetchone()
            assert row is not None
            return str(row[0])

        def held(as_of: int) -> list[str]:
            query = "SELECT value #>> '{}' FROM facts_as_of('app', 'u', %s, 'infinity')"
            return [row[0] for row in conn.execute(query, [day(as_of)]).fetchall()]

        assert record("Lisbon", 0.9, 2, 10) == "created"
        assert record("Faro", 0.9, 6, 11) == "updated"
        assert record("Mars", 0.5, 3, 12) == "candidate"
        assert record("Mars", 0.5, 1, 13) == "candidate"
        assert [held(n) for n in (1, 3, 7)] == [[], ["Lisbon"], ["Faro"]]
        assert record("Mars", 0.5, 4, 14) == "candidate"
        assert record("Mars", 0.5, 5, 15) == "promoted"
        assert [held(n) for n in (1, 2, 3, 5, 7)] == [[], ["Lisbon"], ["Mars"], ["Mars"], ["Faro"]]


def test_of_two_simultaneous_statements_the_later_one_holds_from_then(dsn: str) -> None:
    """Both are in the ledger once, with the time at which they were made; none is added for the time of recording."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")
        for now, value in ((5, "Porto"), (6, "Faro")):
            with at(conn, now):
                conn.execute(RECORD, {"user": "u", "value": value, "confidence": 0.9, "said": day(2), "seq": now})
        ledger = "SELECT value #>> '{}', valid_from, recorded_at FROM fact_versions ORDER BY recorded_at"
        assert conn.execute(ledger).fetchall() == [("Porto", day(2), day(5)), ("Faro", day(2), day(6))]
        assert conn.execute("SELECT value #>> '{}', valid_from FROM facts").fetchall() == [("Faro", day(2))]
