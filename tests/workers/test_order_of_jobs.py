"""The facts of the sample conversation do not depend on the order in which its jobs ran."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import asyncpg
import pytest

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.transfer.given_memories import GivenMemories
from pulse.session_service import OpenSessionService
from tests.support.queue_claims import RowClaim, claim_next
from workers.intake import conversations, samples
from workers.intake.ingest import ingest

APP = "demo"
#: What `hippocampus demo` shows and searches for.
SHOWN = {
    "Mei Lin": "is called",
    "buckwheat": "is allergic to",
    "荞麦": "对",
    "Fridays": "are fine for meetings",
    "coffee": "after noon",
    "咖啡": "不吃或不喝",
    "cried in the pump house": "yesterday",
    "根特": "住在",
    "before 9": "alls",
    "膝盖": "外婆",
    "铁观音": "最喜欢的茶",
    "Joris": "has a husband called",
    "Abacus": "has a tortoise named",
}
Order = Callable[[list[RowClaim]], None]


@pytest.mark.parametrize(
    "order", [list.reverse, lambda claims: None, random.Random(1).shuffle, random.Random(2).shuffle]
)
async def test_the_facts_that_the_demo_shows_are_the_same(pool: asyncpg.Pool, order: Order) -> None:
    read = conversations.read(samples.sample_path())
    service = OpenSessionService(pool)
    (user,) = {session.user_id for session in read.sessions}
    for number, session in enumerate(read.sessions):
        one = replace(read, sessions=(session,), items_beside=() if number else read.items_beside)
        await ingest(
            service,
            GivenMemories(pool),
            one.items(),
            app_name=APP,
            user_id=user,
            file_format=read.file_format,
            finalize=True,
        )
    worker = MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder())
    claims = []
    while claim := await claim_next(pool, ["fast_replay", "deep_reflection"]):
        claims.append(claim)
    order(claims)
    for claim in claims:
        assert claim.job_id is not None
        await worker.run(claim.job_id, claim)
    texts = [
        fact.value["text"]
        for fact in await OpenMemoryService(pool, None).list_facts(app_name=APP, user_id=user, limit=200)
    ]
    for what, said in SHOWN.items():
        assert any(what in text and said in text for text in texts), f"{what}: {texts}"
    assert not [text for text in texts if "Rotterdam" in text or "chapel" in text or text == "has a tortoise"]
    homes = await OpenMemoryService(pool, None).fact_history(
        app_name=APP, user_id=user, fact_type="profile", key="mei:home"
    )
    assert {"lives in Rotterdam", "lives in Ghent"} <= {version.value["text"] for version in homes if version.value}
