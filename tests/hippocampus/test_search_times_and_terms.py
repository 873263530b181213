"""Search by the time that a query names, by its rarest terms, and for what holds now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import asyncpg
import pytest

from benchmarks import diaries
from benchmarks.locomo import consolidate
from hippocampus.context_assembler import ContextAssembler
from hippocampus.facts.keys import normal_key
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.search import MemorySearch, SearchFilter
from pulse.errors import InvalidInputError
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.memory_rows import APP, add_fact, add_memory, say

MEI = "mei"
HOMES = {"home city", "mei:home", "rui:home", "james:home", "charles:home", "thomas:home"}
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


#: A question, and the film that it asks for.
FILMS_ASKED_FOR = [
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
]


async def test_a_turn_of_the_named_time_is_first(pool: asyncpg.Pool, films: None) -> None:
    """All turns match the words equally: only the time tells them apart."""
    for query, title in FILMS_ASKED_FOR:
        (found,) = await best(pool, query)
        assert title in found, query


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


#: When something was said, what, and a question that names the time in other words.
SAID_FROM_AFAR = [
    ("2021-03-18", "I went kayaking two days ago", "What happened on 16 March 2021?"),
    ("2021-03-10", "I bought a violin last Friday", "What happened on 5 March 2021?"),
    ("2019-10-02", "The day before yesterday the boiler exploded", "What happened on 30 September 2019?"),
    ("2020-11-20", "We adopted a puppy two weeks ago", "What happened on 6 November 2020?"),
    ("2018-04-11", "Over the weekend I sold the car", "What happened on 8 April 2018?"),
    ("2018-08-20", "My sister got married in May", "What happened in May 2018?"),
    ("2020-09-10", "We painted the kitchen 3 months ago", "What happened in June 2020?"),
    ("2019-01-15", "I broke my arm three years ago", "What happened in 2016?"),
    ("2018-09-03", "I quit smoking last year", "What happened in 2017?"),
    ("2017-06-03", "On May 20th I won a chess medal", "What happened on 2017-05-20?"),
    ("2021-11-20", "We are going to Malta for Christmas", "What happened on 25 December 2021?"),
    ("2021-03-20", "除夕奶奶摔了一跤", "2021年2月11日发生了什么？"),
    ("2020-10-20", "国庆我们去了海边", "2020年国庆节发生了什么？"),
    ("2021-07-01", "The fair is tomorrow", "What happened on 2 July 2021?"),
    ("2021-04-18", "前天我和小王去划船了", "2021年4月16日发生了什么？"),
    ("2020-03-11", "上周五我买了一把小提琴", "2020年3月6日发生了什么？"),
    ("2019-11-20", "两周前我们领养了一只小狗", "2019年11月6日发生了什么？"),
    ("2019-08-20", "我姐姐五月结婚了", "2019年5月发生了什么？"),
    ("2019-09-10", "三个月前我们粉刷了厨房", "2019年6月发生了什么？"),
    ("2018-01-15", "三年前我摔断了胳膊", "2015年发生了什么？"),
    ("2015-09-03", "我去年戒了烟", "2014年发生了什么？"),
    ("2016-06-03", "五月二十号我赢了象棋奖牌", "2016年5月20日发生了什么？"),
    ("2015-03-20", "五天前爷爷住院了", "2015年3月15日发生了什么？"),
    ("2017-09-04", "I fly to Oslo in two weeks", "What is planned for 18 September 2017?"),
    ("2016-11-04", "The exam is in 5 days", "What was planned for 9 November 2016?"),
    ("2014-07-16", "This weekend we go hiking", "What happened on 19 July 2014?"),
    ("2014-10-01", "I see the dentist next weekend", "What happened on 11 October 2014?"),
    ("2017-12-12", "三天后我去北京出差", "2017年12月15日有什么安排？"),
    ("2016-01-11", "我们两个星期以后搬家", "2016年1月25日有什么计划？"),
    ("2014-12-03", "这个周末去爬山", "2014年12月6日发生了什么？"),
]


async def test_what_speaks_of_the_named_time_from_another_day_is_found_without_its_words(pool: asyncpg.Pool) -> None:
    """Among turns of every tenth day, half of which hold the question's words, by words alone and with vectors."""
    days = [datetime(2014, 1, 1, tzinfo=UTC) + timedelta(days=10 * number) for number in range(290)]
    others = ["What happened to your bike?", "I like green tea", "这里没发生什么新鲜事", "我早上喝绿茶"]
    turns = [(f"{day:%Y-%m-%d}", others[place % 4]) for place, day in enumerate(days)]
    await say_at(pool, "s-1", *sorted(turns + [(day, text) for day, text, _ in SAID_FROM_AFAR]))
    for embedder in (None, LocalEmbedder()):
        search = MemorySearch(pool, embedder)
        for _, text, query in SAID_FROM_AFAR:
            found = await search.search(app_name=APP, user_id=MEI, query=query, asked_at=ASKED, record_access=False)
            assert found.memories[0].content == text, query
            assert found.memories[0].relevance_score >= 0.5


async def test_what_speaks_of_the_named_time_is_found_among_more_turns_than_are_scored(pool: asyncpg.Pool) -> None:
    first = datetime(2019, 1, 1, 8, tzinfo=UTC)
    said = [
        ((first + timedelta(hours=6 * number)).isoformat(), f"Nothing new happened {number}") for number in range(5200)
    ]
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, MEI, session_id="s-1")
    turns = [*said[:2000], ("2020-05-15T09:00:00+00:00", "I sprained an ankle two days ago"), *said[2000:]]
    for begin in range(0, len(turns), 1000):
        events = [
            Event(author="user", content={"text": text}, timestamp=datetime.fromisoformat(moment).timestamp())
            for moment, text in turns[begin : begin + 1000]
        ]
        await sessions.append(APP, MEI, "s-1", events)
    assert "I sprained an ankle two days ago" in await best(pool, "What happened on 13 May 2020?", limit=10)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What is Sunday Times?", "My favourite paper is the Sunday Times"),
        ("Tell me about April", "April is my daughter"),
        ("What happened with April?", "April is my daughter"),
        ("What happened to Rex in July?", "Rex bit the postman"),
        ("What did we say about Paris in May?", "Paris was wonderful"),
    ],
)
async def test_a_name_is_found_before_all_that_was_said_at_a_time(pool: asyncpg.Pool, query: str, first: str) -> None:
    """Names of months and weekdays too; and what else was said then is no more relevant than its words make it."""
    dull = [(f"2022-{month:02}-{day:02}", f"The weather is dull {month * day}") for month in (1, 2) for day in (3, 9)]
    dull += [(f"2021-{month:02}-{day:02}", "We drank tea") for month in (4, 5, 7) for day in range(1, 28, 3)]
    dull += [("2022-05-15", "We washed the car")]
    named = [
        ("2022-03-22", "My favourite paper is the Sunday Times"),
        ("2022-02-05", "April is my daughter"),
        ("2021-07-02", "Rex bit the postman"),
        ("2021-05-10", "Paris was wonderful"),
    ]
    for number, turn in enumerate(sorted(dull + named)):
        await say_at(pool, f"s-{number}", turn)
    found = await MemorySearch(pool).search(
        app_name=APP, user_id=MEI, query=query, limit=50, asked_at=ASKED, record_access=False
    )
    assert found.memories[0].content == first
    assert all(each.relevance_score < 0.5 for each in found.memories if each.content == "We drank tea")


#: 00:30 of 2 May in Tokyo.
HALF_PAST_MIDNIGHT = datetime(2022, 5, 1, 15, 30, tzinfo=UTC)


async def test_days_are_those_of_the_zone_in_which_the_question_is_asked(pool: asyncpg.Pool) -> None:
    """Asked at half past midnight in Tokyo, yesterday is 1 May; in UTC, it is 30 April."""
    await say(pool, MEI, "s-0", "Hello")
    sessions = OpenSessionService(pool)
    told = {"2022-04-30T10:00Z": "I watched the film Alien", "2022-05-01T10:00Z": "I watched the film Brazil"}
    await sessions.create_session(APP, MEI, session_id="s-1")
    events = [
        Event(author="user", content={"text": text}, timestamp=datetime.fromisoformat(moment).timestamp())
        for moment, text in told.items()
    ]
    await sessions.append(APP, MEI, "s-1", events)
    query = "What happened yesterday?"
    whose = {"app_name": APP, "user_id": MEI}
    search, assembler = MemorySearch(pool), ContextAssembler(pool, max_tokens=200)
    for asked_at, time_zone, film in (
        (HALF_PAST_MIDNIGHT, None, "Alien"),
        (HALF_PAST_MIDNIGHT, "Asia/Tokyo", "Brazil"),
        (HALF_PAST_MIDNIGHT.astimezone(timezone(timedelta(hours=9))), None, "Brazil"),
    ):
        when: dict[str, Any] = {"asked_at": asked_at, "time_zone": time_zone}
        found = await search.search(query=query, **when, **whose)
        assert film in found.memories[0].content
        windows = [
            await assembler.recall(query=query, **when, **whose),
            await assembler.assemble(query=query, session_id=None, **when, **whose),
        ]
        for window in windows:
            relevant = {item.content: item.relevance_score for item in window.items}
            assert max(relevant, key=lambda text: relevant[text]).endswith(film)
    for wrong in ("Mars/Olympus", "", "../etc/passwd", "Asia", "\0"):
        with pytest.raises(InvalidInputError, match="time zone"):
            await search.search(query=query, time_zone=wrong, **whose)
        with pytest.raises(InvalidInputError, match="time zone"):
            await assembler.recall(query=query, time_zone=wrong, **whose)


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


@pytest.mark.system
@pytest.mark.parametrize("language", diaries.LANGUAGES)
@pytest.mark.parametrize("pooled", [False, True], ids=["single", "pooled"])
async def test_unrelated_notes_are_found_at_least_as_well_as_by_plain_bm25(
    pool: asyncpg.Pool, language: str, pooled: bool
) -> None:
    """Neighbours that have nothing to do with a note do not hide it, with vectors and without."""
    await diaries.ingest_all(pool, language, LocalEmbedder(), pooled=pooled)
    for embedder in (LocalEmbedder(), None):
        found = await diaries.evaluate(pool, language, embedder, pooled=pooled)
        assert found.questions >= (84 if not pooled else 50)
        assert found.search >= found.bm25, embedder


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


@pytest.mark.parametrize(
    ("subject", "former", "present", "query", "is_former"),
    [
        # Letters of a name are no word of it: 'live' is in 'Oliver'.
        ("Oliver", "Oliver lives in Lisbon", "Oliver lives in Porto", "Where do they live?", True),
        ("user", "The user can use a kayak", "The user can use a canoe", "What do they use?", True),
        # The name itself is no word that the two versions share, however it is stemmed.
        ("Oliver", "Oliver lives in Lisbon", "Oliver lives in Porto", "Which cello does Oliver have?", False),
        ("Mary", "Mary lives in Lisbon", "Mary lives in Porto", "Which cello does Mary have?", False),
        ("Mary", "Mary lives in Lisbon", "Mary lives in Porto", "Where does Mary live?", True),
    ],
)
async def test_a_name_is_no_word_that_two_versions_share(
    pool: asyncpg.Pool, conn: asyncpg.Connection, subject: str, former: str, present: str, query: str, is_former: bool
) -> None:
    await say(pool, MEI, "s-1", former, present)
    thread = await conn.fetchval("SELECT id FROM threads WHERE session_id = 's-1'")
    place = {"thread_id": thread, "source_seqs": [1], "from_seq": 1, "upto_seq": 1}
    fact = await add_fact(conn, MEI, "state", {"text": former, "subject": subject}, content=former, **place)
    await conn.execute(
        "UPDATE facts SET value = $2, content = $3, source_seqs = '{2}', from_seq = 2, upto_seq = 2 WHERE id = $1",
        fact,
        {"text": present, "subject": subject},
        present,
    )
    found = await conn.fetch(
        """SELECT g.content FROM former_statements($1, $2, query_terms($3), NULL, NULL, now()) AS f
           JOIN messages AS g ON g.id = f.message_id""",
        APP,
        MEI,
        query,
    )
    assert [row["content"] for row in found] == ([former] if is_former else [])


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


async def test_the_present_value_is_first_in_whatever_language_it_was_said(pool: asyncpg.Pool) -> None:
    """Each user states a home and an employer, and later others, in another language than the first or the same one."""
    sessions, embedder = OpenSessionService(pool), LocalEmbedder()
    said = {
        "ann": ("I live in Leeds and I work at Brightwater.", "我搬到厦门了，现在住在厦门。我现在在海蓝公司上班。"),
        "bo": ("我住在泉州。我在海蓝公司上班。", "I moved to Leeds, I live in Leeds now. I work at Brightwater now."),
        "cai": ("我住在泉州。我在海蓝公司上班。", "我搬到厦门了，现在住在厦门。我现在在青木公司上班。"),
    }
    present = {"ann": ("厦门", "海蓝"), "bo": ("Leeds", "Brightwater"), "cai": ("厦门", "青木")}
    former = {"ann": ("Leeds", "Brightwater"), "bo": ("泉州", "海蓝"), "cai": ("泉州", "海蓝")}
    for user, turns in said.items():
        for number, turn in enumerate(turns):
            await sessions.create_session(APP, user, session_id=f"{user}-{number}")
            spoken = [turn, "The rain has not stopped since Monday.", "我妹妹住在杭州。", "My brother lives in Oslo."]
            await sessions.append(
                APP, user, f"{user}-{number}", [Event(author="user", content={"text": each}) for each in spoken]
            )
            await consolidate(pool, embedder)

    async def first(user: str, query: str, search: MemorySearch) -> str:
        found = await search.search(app_name=APP, user_id=user, query=query, record_access=False)
        return found.memories[0].content

    asked = (
        ("Where do I live?", "Where does the user live now?", "我现在住在哪里？", "你住在哪个城市"),
        ("Where do I work?", "Which company does the user work at?", "我在哪里上班？", "我在哪家公司工作"),
    )
    for search in (MemorySearch(pool, embedder), MemorySearch(pool)):
        for user in said:
            for relation, queries in enumerate(asked):
                for query in queries:
                    content = await first(user, query, search)
                    assert present[user][relation] in content, (user, query, content)
                    assert former[user][relation] not in content, (user, query, content)
            # A relative's fact answers for the relative.
            assert "Oslo" in await first(user, "Where does my brother live?", search)
            assert "杭州" in await first(user, "我妹妹住在哪里？", search)
            # A former value that is asked about is found by its words.
            home = former[user][0]
            past = f"What was it like in {home}?" if home.isascii() else f"以前在{home}的时候"
            assert home in await first(user, past, search)


#: A question, and the keys of the facts that it asks for.
FACTS_ASKED_FOR: list[tuple[str, set[str]]] = [
    ("Where does she live?", HOMES),
    ("Where does Mei live these days?", {"home city", "mei:home"}),
    ("Where does Rui live?", {"rui:home"}),
    ("Where does Rui's dentist live?", set()),
    ("Where does Anna live?", set()),
    ("她住在哪里？", HOMES),
    ("Mei的妈妈住在哪里？", {"mei:family:mother:place"}),
    ("How old is Mei's mother?", set()),
    ("What is Mei allergic to?", {"mei:allergy:荞麦"}),
    ("Mei对什么过敏？", {"mei:allergy:荞麦"}),
    ("What can't Mei eat?", {"mei:allergy:荞麦"}),
    ("Which foods should Mei avoid?", {"mei:allergy:荞麦"}),
    ("Mei不能吃什么？", {"mei:allergy:荞麦"}),
    ("What did Mei eat yesterday?", set()),
    ("What should Mei avoid saying?", set()),
    ("What is her favourite color?", {"favorite color"}),
    ("What is her favourite movie?", {"favorite movie"}),
    ("Is it raining?", set()),
    # Names and keys are cut differently: the key of James's home is 'home jame'.
    ("Where does James live?", {"james:home"}),
    ("Where does Charles live?", {"charles:home"}),
    ("Thomas住在哪里？", {"thomas:home"}),
    # A question that names a relation and asks for something else.
    ("Who does Mei work with?", set()),
    ("Who works for Mei?", set()),
    ("When does Mei work?", set()),
    ("Why does Mei live there?", set()),
    ("How does Mei work?", set()),
    ("Who does Mei live with?", set()),
    ("Does Mei still live with her mother?", set()),
    ("Is this email from Mei?", set()),
    ("Does this come from Mei?", set()),
    ("Where does this email come from?", set()),
    ("Does Mei work from home?", set()),
    ("When is Mei's mother at home?", set()),
    ("谁在Mei的公司上班？", set()),
    ("Mei和谁住在一起？", set()),
    ("Mei什么时候上班？", set()),
    ("Mei怎么上班？", set()),
    ("Mei为什么住在那里？", set()),
    # The relation is itself a person, a day or an origin.
    ("Where does Mei work?", {"mei:employer"}),
    ("Who does Mei work for?", {"mei:employer"}),
    ("Who is Mei's employer?", {"mei:employer"}),
    ("Who is Mei's husband?", {"mei:family:husband:name"}),
    ("Do you know who her husband is?", {"mei:family:husband:name"}),
    ("Mei的丈夫是谁？", {"mei:family:husband:name"}),
    ("Who is Mei's husband's mother?", set()),
    ("Who is her favorite singer?", {"favorite singer"}),
    ("When is Mei's birthday?", {"mei:birthday"}),
    ("Mei的生日是什么时候？", {"mei:birthday"}),
    ("How old is Mei?", {"mei:age"}),
    ("What is Mei's name?", {"name"}),
    ("What is the name of Mei's company?", {"mei:employer"}),
    ("Where is Mei from?", {"mei:origin"}),
    ("Where does Mei come from?", {"mei:origin"}),
    ("Does Mei come from Quanzhou?", {"mei:origin"}),
]


async def test_a_question_asks_for_the_facts_whose_keys_it_covers(conn: asyncpg.Connection) -> None:
    """Speakers' facts name them as the subject; those of a model's own keys are the user's, who is called Mei."""
    facts = {
        "home city": "厦门",
        "name": "Mei",
        "favorite color": "blue",
        "favorite food": "taro",
        "favorite movie": "Alien",
        "favorite singer": "Ana Moura",
        # Other words of a key tell it from the one that is asked for, also those that are no terms.
        "home before": "Leeds",
    }
    for key, value in facts.items():
        await add_fact(conn, MEI, key, {"text": value}, content=f"{key}: {value}", normal_key=normal_key(key))
    spoken = {
        "mei:home": "住在厦门",
        "rui:home": "lives in Oslo",
        "mei:family:mother:place": "妈妈住在泉州",
        "mei:allergy:荞麦": "对荞麦过敏",
        "mei:employer": "works at Brightwater",
        "mei:origin": "is from Quanzhou",
        "mei:email": "mei@example.org",
        "mei:age": "is 41",
        "mei:birthday": "was born on 3 May",
        "mei:family:husband:name": "丈夫叫周平",
        "mei:family:husband:place": "丈夫住在泉州",
        "james:home": "lives in Cork",
        "charles:home": "lives in Galway",
        "thomas:home": "lives in Sligo",
    }
    for key, value in spoken.items():
        subject = key.partition(":")[0].title()
        await add_fact(
            conn,
            MEI,
            key,
            {"text": value, "subject": subject},
            content=f"{key}: {subject} {value}",
            normal_key=normal_key(key),
        )
    for query, answers in FACTS_ASKED_FOR:
        found = await conn.fetch(
            "SELECT key FROM facts WHERE id = ANY (asked_facts($1, $2, $3, query_terms($3), now()))", APP, MEI, query
        )
        assert {row["key"] for row in found} == answers, query


async def test_windows_show_the_days_of_the_zone_of_a_question(pool: asyncpg.Pool) -> None:
    """Half past eleven in New York is the next day in UTC: passages, days of the session and memories show New York's,
    by the zone's name, whatever the clocks of the season, and by the offset of the time. Without either, UTC's."""
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, MEI, session_id="s-1")
    told = {"2022-04-30T23:30-04:00": "I watched the film Brazil", "2022-12-31T23:30-05:00": "I saw the film Alien"}
    events = [
        Event(author="user", content={"text": text}, timestamp=datetime.fromisoformat(moment).timestamp())
        for moment, text in told.items()
    ]
    await sessions.append(APP, MEI, "s-1", events)
    night = datetime(2022, 6, 2, 3, 30, tzinfo=UTC)
    async with pool.acquire() as rows:
        await add_memory(rows, MEI, "Mei likes films", embedded=False, occurred_at=night)
    assembler = ContextAssembler(pool)
    new_york, offset = {"time_zone": "America/New_York"}, {"asked_at": ASKED.astimezone(timezone(timedelta(hours=-4)))}
    for when, days in (
        ({}, ("1 May 2022", "1 January 2023", "2 June 2022", "2022-05-01")),
        (new_york, ("30 April 2022", "31 December", "1 June 2022", "2022-04-30")),
        (offset, ("30 April 2022", "1 January 2023", "1 June 2022", "2022-04-30")),
    ):
        whose: dict[str, Any] = {"app_name": APP, "user_id": MEI, "query": "Which films?", **when}
        brazil, alien, memory, iso = days
        recalled = await assembler.recall(**whose)
        window = await assembler.assemble(session_id="s-1", **whose)
        stable = await assembler.assemble(session_id=None, stable=True, **whose)
        for text in (recalled.text, window.text, stable.text):
            assert f"\n{brazil}\n[user]: I watched the film Brazil" in text
            assert f"\n{alien}\n[user]: I saw the film Alien" in text
        for text in (recalled.text, window.text):
            assert f"- Mei likes films ({memory})" in text
        assert f'<passage date="{iso}"' in (await assembler.recall(template="xml", **whose)).text


async def test_todays_turns_are_those_of_the_zone(pool: asyncpg.Pool) -> None:
    """Turns of the session have no line with their day if it is today's where the question is asked."""
    now = datetime.now(UTC)
    said = now - timedelta(hours=1)
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, MEI, session_id="s-1")
    await sessions.append(
        APP, MEI, "s-1", [Event(author="user", content={"text": "Hello there"}, timestamp=said.timestamp())]
    )
    for local, is_today in ((timedelta(minutes=30), False), (timedelta(hours=12), True)):
        minutes = (local - timedelta(hours=now.hour, minutes=now.minute)) % timedelta(days=1)
        zone = timezone(minutes if minutes < timedelta(hours=14) else minutes - timedelta(days=1))
        window = await ContextAssembler(pool).assemble(
            app_name=APP, user_id=MEI, session_id="s-1", query="", asked_at=now.astimezone(zone)
        )
        day = f"{said.astimezone(zone):%B %Y}\n[user]: Hello there"
        assert (day in window.text) is not is_today


async def test_a_time_at_the_end_of_the_calendar_keeps_its_day(pool: asyncpg.Pool) -> None:
    last = datetime(9999, 12, 31, 23, tzinfo=UTC)
    async with pool.acquire() as rows:
        await add_memory(rows, MEI, "The last day", embedded=False, occurred_at=last)
    window = await ContextAssembler(pool).recall(
        app_name=APP, user_id=MEI, query="The last day", time_zone="Asia/Tokyo"
    )
    assert "The last day (31 December 9999)" in window.text


#: Said before Wednesday, 18 May 2022, in the order of time.
PLANS = [
    ("2022-04-20", "I have the dentist in a couple of weeks"),
    ("2022-05-04", "The gas is checked in 3 weeks"),
    ("2022-05-10", "We sing in the choir on Tuesdays"),
    ("2022-05-12", "三天后要交房租"),
    ("2022-05-13", "My brother arrives the week after next"),
    ("2022-05-16", "This weekend we paint the fence"),
    ("2022-05-17", "十天后开家长会"),
    ("2022-05-17", "I start a new job next month"),
    ("2022-05-17", "What a day it was"),
]


@pytest.mark.parametrize(
    ("query", "planned"),
    [
        ("What is planned for next week?", {"The gas is checked in 3 weeks", "My brother arrives the week after next"}),
        ("What are the plans for this weekend?", {"This weekend we paint the fence"}),
        ("What do I have planned next month?", {"I start a new job next month"}),
        ("下周有什么安排？", {"The gas is checked in 3 weeks", "My brother arrives the week after next"}),
        ("下个月有什么计划？", {"I start a new job next month"}),
        ("5月27日有什么安排？", {"十天后开家长会"}),
    ],
)
async def test_a_question_for_plans_finds_them_by_the_time_that_they_name(
    pool: asyncpg.Pool, query: str, planned: set[str]
) -> None:
    await say_at(pool, "s-1", *PLANS)
    found = await best(pool, query, limit=len(PLANS))
    assert planned <= set(found[:4]), found


async def test_a_plan_is_found_as_a_fact_by_its_day(pool: asyncpg.Pool) -> None:
    """Before its day comes and after it, as the plan that was kept of the turn and as the turn itself."""
    await say_at(pool, "s-1", ("2022-05-02", "I'm flying to Oslo in two weeks."), ("2022-05-03", "I like green tea."))
    await consolidate(pool, LocalEmbedder())
    for query in ("What is planned for 16 May 2022?", "What happened on 16 May 2022?"):
        found = await MemorySearch(pool).search(
            app_name=APP, user_id=MEI, query=query, asked_at=ASKED, record_access=False
        )
        assert {found.memories[0].source, found.memories[1].source} >= {"fact"}, query
        assert all("Oslo" in each.content for each in found.memories[:2]), query
