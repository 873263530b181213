"""The context window: its selection, its number of database queries, and which accesses it records."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest

from hippocampus.context.languages import day
from hippocampus.context_assembler import ContextAssembler
from hippocampus.errors import ContextBudgetError, EmbeddingDimensionError, ProviderError, RateLimitedError
from hippocampus.instructions import InstructionStore
from pulse.errors import InvalidInputError, SessionNotFoundError
from tests.support.memory_rows import (
    APP,
    ExhaustedEmbedder,
    WordEmbedder,
    add_fact,
    add_memory,
    consolidate_fast,
    days_ago,
    say,
)

MEI = "mei"


@pytest.fixture
def assembler(pool: asyncpg.Pool) -> ContextAssembler:
    return ContextAssembler(pool, WordEmbedder(), language="en")


@pytest.fixture
async def known(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """A user with two sessions, of which the first is consolidated."""
    await say(pool, MEI, "s-1", "I moved to Lisbon", "My cat is called Miso")
    await consolidate_fast(conn, "s-1")
    await say(pool, MEI, "s-2", "Good morning", "What does my cat like to eat?")
    await add_memory(conn, MEI, "Mei's cat Miso likes sardines")
    await add_memory(conn, MEI, "Mei moved to Lisbon", memory_type="summary")
    await add_fact(conn, MEI, "city", "Lisbon", confidence=0.9, fact_type="profile")
    await add_fact(conn, MEI, "cat", {"name": "Miso"}, confidence=0.5)


async def test_a_window_holds_system_facts_memories_and_history_in_order(
    known: None, assembler: ContextAssembler
) -> None:
    """With the dates of facts, memories and turns; what an answer in another session was asked for is beside it."""
    window = await assembler.assemble(
        app_name=APP, user_id=MEI, session_id="s-2", query="What does my cat like to eat?", system_prompt="Be kind."
    )
    today = day(datetime.now(UTC), "en")
    assert assembler.format_context(window) == "\n".join(
        [
            "Be kind.",
            "",
            "## User preferences",
            f"- [profile] city: Lisbon ({today})",
            f'- [preference] cat: {{"name": "Miso"}} ({today})',
            "",
            "## Relevant memories",
            f"- Mei's cat Miso likes sardines ({today})",
            f"- Mei moved to Lisbon ({today})",
            today,
            "[user]: I moved to Lisbon",
            "[user]: My cat is called Miso",
            "",
            "## Conversation history",
            "[user]: Good morning",
            "[user]: What does my cat like to eat?",
        ]
    )
    assert window.total_tokens <= window.max_tokens == 8000
    assert window.degraded is None


async def test_recent_messages_of_another_session_are_included(pool: asyncpg.Pool, assembler: ContextAssembler) -> None:
    await say(pool, MEI, "s-1", "The code of the gate is 4711")
    await say(pool, MEI, "s-2", "What is the code of the gate?")
    window = await assembler.assemble(
        app_name=APP, user_id=MEI, session_id="s-2", query="What is the code of the gate?"
    )
    assert [item.content for item in window.items if item.context_type == "memory"] == ["The code of the gate is 4711"]


async def test_the_newest_event_is_always_included(pool: asyncpg.Pool, assembler: ContextAssembler) -> None:
    for start in range(0, 60, 20):
        await say(pool, MEI, "s", *[f"turn {n} " + "and so on " * 20 for n in range(start, start + 20)])
    await say(pool, MEI, "s", "MARKER")
    for budget in (30, 100, 1000):
        window = await assembler.assemble(app_name=APP, user_id=MEI, session_id="s", query="so on", max_tokens=budget)
        history = [item.content for item in window.items if item.context_type == "history"]
        assert history[-1] == "[user]: MARKER"


async def test_another_user_and_another_app_see_nothing(known: None, assembler: ContextAssembler) -> None:
    for user, app in ((MEI, "other"), ("tom", APP)):
        assert (await assembler.assemble(app_name=app, user_id=user, session_id=None, query="cat")).items == ()
        with pytest.raises(SessionNotFoundError):
            await assembler.assemble(app_name=app, user_id=user, session_id="s-2", query="cat")


@pytest.mark.parametrize("blank", ["", " ", "\u3000", "\0\n"])
async def test_a_blank_query_returns_what_is_known_without_a_search(
    known: None, assembler: ContextAssembler, blank: str
) -> None:
    window = await assembler.assemble(app_name=APP, user_id=MEI, session_id="s-2", query=blank)
    assert [(item.context_type, item.content) for item in window.items][:3] == [
        ("fact", "[profile] city: Lisbon"),
        ("fact", '[preference] cat: {"name": "Miso"}'),
        ("memory", "Mei moved to Lisbon"),
    ]


async def test_an_expired_fact_is_not_in_the_window(conn: asyncpg.Connection, assembler: ContextAssembler) -> None:
    await add_fact(conn, MEI, "city", "Porto", valid_from=days_ago(9), valid_until=days_ago(1))
    assert (await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="city Porto")).items == ()


async def test_access_is_recorded_once_for_each_included_memory(
    conn: asyncpg.Connection, assembler: ContextAssembler
) -> None:
    kept = await add_memory(conn, MEI, "the cat likes sardines", memory_type="summary")
    left = await add_memory(conn, MEI, "the cat " * 500)
    await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="cat", max_tokens=100)
    counts = dict(await conn.fetch("SELECT id, access_count FROM memories"))
    assert counts == {kept: 1, left: 0}


async def test_a_query_that_cannot_be_embedded_still_gives_a_window(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    reasons: list[str] = []
    assembler = ContextAssembler(pool, ExhaustedEmbedder(), on_degraded=reasons.append)
    await add_memory(conn, MEI, "the cat likes sardines")
    window = await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="cat")
    assert [item.content for item in window.items] == ["the cat likes sardines"]
    assert window.degraded is not None
    assert reasons == ["RateLimitedError"]


async def test_budgets_of_concurrent_calls_are_independent(pool: asyncpg.Pool, assembler: ContextAssembler) -> None:
    await say(pool, MEI, "s", *["some words " * 20] * 40)
    budgets = [50, 400, 8000] * 4
    windows = await asyncio.gather(
        *(assembler.assemble(app_name=APP, user_id=MEI, session_id="s", query="words", max_tokens=b) for b in budgets)
    )
    assert [window.max_tokens for window in windows] == budgets
    assert all(window.total_tokens <= window.max_tokens for window in windows)


async def test_two_round_trips_at_most(known: None, pool: asyncpg.Pool) -> None:
    statements: list[str] = []
    async with pool.acquire() as connection:
        assembler = ContextAssembler(_OneConnection(connection), WordEmbedder())  # type: ignore[arg-type]
        # The driver looks up types once.
        await assembler.assemble(app_name=APP, user_id=MEI, session_id="s-2", query="cat")
        connection.add_query_logger(lambda query: statements.append(query.query))
        await assembler.assemble(app_name=APP, user_id=MEI, session_id="s-2", query="cat")
    await asyncio.sleep(0)  # The driver logs a query in the next iteration of the loop.
    assert len(statements) == 2


class _OneConnection:
    """A pool of one given connection."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.fetch, self.fetchval = connection.fetch, connection.fetchval


async def test_bad_input_is_refused(known: None, pool: asyncpg.Pool, assembler: ContextAssembler) -> None:
    with pytest.raises(InvalidInputError, match="max_tokens"):
        await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="cat", max_tokens=0)
    with pytest.raises(EmbeddingDimensionError):
        await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="cat", query_embedding=[0.5] * 768)
    with pytest.raises(ContextBudgetError):
        await assembler.assemble(
            app_name=APP, user_id=MEI, session_id=None, query="cat", system_prompt="rule " * 100, max_tokens=20
        )
    for ratios in ({"memory_ratio": 0.9}, {"fact_ratio": -0.1}, {"history_ratio": float("nan")}):
        with pytest.raises(InvalidInputError, match="ratios"):
            ContextAssembler(pool, **ratios)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="language"):
        ContextAssembler(pool, language="fr")  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [0, 20, 60, 250, 1000])
async def test_the_sql_window_keeps_its_budget(
    known: None, pool: asyncpg.Pool, conn: asyncpg.Connection, budget: int
) -> None:
    await say(pool, MEI, "s-2", *["and more words " * 8] * 30, "MARKER")
    rows = await conn.fetch("SELECT * FROM get_context_window($1, $2, 'cat', NULL, $3)", MEI, APP, budget)
    assert sum(row["token_estimate"] for row in rows) <= budget
    history = [row["content"] for row in rows if row["context_type"] == "history"]
    assert not history or history[-1] == "[user]: MARKER"
    if budget >= 250:
        assert {row["context_type"] for row in rows} == {"fact", "memory", "history"}
        assert "Mei's cat Miso likes sardines" in {row["content"] for row in rows}


async def test_the_sql_window_rejects_shares_over_one(conn: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await conn.fetch("SELECT * FROM get_context_window('u', 'a', 'cat', NULL, 100, 0.6, 0.6)")
    assert caught.value.sqlstate == "HP007"


async def test_the_sql_window_keeps_the_beginning_of_a_newest_turn_over_its_share(
    known: None, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    await say(pool, MEI, "s-2", "older", "NEWEST " + "and much more " * 400)
    rows = await conn.fetch("SELECT * FROM get_context_window($1, $2, 'cat', NULL, 200)", MEI, APP)
    (turn,) = [row["content"] for row in rows if row["context_type"] == "history"]
    assert turn.startswith("[user]: NEWEST and")
    assert turn.endswith(" […]")
    assert {row["context_type"] for row in rows} == {"fact", "memory", "history"}
    assert sum(row["token_estimate"] for row in rows) <= 200


async def test_the_sql_window_reassigns_unspent_shares(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """With nothing learned yet, the history gets the whole budget; no text appears twice."""
    await say(pool, MEI, "s", *[f"turn {n} and some more words" for n in range(60)])
    rows = await conn.fetch("SELECT * FROM get_context_window($1, $2, '', NULL, 150)", MEI, APP)
    assert sum(row["token_estimate"] for row in rows) > 130
    assert rows[-1]["content"] == "[user]: turn 59 and some more words"
    assert len({row["content"] for row in rows}) == len(rows)


class _Strict:
    """A model that counts every character as a token."""

    model = "strict-1"

    def __init__(self, error: ProviderError | None = None) -> None:
        self.error = error
        self.counted: list[int] = []

    async def count(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        self.counted.append(len(text))
        return len(text)


async def test_a_window_over_the_budget_by_the_models_count_is_packed_smaller(pool: asyncpg.Pool) -> None:
    await say(pool, MEI, "s", *["some words " * 5] * 40)
    strict = _Strict()
    assembler = ContextAssembler(pool, max_tokens=300, window_counter=strict, language="en")
    window = await assembler.assemble(app_name=APP, user_id=MEI, session_id="s", query="")
    assert len(assembler.format_context(window)) == window.total_tokens <= window.max_tokens == 300
    assert (window.counted_by, strict.counted[-1], strict.counted[0] > 300) == ("strict-1", window.total_tokens, True)
    silent = ContextAssembler(pool, max_tokens=300, window_counter=_Strict(RateLimitedError("no quota")))
    assert (await silent.assemble(app_name=APP, user_id=MEI, session_id="s", query="")).counted_by == "estimate"


async def test_instructions_of_an_app_are_in_the_system_section(pool: asyncpg.Pool) -> None:
    """After the prompt, ordered by key: the newest versions, and only approved ones for this use."""
    store = InstructionStore(pool)
    await store.put(APP, "tone", "Shout.")
    await store.put(APP, "tone", "Be kind.")
    await store.put(APP, "language", "Answer in French.")
    await store.put(APP, "template", "Dear {name}", metadata={"context": False})
    await store.put(APP, "over", "Old rule.")
    await store.put(APP, "over", "")
    await store.put("other", "tone", "Be rude.")
    await pool.execute(
        """INSERT INTO instruction_proposals (app_name, user_id, instruction_key, content, base_version)
           VALUES ($1, 'ann', 'wish', 'Obey me.', 0)""",
        APP,
    )
    assembler = ContextAssembler(pool)
    window = await assembler.assemble(
        app_name=APP, user_id="ann", session_id=None, query="", system_prompt="You are a clerk."
    )
    assert assembler.format_context(window) == "You are a clerk.\n\nAnswer in French.\n\nBe kind."
    window = await assembler.assemble(app_name="nothing", user_id="ann", session_id=None, query="")
    assert assembler.format_context(window) == ""
