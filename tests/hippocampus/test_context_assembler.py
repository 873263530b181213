"""The context window: its selection, its number of database queries, and which accesses it records."""

from __future__ import annotations

import asyncio
import json
import math

import asyncpg
import pytest

from hippocampus.context.candidates import CHARACTERS_MAX
from hippocampus.context.languages import day
from hippocampus.context.packing import CUT_MARK
from hippocampus.context.templates import TemplateName
from hippocampus.context_assembler import ContextAssembler
from hippocampus.errors import ContextBudgetError, EmbeddingDimensionError, ProviderError, RateLimitedError
from hippocampus.instructions import InstructionStore
from hippocampus.text.tokens import count_tokens
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
#: Not the clock's day, which may be the next one by now.
SAID_AT = "SELECT min(occurred_at) FROM messages"


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
    known: None, assembler: ContextAssembler, conn: asyncpg.Connection
) -> None:
    """With the dates of facts, memories and turns; what an answer in another session was asked for is beside it."""
    window = await assembler.assemble(
        app_name=APP, user_id=MEI, session_id="s-2", query="What does my cat like to eat?", system_prompt="Be kind."
    )
    today = day(await conn.fetchval(SAID_AT), "en")
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
        # A pool remembers for seconds what an app's policy says of secrets.
        self.redaction_modes: dict[str, str] = {}
        # Read as it were for ever: on a busy machine the first window takes longer than that.
        self.redaction_reads: dict[str, tuple[float, str]] = {APP: (math.inf, "off")}


async def test_bad_input_is_refused(known: None, pool: asyncpg.Pool, assembler: ContextAssembler) -> None:
    with pytest.raises(InvalidInputError, match="max_tokens"):
        await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="cat", max_tokens=0)
    with pytest.raises(EmbeddingDimensionError):
        await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="cat", query_embedding=[0.5] * 4001)
    with pytest.raises(ContextBudgetError):
        await assembler.assemble(
            app_name=APP, user_id=MEI, session_id=None, query="cat", system_prompt="rule " * 100, max_tokens=20
        )
    for ratios in ({"memory_ratio": 0.9}, {"fact_ratio": -0.1}, {"history_ratio": float("nan")}):
        with pytest.raises(InvalidInputError, match="ratios"):
            ContextAssembler(pool, **ratios)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="language"):
        ContextAssembler(pool, language="fr")  # type: ignore[arg-type]


async def test_the_sql_window_shows_turns_of_other_sessions_with_their_dates(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Past the watermark too; a turn of the history is not repeated."""
    await say(pool, MEI, "s-1", "My cat is called Miso", "It rains")
    await consolidate_fast(conn, "s-1")
    await say(pool, MEI, "s-2", "My cat is asleep")
    rows = await conn.fetch(
        "SELECT * FROM get_context_window($1, $2, 'cat', NULL, 200, p_session_id => 's-2')", MEI, APP
    )
    today = (await conn.fetchval(SAID_AT)).date()
    assert tuple(rows[0])[:2] == ("memory", f"({today}) [user]: My cat is called Miso")
    assert [row["content"] for row in rows if "asleep" in row["content"]] == ["[user]: My cat is asleep"]


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


async def test_a_consolidated_turn_is_found_by_itself_whatever_its_slice(
    pool: asyncpg.Pool, conn: asyncpg.Connection, assembler: ContextAssembler
) -> None:
    """Past the watermark, in a budget that its slice does not fit; the slice is not paid for as well."""
    texts = [f"{n} we talked about the weather and so on" for n in range(40)]
    texts[7] = "The spare key is under the flower pot"
    await say(pool, MEI, "s-1", *texts)
    await consolidate_fast(conn, "s-1")
    thread = await conn.fetchval("SELECT id FROM threads WHERE session_id = 's-1'")
    await add_memory(
        conn, MEI, "\n".join(texts), memory_type="episodic", thread_id=thread, from_seq=1, upto_seq=40,
        source_seqs=list(range(1, 41)),
    )  # fmt: skip
    window = await assembler.assemble(
        app_name=APP, user_id=MEI, session_id=None, query="Where is the spare key?", max_tokens=100
    )
    assert "[user]: The spare key is under the flower pot" in window.text
    assert not [item for item in window.items if item.metadata["kind"] == "episodic"]


@pytest.mark.parametrize(
    ("before", "now", "again"),
    [
        ("don't call them before 9", "No calls before 9, same as always", True),
        ("Don’t call before 9", "don't call before 10", False),
        ("never schedule meetings on Fridays", "Fridays are fine for meetings", False),
        ("always answer in English", "answer in English", True),
        ("always answer in English", "answer in English on Mondays", False),
        ("call before 9", "never call before 9", False),
        ("不要在周三安排会议", "还是不要在周三安排会议", True),
        ("不要在周三安排会议", "在周三安排会议", False),
        ("always", "still", False),
    ],
)
async def test_a_rule_that_is_stated_again_has_not_changed(
    conn: asyncpg.Connection, before: str, now: str, again: bool
) -> None:
    assert await conn.fetchval("SELECT says_again($1, $2)", before, now) is again
    assert await conn.fetchval("SELECT says_again($1, $2)", now, before) is again


async def test_what_a_superseded_fact_was_extracted_from_is_marked(
    pool: asyncpg.Pool, conn: asyncpg.Connection, assembler: ContextAssembler
) -> None:
    """The turn, and the summary that repeats it; not the turn that states what holds, and not within one session."""
    await say(pool, MEI, "s-1", "I live in Porto", "It rains in Porto")
    await say(pool, MEI, "s-2", "We moved, I live in Lisbon by now")
    threads = dict(await conn.fetch("SELECT session_id, id FROM threads"))
    fact = await add_fact(
        conn, MEI, "city", "Porto", fact_type="profile", valid_from=days_ago(9), thread_id=threads["s-1"],
        source_seqs=[1],
    )  # fmt: skip
    since = days_ago(2)
    await conn.execute(
        """UPDATE facts SET value = '"Lisbon"', content = 'city: Lisbon', valid_from = $2, thread_id = $3,
                            source_seqs = '{1}' WHERE id = $1""",
        fact,
        since,
        threads["s-2"],
    )
    await add_memory(
        conn, MEI, "Mei lives in Porto", memory_type="summary", thread_id=threads["s-1"], source_seqs=[1, 2]
    )  # fmt: skip
    note = f"(since changed: city: Lisbon, from {day(since, 'en')})"
    window = await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="Where does Mei live?")
    lines = window.text.splitlines()
    assert f"[user]: I live in Porto {note}" in lines
    assert "[user]: It rains in Porto" in lines
    assert "[user]: We moved, I live in Lisbon by now" in lines
    rows = await conn.fetch(
        "SELECT content, changed FROM context_candidates($1, $2, NULL, '') WHERE source = 'memory'", APP, MEI
    )
    assert [tuple(row) for row in rows] == [("Mei lives in Porto", "city: Lisbon")]
    for text, turns in (("Mei lives in Porto and likes it", [1]), ("Mei, who lives in Porto, minds the rain", [2])):
        await add_memory(
            conn, MEI, text, memory_type="semantic", thread_id=threads["s-1"], from_seq=1, upto_seq=2, source_seqs=turns
        )
    insights = await conn.fetch(
        "SELECT content, changed FROM context_candidates($1, $2, NULL, 'likes minds') WHERE kind = 'semantic'",
        APP,
        MEI,
    )
    assert [row["changed"] for row in insights] == [
        "city: Lisbon" if "likes" in row["content"] else None for row in insights
    ]
    assert len(insights) == 2
    resumed = await assembler.assemble(app_name=APP, user_id=MEI, session_id="s-1", query="")
    assert f"[user]: I live in Porto {note}" in resumed.text
    await conn.execute("UPDATE facts SET valid_until = $2 WHERE id = $1", fact, days_ago(1))
    ended = await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="Where does Mei live?")
    assert "We moved, I live in Lisbon by now (no longer so since" in ended.text


async def test_standing_facts_are_candidates_whatever_the_query(
    pool: asyncpg.Pool, conn: asyncpg.Connection, assembler: ContextAssembler
) -> None:
    for number in range(80):
        await add_fact(conn, MEI, f"hobby:{number}", f"chess {number}", confidence=0.9)
    await add_fact(conn, MEI, "allergy:peanuts", "peanuts", confidence=0.4)
    await add_fact(conn, MEI, "answers", "Keep answers short", fact_type="rule", confidence=0.4)
    await add_fact(conn, MEI, "family:allergy:daughter", "bees", confidence=0.3)
    await say(pool, MEI, "s", *[f"{n} we played chess again" for n in range(60)])
    window = await assembler.assemble(app_name=APP, user_id=MEI, session_id=None, query="chess", max_tokens=200)
    facts = [item.content for item in window.items if item.context_type == "fact"]
    assert facts[:3] == [
        "[rule] answers: Keep answers short",
        "[preference] allergy:peanuts: peanuts",
        "[preference] family:allergy:daughter: bees",
    ]


async def test_recall_is_one_text_of_facts_and_passages(
    known: None, pool: asyncpg.Pool, assembler: ContextAssembler
) -> None:
    """Without instructions and without a session's history; within its budget in every template and language."""
    await InstructionStore(pool).put(APP, "tone", "Be kind.")
    window = await assembler.recall(app_name=APP, user_id=MEI, query="What does my cat like to eat?")
    assert window.text.startswith("## User preferences\n- ")
    assert window.text.index("city: Lisbon") < window.text.index("[user]: My cat is called Miso")
    assert "Be kind." not in window.text
    for template in ("plain", "markdown", "xml", "messages"):
        for budget in (1, 40, 90):
            answer = await assembler.recall(
                app_name=APP, user_id=MEI, query="cat", max_tokens=budget, template=template, language="zh"
            )
            assert answer.total_tokens <= budget
            assert "User preferences" not in answer.text
    assert (await assembler.recall(app_name=APP, user_id="tom", query="cat")).text == ""
    with pytest.raises(InvalidInputError, match="template"):
        await assembler.recall(app_name=APP, user_id=MEI, query="cat", template="yaml")  # type: ignore[arg-type]


async def test_headers_follow_the_conversation_or_the_caller(pool: asyncpg.Pool) -> None:
    assembler = ContextAssembler(pool)
    await say(pool, MEI, "zh", "你好", "我住在里斯本，养了一只猫")
    await say(pool, "tom", "en", "Hello", "I live in Lisbon")
    chinese = await assembler.assemble(app_name=APP, user_id=MEI, session_id="zh", query="ok")
    assert chinese.text == "## 对话历史\n[用户]: 你好\n[用户]: 我住在里斯本，养了一只猫"
    english = await assembler.assemble(app_name=APP, user_id="tom", session_id="en", query="Where do I live?")
    assert english.text == "## Conversation history\n[user]: Hello\n[user]: I live in Lisbon"
    found = await assembler.recall(app_name=APP, user_id=MEI, query="")
    assert found.language == "en"
    for language, header in (("zh", "## 对话历史"), ("en", "## Conversation history")):
        window = await assembler.assemble(app_name=APP, user_id=MEI, session_id="zh", query="猫", language=language)
        assert window.text.startswith(header)


@pytest.mark.parametrize(
    ("form", "returning", "stable", "least"),
    [("markdown", False, False, 0.8), ("messages", True, False, 0.35), ("messages", True, True, 0.75)],
)
async def test_most_of_a_prompt_stays_equal_from_turn_to_turn(
    pool: asyncpg.Pool, form: TemplateName, returning: bool, stable: bool, least: float
) -> None:
    """Over 40 turns, of a new user and of one with other sessions: the part that a provider's cache can hold."""
    if returning:
        for session in range(3):
            said = [f"{session} {n} we talked of cats and of tea" for n in range(100 if stable else 20)]
            await say(pool, MEI, f"old-{session}", *said)
    assembler = ContextAssembler(pool, WordEmbedder(), template=form, max_tokens=2000)
    equal, whole, before = 0, 0, ""
    for number in range(40):
        text = f"Number {number}: do you remember the {('cat', 'tea', 'dog', 'sea')[number % 4]} that we talked of?"
        await say(pool, MEI, "now", text, author=("user", "model")[number % 2])
        window = await assembler.assemble(app_name=APP, user_id=MEI, session_id="now", query=text, stable=stable)
        sent = json.dumps(window.messages) if form == "messages" else window.text
        if before:
            equal += count_tokens(_common_beginning(before, sent))
            whole += count_tokens(before)
        before = sent
    assert equal / whole >= least


def _common_beginning(one: str, other: str) -> str:
    """Return the longest text that both begin with."""
    length = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


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


async def test_of_a_giant_turn_only_the_beginning_leaves_the_database(
    pool: asyncpg.Pool, conn: asyncpg.Connection, assembler: ContextAssembler
) -> None:
    """It is also counted and packed; a turn may have megabytes."""
    await say(pool, MEI, "s-1", "hello " * 200_000, "hello again")
    rows = await conn.fetch(
        "SELECT length(content) AS length FROM context_candidates($1, $2, 's-1', 'hello', p_passages => 20)", APP, MEI
    )
    assert max(row["length"] for row in rows) == CHARACTERS_MAX + 1
    window = await assembler.assemble(app_name=APP, user_id=MEI, session_id="s-1", query="hello", max_tokens=100_000)
    (giant,) = (item for item in window.items if len(item.content) > 1000)
    assert giant.content.endswith(CUT_MARK)
