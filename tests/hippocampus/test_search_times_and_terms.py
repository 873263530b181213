"""Search by the time that a query names, by its rarest terms, and for what holds now."""

from __future__ import annotations

from datetime import UTC, datetime

import asyncpg
import pytest

from benchmarks import diaries
from benchmarks.locomo import consolidate
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.search import MemorySearch, SearchFilter
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.memory_rows import APP, add_fact, say

MEI = "mei"
ASKED = datetime(2022, 5, 18, 12, tzinfo=UTC)  # a Wednesday


async def say_at(pool: asyncpg.Pool, session_id: str, *turns: tuple[str, str]) -> None:
    """Append turns with the days when they were said."""
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, MEI, session_id=session_id)
    await sessions.append(
        APP,
        MEI,
        session_id,
        [
            Event(author="user", content={"text": text}, timestamp=datetime.fromisoformat(f"{day}T10:00Z").timestamp())
            for day, text in turns
        ],
    )


async def best(pool: asyncpg.Pool, query: str, *, limit: int = 1, asked_at: datetime = ASKED) -> list[str]:
    found = await MemorySearch(pool).search(
        app_name=APP, user_id=MEI, query=query, limit=limit, asked_at=asked_at, record_access=False
    )
    return [result.content for result in found.memories]


@pytest.fixture
async def films(pool: asyncpg.Pool) -> None:
    """One film each day, in sessions of their own."""
    for number, (day, title) in enumerate(
        [
            ("2021-05-01", "Alien"),
            ("2022-03-16", "Brazil"),
            ("2022-04-30", "Casablanca"),
            ("2022-05-13", "Dune"),
            ("2022-05-16", "Eraserhead"),
            ("2022-05-17", "Fargo"),
            ("2019-08-08", "Gilda"),
        ]
    ):
        await say_at(pool, f"s-{number}", (day, f"I watched the film {title} 我看了电影"))


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("Which film did I watch on 16 March 2022?", "Brazil"),
        ("Which film did I watch yesterday?", "Fargo"),
        ("Which film did I watch two days ago?", "Eraserhead"),
        ("Which film did I watch last Friday?", "Dune"),
        ("Which film did I watch in April?", "Casablanca"),
        ("Which film did I watch on May 1st, 2021?", "Alien"),
        ("上周五看了什么电影？", "Dune"),
        ("三年前看了什么电影？", "Gilda"),
        ("2021年五月一号看了什么电影？", "Alien"),
        ("前天看了什么电影？", "Eraserhead"),
    ],
)
async def test_a_turn_of_the_named_time_is_first(pool: asyncpg.Pool, films: None, query: str, title: str) -> None:
    """All turns match the words equally: only the time tells them apart."""
    (found,) = await best(pool, query)
    assert title in found


@pytest.mark.parametrize(
    ("query", "of_the_day", "other"),
    [
        ("What did I watch on 1 May 2022?", "Yesterday I watched Metropolis", "I watched Nosferatu"),
        ("2022年5月1日看了什么电影？", "昨天我看了电影 Metropolis", "我看了电影 Nosferatu"),
    ],
)
async def test_a_turn_that_speaks_of_the_day_is_preferred_to_one_of_the_day_after(
    pool: asyncpg.Pool, query: str, of_the_day: str, other: str
) -> None:
    """Both were said on 2 May; one speaks of 1 May."""
    await say_at(pool, "s-1", ("2022-05-02", other))
    await say_at(pool, "s-2", ("2022-05-02", of_the_day))
    await say_at(pool, "s-3", ("2022-05-09", other))
    assert await best(pool, query) == [of_the_day]


async def test_times_are_resolved_against_now_unless_the_caller_says_when(pool: asyncpg.Pool) -> None:
    await say(pool, MEI, "s-now", "I watched the film Zardoz")
    await say_at(pool, "s-then", ("2022-05-17", "I watched the film Fargo"))
    found = await MemorySearch(pool).search(app_name=APP, user_id=MEI, query="which film today?", record_access=False)
    assert found.memories[0].content.endswith("Zardoz")
    assert await best(pool, "which film yesterday?") == ["I watched the film Fargo"]


async def test_a_long_query_keeps_its_rare_nouns(pool: asyncpg.Pool) -> None:
    """The question stands among 160 and among 700 other words, which are said more often."""
    filler = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}word" for n in range(650)]
    for session in ("s-0", "s-1"):
        await say(pool, MEI, session, *[" ".join(filler[n : n + 30]) for n in range(0, 640, 30)])
    await say(pool, MEI, "s-2", "The zebra toothbrush is in the blue bag")
    for others in (160, 650):
        query = " ".join(
            [*filler[: others // 2], "Where did I leave the zebra toothbrush?", *filler[others // 2 : others]]
        )
        found = await MemorySearch(pool).search(app_name=APP, user_id=MEI, query=query, limit=50, record_access=False)
        (hit,) = [r for r in found.memories if "toothbrush" in r.content]
        assert {"zebra", "toothbrush"} <= set(hit.why.matched_terms)


async def test_the_terms_of_a_query(conn: asyncpg.Connection) -> None:
    async def terms(query: str) -> set[str]:
        return set(await conn.fetchval("SELECT query_terms($1)", query))

    assert await terms("猫，在哪？！（ＡＢＣ）") == {"猫", "在", "哪", "在哪", "abc"}
    assert await terms("，。！？、…… -- !!") == set()
    short, long = "我的护照放在哪里", "昨天和朋友聊了很久关于旅行的计划他说想去很远的地方所以我想知道我的护照放在哪里"
    assert {"护", "护照"} <= await terms(short)
    assert "护照" in await terms(long)
    assert not [term for term in await terms(long) if len(term) == 1]
    assert len(await terms("x " + " ".join(f"term{n}" for n in range(3000)))) == 3001


async def test_irregular_and_casual_forms_are_the_same_word(pool: asyncpg.Pool) -> None:
    await say(pool, MEI, "s-1", "We went to the harbour")
    await say(pool, MEI, "s-2", "My mom bought a kayak")
    await say(pool, MEI, "s-3", "The weather is grey")
    assert await best(pool, "Where did we go?") == ["We went to the harbour"]
    assert await best(pool, "What did mother buy?") == ["My mom bought a kayak"]


async def test_the_turn_after_a_matching_question_is_its_answer(pool: asyncpg.Pool) -> None:
    await say(
        pool, MEI, "s-1", "Nice weather", "Which instrument does your sister play?", "The cello", "Lovely, good night"
    )
    await say(pool, MEI, "s-2", "I tuned it", "Her instrument is old", "It was cold", "The bus was late")
    first, second = await best(pool, "Which instrument does the sister play?", limit=2)
    assert (first, second) == ("Which instrument does your sister play?", "The cello")


@pytest.mark.parametrize("language", diaries.LANGUAGES)
@pytest.mark.parametrize("pooled", [False, True], ids=["single", "pooled"])
@pytest.mark.parametrize("embedder", [None, LocalEmbedder()], ids=["words", "local"])
async def test_unrelated_notes_are_found_at_least_as_well_as_by_plain_bm25(
    pool: asyncpg.Pool, language: str, pooled: bool, embedder: LocalEmbedder | None
) -> None:
    """Neighbours that have nothing to do with a note do not hide it."""
    found = await diaries.evaluate(pool, language, embedder, pooled=pooled)
    assert found.questions >= (84 if not pooled else 50)
    assert found.search >= found.bm25


async def test_neighbours_count_in_a_dialogue_and_hardly_in_a_diary(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Measured on the turns alone; few turns prove little."""
    book = diaries.notebooks("zh")[1].notes
    talk = [
        f"{topic} {word}" for topic in "abcdefghijklmnop" for word in ("is nice", "was good", "they say", "and more")
    ]
    for session, texts in (("diary", book), ("talk", talk), ("short", book[:3])):
        await say(pool, MEI, session, *texts)

    async def cohesion(session: str) -> float:
        value: float = await conn.fetchval(
            """SELECT turn_cohesion(array_agg(a.id ORDER BY a.sequence_num), array_agg(b.id ORDER BY a.sequence_num))
               FROM threads AS t JOIN messages AS a ON a.thread_id = t.id
               JOIN messages AS b ON b.thread_id = t.id AND b.sequence_num = a.sequence_num + 1
               WHERE t.session_id = $1""",
            session,
        )
        return value

    assert await cohesion("talk") > 0.95
    assert await cohesion("diary") < 0.7
    assert await cohesion("short") > 0.8


async def test_the_present_fact_is_first_and_the_former_city_is_not(pool: asyncpg.Pool) -> None:
    """She moved: asked for the present, the turn that states the former city steps back."""
    sessions, embedder = OpenSessionService(pool), LocalEmbedder()
    for session, turns in (
        ("s-1", ("Hi! I live in Lisbon, near the river, and I work as a nurse.", "I have a sister called Ana.")),
        ("s-2", ("Big news: I moved to Porto last week.", "I live in Porto now, in a small flat.")),
    ):
        await sessions.create_session(APP, MEI, session_id=session)
        await sessions.append(APP, MEI, session, [Event(author="user", content={"text": turn}) for turn in turns])
        await consolidate(pool, embedder)
    search = MemorySearch(pool, embedder)

    async def ranks(query: str) -> dict[str, int]:
        found = await search.search(app_name=APP, user_id=MEI, query=query, record_access=False)
        first: dict[str, int] = {}
        for rank, result in enumerate(found.memories, 1):
            for city in ("Lisbon", "Porto"):
                if city in result.content:
                    first.setdefault(city, rank)
        assert found.memories[0].source == "fact" or query.endswith("before?")
        return first

    for query in ("Where does she live now?", "Where does she live?"):
        order = await ranks(query)
        assert order["Porto"] == 1
        assert order["Lisbon"] > 2
    former = await search.search(app_name=APP, user_id=MEI, query="How was it to live in Lisbon?", record_access=False)
    assert "Lisbon" in former.memories[0].content


async def test_a_filter_by_metadata_covers_facts_by_their_turns(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    await say(pool, MEI, "s-1", "I like plum jam", "I like plum cake")
    await conn.execute("UPDATE messages SET metadata = '{\"shop\": 7}' WHERE sequence_num = 1")
    thread = await conn.fetchval("SELECT id FROM threads WHERE session_id = 's-1'")
    await add_fact(conn, MEI, "jam", "plum", thread_id=thread, source_seqs=[1], from_seq=1, upto_seq=1)
    await add_fact(conn, MEI, "cake", "plum", thread_id=thread, source_seqs=[2], from_seq=2, upto_seq=2)
    found = await MemorySearch(pool).search(
        app_name=APP, user_id=MEI, query="plum", narrow=SearchFilter(metadata={"shop": 7}), record_access=False
    )
    assert {result.content for result in found.memories} == {"jam: plum", "I like plum jam"}
