"""Context windows of what the provider `local` derived from real conversations, by real jobs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import pytest

from hippocampus import Hippocampus
from hippocampus.consolidation.replay import MemoryReplay
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.context.candidates import limits_of
from hippocampus.context.languages import _FACT_KINDS, _SPEAKERS, day, fact_kind, speaker
from hippocampus.context.templates import TemplateName
from hippocampus.context_assembler import ContextAssembler
from hippocampus.providers.extraction import parse_reflection
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.records import ExtractedFact
from hippocampus.search import MemorySearch
from hippocampus.text.languages import Language, language_of
from hippocampus.text.tokens import count_tokens
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.memory_rows import APP, add_fact, add_memory, say
from tests.support.provider_conformance import conversation
from tests.support.queue_claims import work_off
from tests.support.scripted_provider import ScriptedGenerator

MEI = "mei"
START = datetime(2025, 3, 3, 9, tzinfo=UTC)


async def talk(
    pool: asyncpg.Pool, session: str, *texts: str, user: str = MEI, after_days: float = 0, minutes: float = 1
) -> None:
    """Hold a conversation, a minute a turn, some days after the first one; it is consolidated by `consolidate`."""
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, user, session_id=session)
    begun = START + timedelta(days=after_days)
    events = [
        Event(
            author="user", content={"text": text}, timestamp=(begun + timedelta(minutes=minutes * number)).timestamp()
        )
        for number, text in enumerate(texts)
    ]
    await sessions.append(APP, user, session, events)
    await sessions.finalize_session(APP, user, session)


async def consolidate(pool: asyncpg.Pool) -> None:
    assert await work_off(pool, MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder()))


async def test_a_chinese_window_has_no_english_label(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """Types of facts, roles, dates and notes, in the window of the library and in that of plain SQL."""
    await talk(
        pool, "s-1", "我对花生过敏。", "我住在北京。", "我喜欢喝绿茶。", "以后请用中文回答。", "我打算五月去杭州。"
    )
    await consolidate(pool)
    await talk(pool, "s-2", "我搬到上海了。", after_days=30)
    await consolidate(pool)
    await say(pool, MEI, "s-3", "你还记得我住在哪里吗？")
    kinds = {row["fact_type"] for row in await conn.fetch("SELECT fact_type FROM facts")}
    assert kinds >= {"profile", "preference", "rule", "custom"}
    assembler = ContextAssembler(pool, LocalEmbedder())
    known = await assembler.assemble(app_name=APP, user_id=MEI, session_id="s-3", query="")
    assert kinds.issuperset(item.metadata["kind"] for item in known.items if item.context_type == "fact")
    assert {"[资料]", "[规则]", "[偏好]"} <= set(re.findall(r"\[\w+\]", known.text))
    window = await assembler.assemble(app_name=APP, user_id=MEI, session_id="s-3", query="你还记得我住在哪里吗？")
    rows = await conn.fetch("SELECT * FROM get_context_window($1, $2, '我住在哪里', NULL, 2000)", MEI, APP)
    shown = "\n".join(row["content"] for row in rows)
    assert {row["context_type"] for row in rows} == {"fact", "memory", "history"}
    assert {"[资料]", "[规则]", "[偏好]", "[其他]", "[用户]"} <= set(re.findall(r"\[\w+\]", shown))
    for text in (known.text, window.text, shown):
        assert not re.search("[A-Za-z]", text), text


async def test_the_labels_of_plain_sql_are_those_of_the_program(conn: asyncpg.Connection) -> None:
    texts = [
        "Where do I live?",
        "我住在哪里",
        "王老师 is my teacher",
        "私はリスボンに",
        "👍 1",
        "",
        "ok 可以",
        "à Zürich 北",
    ]
    for given in (*([text] for text in texts), texts, []):
        assert await conn.fetchval("SELECT language_of($1)", given) == language_of(given), given
    for language in ("zh", "en"):
        for name in {*_SPEAKERS["zh"], *_SPEAKERS["en"], " User ", "Ann", "王老师"}:
            labels = await conn.fetchval("SELECT window_speaker($1, $2)", name, language)
            assert labels == speaker(name, language), name
        for kind in (*_FACT_KINDS["zh"], "else"):
            assert await conn.fetchval("SELECT window_fact_kind($1, $2)", kind, language) == fact_kind(kind, language)


@pytest.mark.parametrize(("language", "label"), [("en", "[assistant]: "), ("zh", "[助手]: ")])
async def test_the_assistant_has_one_label_whatever_way_its_turns_came(
    pool: asyncpg.Pool, language: Language, label: str
) -> None:
    """The library calls it model, the API as its caller does, a transcript by the name in it."""
    async with Hippocampus(pool, app="app") as memory:
        await memory.add("ann", {"role": "assistant", "content": "Noted."}, session="s")
        for author in ("assistant", "Assistant", "agent", "助手"):
            await memory.sessions.append("app", "ann", "s", [Event(author=author, content={"text": "Noted."})])
        window = await memory.context("ann", "", session="s", language=language)
    assert window.text.splitlines()[1:] == [f"{label}Noted."] * 5


#: What was said, what was said later, and a summary of the former that speaks of something else.
CHANGES = (
    ("I live in Porto, near the river.", "I live in Lisbon now.", "It rains a lot in Porto."),
    ("I work at Acme Corp.", "I work at Initech now.", "The bus stops in front of Acme."),
    ("I'm allergic to peanuts.", "I'm not allergic to peanuts after all.", "They sell peanuts at the fair."),
    ("I'm vegetarian.", "I'm not vegetarian anymore, I eat everything.", "The river is near."),
    ("I play the cello.", "I don't play the cello anymore.", "Children play on the stairs."),
    ("My sister Ana is a teacher.", "My sister Ana is a nurse now.", "A teacher sang at the fair."),
    ("I have two kids.", "I have three kids now.", "There are two bridges."),
    ("We plan to move to Berlin in May.", "The move to Berlin is off.", "May was cold in Berlin."),
    ("I'm pregnant!", "Emil was born last night.", "The night was cold."),
    ("我在华为上班。", "我现在在腾讯上班。", "华为出了一部手机。"),
    ("我住在北京。", "我搬到上海了。", "北京下雪了。"),
    ("我对花生过敏。", "我不再对花生过敏了。", "超市里有花生卖。"),
)


async def test_summaries_of_what_was_superseded_are_marked(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """Facts are in the third person, summaries quote the first. What else was said in the same slice is not marked."""
    for number, (said, later, _) in enumerate(CHANGES):
        user = f"user-{number}"
        await talk(pool, "s-1", said, "It rains." if said.isascii() else "下雨。", user=user)
        await talk(pool, "s-2", later, user=user, after_days=30)
    await consolidate(pool)
    for number, (said, _, other) in enumerate(CHANGES):
        user = f"user-{number}"
        thread = await conn.fetchval("SELECT id FROM threads WHERE user_id = $1 AND session_id = 's-1'", user)
        others = await add_memory(conn, user, other, memory_type="summary", thread_id=thread, source_seqs=[1, 2])
        for query in ("", said):
            candidates = "SELECT * FROM context_candidates($1, $2, NULL, $3) WHERE source = 'memory'"
            rows = await conn.fetch(candidates, APP, user, query)
            former = {row["id"]: row for row in rows if row["thread_id"] == thread}
            assert others in former or query
            marked = [row["content"] for row in former.values() if row["changed"] is not None]
            assert any(said.rstrip(".!。") in content for content in marked), (said, former)
            assert other not in marked, (said, former)
            assert all(row["changed"] is None for row in rows if row["thread_id"] != thread), (said, rows)


#: What was said, the correction in the same session, what is asked, and what a small window says of the former turn.
CORRECTED = (
    (
        "I'm allergic to shellfish.",
        "Actually I'm not allergic to shellfish, it was a mistake.",
        "Am I allergic to shellfish?",
        "no longer so since",
    ),
    ("I live in Porto.", "No wait, it's Lisbon.", "Where do I live?", "lives in Lisbon, from 3 March"),
    ("我对虾过敏。", "其实我对虾不过敏，是弄错了。", "我对虾过敏吗？", "起不再如此"),
    ("我住在北京。", "不对，是天津。", "我住在哪里？", "住在天津，自2025年3月3日起"),
)
#: The same, as a model's reply says it.
REPLIES: tuple[list[dict[str, Any]], ...] = (
    [
        {"key": "allergy", "value": "shellfish", "source_turns": [1]},
        {"key": "allergy", "value": "shellfish", "ended": True, "source_turns": [3]},
    ],
    [
        {"key": "home_city", "value": "Porto", "source_turns": [1]},
        {"key": "home_city", "value": "Porto", "ended": True, "source_turns": [3]},
        {"key": "home_city", "value": "lives in Lisbon", "source_turns": [1, 3], "confidence": 0.7},
    ],
    [
        {"key": "allergy", "value": "虾", "source_turns": [1, 3]},
        {"key": "allergy", "value": "虾", "ended": True, "source_turns": [3], "confidence": 0.7},
    ],
    [
        {"key": "home_city", "value": "住在天津", "source_turns": [3]},
        {"key": "home_city", "value": "住在北京", "ended": True, "source_turns": [3]},
        {"key": "home_city", "value": "住在北京", "source_turns": [1]},
    ],
)


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_correction_in_the_same_slice_steps_before_what_it_corrects(
    pool: asyncpg.Pool, conn: asyncpg.Connection, *, by_model: bool, at_once: bool
) -> None:
    """Also where all turns have one time. The history has the former value; a later session shows what holds."""
    assembler, search = ContextAssembler(pool, LocalEmbedder()), MemorySearch(pool, LocalEmbedder())
    for number, (said, correction, query, note) in enumerate(CORRECTED):
        user = f"user-{number}"
        between = "It rains today." if said.isascii() else "今天下雨。"
        await talk(pool, "s-1", said, between, correction, user=user, minutes=0 if at_once else 1)
        generator: Any = LocalGenerator()
        if by_model:
            turns = await conn.fetch("SELECT sequence_num, content FROM messages WHERE user_id = $1", user)
            assert [row["content"] for row in turns] == [said, between, correction]
            reply = {"facts": [{"type": "profile", "confidence": 0.9} | fact for fact in REPLIES[number]]}
            slice_ = conversation(*(("user", row["content"]) for row in turns))
            found, _, _ = parse_reflection(json.dumps(reply | {"insights": []}), slice_)
            generator = ScriptedGenerator(reflections=[(found, ())])
        assert await work_off(pool, MemoryConsolidationWorker(pool, generator, LocalEmbedder()))
        results = await search.search(app_name=APP, user_id=user, query=query, record_access=False)
        first = results.memories[0]
        assert first.content == correction or (first.source == "fact" and said not in first.content), results
        facts = await conn.fetch("SELECT key, valid_until FROM facts WHERE user_id = $1", user)
        assert [row["valid_until"] is not None for row in facts] == ["no longer" in note or "不再" in note], (
            user,
            facts,
        )
        history = await conn.fetch("SELECT * FROM fact_history($1, $2, 'profile', $3)", APP, user, facts[0]["key"])
        former = [row for row in history if row["outcome"] == "superseded"]
        assert [list(row["source_seqs"]) for row in former] == [[1]]
        assert former[0]["superseded_by_seq"] == 3
        await say(pool, user, "s-2", between)
        window = await assembler.assemble(app_name=APP, user_id=user, session_id="s-2", query=query)
        marked = [line for line in window.text.splitlines() if said.rstrip(".。") in line]
        assert marked
        assert all(note in line for line in marked), window.text
        resumed = await assembler.assemble(app_name=APP, user_id=user, session_id="s-1", query="")
        assert next(item.content for item in resumed.items if item.context_type == "history").endswith(said), resumed
        small = await Hippocampus(pool, app=APP).recall(user, query, max_tokens=45)
        assert correction in small or note in small or "Lisbon" in small or "天津" in small, small


async def test_a_replay_keeps_what_a_slice_corrects(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """Nothing is added or dropped, also where all turns have one time."""
    for minutes in (0, 1):
        user = f"user-{minutes}"
        await talk(pool, "s-1", "I live in Porto.", "No wait, it's Lisbon.", user=user, minutes=minutes)
        await consolidate(pool)
        report = await MemoryReplay(pool, LocalGenerator(), LocalEmbedder()).replay(APP, user, apply=True)
        assert report.counts == {"added": 0, "dropped": 0, "kept": report.counts["kept"]}, report
        assert report.facts == ()
        history = await conn.fetch(
            "SELECT value ->> 'text' AS text, outcome FROM fact_history($1, $2, 'profile', 'home')", APP, user
        )
        assert [tuple(row) for row in history] == [("lives in Lisbon", "current"), ("lives in Porto", "superseded")]


async def test_what_a_change_says_of_both_values_is_not_marked(conn: asyncpg.Connection) -> None:
    """A summary in other words is, of the value alone; one that names what holds now is up to date."""
    for content, turn, said, holds, expected in (
        ("Mei lives in Porto with Ana.", "I live in Porto", "lives in Porto", "lives in Lisbon", True),
        (
            "Mei moved to Lisbon, and no longer lives in Porto.",
            "I live in Porto",
            "lives in Porto",
            "lives in Lisbon",
            False,
        ),
        (
            "User: I moved to Porto last year.",
            "I moved to Porto last year! It is fine.",
            "lives in Porto",
            "lives in Lisbon",
            True,
        ),
        ("User: Yes. I like it.", "Yes.", "lives in Porto", "lives in Lisbon", False),
        ("Lives in Porto", "We moved", "Porto", "home_city: Lisbon", True),
        ("用户搬到北京了", "我去年搬到北京了，挺好的", "住在北京", "住在上海", True),
        ("Живёт в Порту", "Я живу в Порту", "живёт в Порту", "живёт в Лиссабоне", True),
        ("", "", "", "", False),
        ("It rains in Porto.", "I live in Porto", "Porto", "home_city: Lisbon", False),
        ("Mei lives in Porto.", "I live in Porto", "Porto", "home_city: Lisbon", True),
        ("The city is Porto.", "Porto!", "Porto", "home_city: Lisbon", True),
        ("用户养了一只猫", "我养了一只猫", "猫", "pet: 狗", True),
        ("用户把猫换成了狗", "我养了一只猫", "猫", "pet: 狗", False),
        ("下雨了", "我养了一只猫", "猫", "pet: 狗", False),
        ("Mei has no allergies.", "No, I have no allergies", "no", "nut_allergy: yes", True),
        ("It rains now.", "No, I have no allergies", "no", "nut_allergy: yes", False),
        ("There is no rain.", "No, I have no allergies", "no", "nut_allergy: yes", False),
    ):
        found = await conn.fetchval(
            "SELECT states_value($1, search_document($1), $2, $3, $4)", content, turn, said, holds
        )
        assert found is expected, content


async def test_standing_facts_are_told_by_the_words_of_their_keys(conn: asyncpg.Connection) -> None:
    """In every form of key that a model or a person writes; not by a part of a word."""
    standing = (
        "allergy", "allergy:nuts", "caroline_allergy", "food_allergies", "nut_allergy", "family:allergy:daughter",
        "foodAllergy", "AllergyToNuts", "Allergies", "allergic to", "lactose_intolerance", "dietary_restrictions",
        "caroline_diet", "food_restrictions", "house_rules", "rule:answers", "过敏",
        "joanna:diet", "diet:cola", "joanna:health:lactose_intolerant", "女儿的过敏原", "饮食禁忌", "乳糖不耐受",
    )  # fmt: skip
    for key in standing:
        assert await conn.fetchval("SELECT is_standing('profile', $1)", key), key
    for key in ("evan:event:2024-01-06:started_a_new_diet", "plan:start_a_diet", "likes:diet_coke"):
        assert not await conn.fetchval("SELECT is_standing('profile', $1)", key), key
    for key in ("diet_coke_preference", "dietCoke", "project_rules", "GameRules", "rule_engine", "游戏规则"):
        assert not await conn.fetchval("SELECT is_standing('profile', $1)", key), key
    for key in ("ruler", "favorite_food", "travel_restrictions", "home_city", "truly", "dieter", "爱好"):
        assert not await conn.fetchval("SELECT is_standing('profile', $1)", key), key
    assert await conn.fetchval("SELECT is_standing('rule', 'answer_language')")


async def test_a_second_allergy_of_somebody_does_not_end_the_first(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """By keys that a model writes; each has its place in small windows, of the program and of plain SQL."""
    reflections = [
        ("caroline_allergy", "peanuts"),
        ("caroline_allergy", "milk"),
        ("dietary_restrictions", ["no pork", "no shellfish"]),
        ("dietary_restrictions", "no alcohol"),
        ("nut_allergy", True),
        ("caroline_diet", "vegetarian"),
        ("caroline_diet", "pescatarian"),
    ]
    for number in range(40):
        await add_fact(conn, MEI, f"likes:{number}", f"likes Caroline's meals, number {number}", confidence=1)
    for number, (key, value) in enumerate(reflections):
        await talk(pool, f"s-{number}", f"Caroline's meals, number {number}: {key}", after_days=number)
        fact = ExtractedFact(fact_type="profile", key=key, value=value, confidence=0.9, source_seqs=(1,))
        worker = MemoryConsolidationWorker(pool, ScriptedGenerator(reflections=[([fact], ())]), LocalEmbedder())
        assert await work_off(pool, worker)
    await say(pool, MEI, "now", *[f"We spoke of Caroline's meals, number {number}" for number in range(40)])
    expected = {
        "caroline_allergy:peanuts: peanuts", "caroline_allergy:milk: milk", "nut_allergy: true",
        "caroline_diet: pescatarian", "dietary_restrictions:no_pork: no pork",
        "dietary_restrictions:no_shellfish: no shellfish", "dietary_restrictions:no_alcohol: no alcohol",
    }  # fmt: skip
    query = "Which meals does Caroline like?"
    for ratios in ((0.3, 0.4), (0.5, 0.5), (0, 1)):
        rows = await conn.fetch(
            "SELECT * FROM get_context_window($1, $2, $3, NULL, 500, $4, $5, 'now')", MEI, APP, query, *ratios
        )
        facts = [row["content"].partition("] ")[2] for row in rows if row["context_type"] == "fact"]
        assert set(facts[:7]) == expected, ratios
        assert sum(row["token_estimate"] for row in rows) <= 500
        assert rows[-1]["content"].endswith("number 39")
        memory_ratio, history_ratio = ratios
        assembler = ContextAssembler(
            pool, LocalEmbedder(), system_ratio=0, memory_ratio=memory_ratio, history_ratio=history_ratio, fact_ratio=0
        )
        for asked in (query, ""):
            window = await assembler.assemble(app_name=APP, user_id=MEI, session_id="now", query=asked, max_tokens=500)
            shown = [item.content.partition("] ")[2] for item in window.items if item.context_type == "fact"]
            assert set(shown[:7]) == expected, (ratios, asked)
            assert window.items[-1].content.endswith("number 39")


async def test_a_session_that_was_kept_for_months_shows_its_days(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """In every form, where a day begins; what was said today has no date until another day comes before it."""
    sessions, assembler = OpenSessionService(pool), ContextAssembler(pool, LocalEmbedder())
    await sessions.create_session(APP, MEI, session_id="kept")
    for number, (text, days) in enumerate((("I'm pregnant!", 0), ("We paint the room", 0), ("Emil was born", 200))):
        at = (START + timedelta(days=days, minutes=number)).timestamp()
        await sessions.append(APP, MEI, "kept", [Event(author="user", content={"text": text}, timestamp=at)])

    async def written(template: TemplateName, session: str = "kept") -> list[str]:
        window = await assembler.assemble(
            app_name=APP, user_id=MEI, session_id=session, query="", template=template, language="en"
        )
        lines = [each["content"] for each in window.messages] if template == "messages" else window.text.splitlines()
        return lines[-5:]

    async def rows(tokens: int = 1000) -> list[str]:
        query = "SELECT * FROM get_context_window($1, $2, '', NULL, $3)"
        found = await conn.fetch(query, MEI, APP, tokens)
        assert sum(row["token_estimate"] for row in found) <= tokens
        assert all(row["token_estimate"] == count_tokens(row["content"]) for row in found)
        return [row["content"] for row in found]

    said = ["[user]: I'm pregnant!", "[user]: We paint the room", "[user]: Emil was born"]
    for template in ("plain", "markdown"):
        assert await written(template) == ["3 March 2025", *said[:2], "19 September", said[2]]  # type: ignore[arg-type]
    assert await written("messages") == [
        "## 3 March 2025", "I'm pregnant!", "We paint the room", "## 19 September", "Emil was born"
    ]  # fmt: skip
    assert [line for line in await written("xml") if line.startswith("<day")] == ['<day date="2025-09-19"/>']
    assert await rows() == [f"(2025-03-03) {said[0]}", said[1], f"(2025-09-19) {said[2]}"]
    for tokens in range(100, 20, -5):
        shown = await rows(tokens)
        assert not shown or shown[0].startswith("(2025-") or tokens < 100
    await say(pool, MEI, "kept", "Hello")
    today = await conn.fetchval("SELECT max(occurred_at) FROM messages")
    assert (await written("markdown"))[-2:] == [day(today, "en", with_year=today.year != 2025), "[user]: Hello"]
    assert (await rows())[-1] == f"({today.date()}) [user]: Hello"
    await say(pool, MEI, "new", "Hello")
    assert await written("markdown", "new") == ["## Conversation history", "[user]: Hello"]
    assert (await rows())[-1] == "[user]: Hello"


async def test_more_candidates_are_fetched_for_larger_windows(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """Up to 8,000 tokens as many as ever; then twice as many at four times the budget, four times at most."""
    assert [limits_of(budget) for budget in (1, 2000, 8000)] == [
        (20, 20, 30, 20),
        (20, 20, 50, 100),
        (20, 60, 200, 400),
    ]
    assert [limits_of(budget) for budget in (32_000, 128_000, 10**7)] == [
        (40, 120, 400, 800), (80, 240, 800, 1600), (80, 240, 800, 1600)
    ]  # fmt: skip
    grown = [limits_of(budget) for budget in range(7900, 140_000, 100)]
    assert all(less <= more for before, after in pairwise(grown) for less, more in zip(before, after, strict=True))
    for session in range(2):
        await say(pool, MEI, f"s-{session}", *[f"{n} we saw a heron at pond {n}" for n in range(500)])
    for number in range(100):
        await add_fact(conn, MEI, f"heron:{number}", f"heron {number} has a ring", confidence=0.9)
        await add_memory(conn, MEI, f"The heron of pond {number} is shy")
    await say(pool, MEI, "now", "Tell me of the heron")
    assembler = ContextAssembler(pool, max_tokens=128_000)
    sizes = []
    for tokens in (8000, 128_000):
        window = await assembler.assemble(app_name=APP, user_id=MEI, session_id="now", query="heron", max_tokens=tokens)
        items = [*window.items, *(left.item for left in window.left_out)]
        turns = [item for item in items if item.context_type == "memory" and item.metadata["source"] == "message"]
        others = [item for item in items if item.context_type == "memory" and item.metadata["source"] == "memory"]
        sizes.append((len(turns), len(others), sum(item.context_type == "fact" for item in items)))
    # The turns beside the best ten come on top, and memories only as far as they are among what matches best.
    assert 400 <= sizes[0][0] <= 420
    assert sizes[0][1] <= 20
    assert sizes[0][2] == 60
    assert sizes[1] == (1001, 80, 100)
    rows = {
        tokens: await conn.fetch("SELECT * FROM get_context_window($1, $2, 'heron', NULL, $3)", MEI, APP, tokens)
        for tokens in (8000, 128_000)
    }
    assert len(rows[128_000]) > 2 * len(rows[8000])
