"""Context windows of what the provider `local` derived from real conversations, by real jobs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import asyncpg

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.context.languages import _FACT_KINDS, _SPEAKERS, fact_kind, speaker
from hippocampus.context_assembler import ContextAssembler
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.text.languages import language_of
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.memory_rows import APP, say
from tests.support.queue_claims import work_off

MEI = "mei"
START = datetime(2025, 3, 3, 9, tzinfo=UTC)


async def talk(pool: asyncpg.Pool, session: str, *texts: str, user: str = MEI, after_days: float = 0) -> None:
    """Hold a conversation, a minute a turn, some days after the first one; it is consolidated by `consolidate`."""
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, user, session_id=session)
    begun = START + timedelta(days=after_days)
    events = [
        Event(author="user", content={"text": text}, timestamp=(begun + timedelta(minutes=number)).timestamp())
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
