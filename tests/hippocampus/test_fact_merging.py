"""How consolidation merges keys with one meaning, several values and recurring insights, and handles instructions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import FactNotFoundError, InstructionConflictError, ProposalNotFoundError
from hippocampus.facts.ledger import FactLedger
from hippocampus.instructions import InstructionStore
from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers.gemini.provider import GeminiConnection, GeminiEmbedder, GeminiGenerator
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.records import ExtractedFact, ExtractedInsight, ExtractedProposal, Reflection
from pulse.errors import InvalidInputError
from tests.support.fake_gemini import FakeGemini
from tests.support.memory_rows import APP, say
from tests.support.queue_claims import work_off
from tests.support.scripted_provider import ORIGIN, ScriptedGenerator
from tests.support.waiting import WAIT_SECONDS

USER = "ann"


def fact(key: str, value: Any, confidence: float = 0.9) -> ExtractedFact:
    return ExtractedFact(fact_type="preference", key=key, value=value, confidence=confidence, source_seqs=(1,))


async def reflect(
    pool: asyncpg.Pool, generator: Any, embedder: Any, *texts: str, user: str = USER, app: str = APP
) -> dict[str, Any]:
    """Consolidate a session with these texts; return the job's result."""
    session_id = uuid4().hex
    await say(pool, user, session_id, *texts, app=app)
    worker = MemoryConsolidationWorker(pool, generator, embedder)
    thread = await pool.fetchval("SELECT id FROM threads WHERE session_id = $1", session_id)
    await worker.consolidate(thread, "deep_reflection", wait=False)
    (job,) = await work_off(pool, worker)
    return dict(job.result)


async def learn(pool: asyncpg.Pool, *facts: ExtractedFact, user: str = USER) -> list[str]:
    """Learn facts with the local vectors; return the outcomes."""
    result = await reflect(pool, ScriptedGenerator(reflections=[(facts, ())]), LocalEmbedder(), "...", user=user)
    return [each["outcome"] for each in result["facts"]]


async def held(pool: asyncpg.Pool, user: str = USER, key: str | None = None) -> dict[str, Any]:
    found = await OpenMemoryService(pool, None).list_facts(app_name=APP, user_id=user, key=key)
    return {each.key: each.value for each in found}


@asynccontextmanager
async def gemini_provider() -> AsyncIterator[tuple[FakeGemini, GeminiGenerator, GeminiEmbedder]]:
    async with FakeGemini() as gemini:
        connection = GeminiConnection(api_key="k", base_url=gemini.base_url, timeout_seconds=WAIT_SECONDS)
        generator, embedder = GeminiGenerator(connection), GeminiEmbedder(connection)
        yield gemini, generator, embedder
        await generator.close()
        await embedder.close()


async def test_spellings_of_a_key_are_merged_and_the_merge_is_listed_and_undone(pool: asyncpg.Pool) -> None:
    ledger = FactLedger(pool)
    assert await learn(pool, fact("favourite food", "sushi")) == ["created"]
    assert await learn(pool, fact("food_preference", "ramen")) == ["updated"]
    assert await learn(pool, fact("food_preference", "ramen"), user="tom") == ["created"]
    assert await held(pool) == {"favourite food": "ramen"}
    assert await held(pool, key="food_preference") == {"favourite food": "ramen"}
    (merge,) = await ledger.list_merges(app_name=APP, user_id=USER)
    assert (merge.from_key, merge.to_key, merge.method, merge.similarity, merge.undone_at) == (
        "food_preference", "favourite food", "normal_form", 1.0, None,
    )  # fmt: skip
    assert merge.job_id == await pool.fetchval("SELECT job_id FROM fact_versions WHERE key = 'food_preference'")
    assert await ledger.list_merges(app_name=APP, user_id="tom") == []

    with pytest.raises(FactNotFoundError):
        await ledger.undo_merge(merge.id, app_name=APP, user_id="tom")
    parted = await ledger.undo_merge(merge.id, app_name=APP, user_id=USER)
    assert await held(pool) == {"favourite food": "sushi", "food_preference": "ramen"}
    assert parted == await pool.fetchval("SELECT id FROM facts WHERE key = 'food_preference' AND user_id = $1", USER)
    with pytest.raises(FactNotFoundError):
        await ledger.undo_merge(merge.id, app_name=APP, user_id=USER)
    assert await learn(pool, fact("food_preference", "udon"), fact("favourite food", "soba")) == ["updated", "updated"]
    assert await held(pool) == {"favourite food": "soba", "food_preference": "udon"}


async def test_keys_with_the_same_meaning_are_merged_by_similarity_within_a_user(pool: asyncpg.Pool) -> None:
    """Only where the model's threshold is known, and no contrast separates the keys."""
    value = "a cat called Miso"
    await learn(pool, fact("pet_name", value))
    assert await learn(pool, fact("cat_name", value)) == ["confirmed"]
    assert await learn(pool, fact("cat_name", value), user="tom") == ["created"]
    assert await learn(pool, fact("former_cat_name", value)) == ["created"]
    (merge,) = await FactLedger(pool).list_merges(app_name=APP, user_id=USER)
    assert (merge.method, merge.from_key, merge.to_key) == ("meaning", "cat_name", "pet_name")
    assert merge.embedding_model == LocalEmbedder().model
    assert 0.36 <= merge.similarity < 1
    await pool.execute("DELETE FROM merge_thresholds")
    assert await learn(pool, fact("kitten_name", value)) == ["created"]


async def test_two_spellings_in_one_reply_are_one_fact(pool: asyncpg.Pool) -> None:
    assert await learn(pool, fact("favourite colour", "blue"), fact("color_preference", "blue")) == [
        "created", "confirmed",
    ]  # fmt: skip
    assert await held(pool) == {"favourite colour": "blue"}


async def test_a_candidate_is_listed_and_promoted_by_hand_or_by_repetition(pool: asyncpg.Pool) -> None:
    ledger = FactLedger(pool)
    await learn(pool, fact("home_city", "Lyon", 0.9))
    assert await learn(pool, fact("home_city", "Nice", 0.6)) == ["candidate"]
    (candidate,) = await ledger.list_candidates(app_name=APP, user_id=USER)
    assert (candidate.value, candidate.held_value, candidate.held_confidence) == ("Nice", "Lyon", 0.9)
    assert await ledger.list_candidates(app_name=APP, user_id="tom") == []
    assert await held(pool) == {"home_city": "Lyon"}
    assert await learn(pool, fact("home_city", "Nice", 0.6)) == ["promoted"]
    assert await held(pool) == {"home_city": "Nice"}
    assert await ledger.list_candidates(app_name=APP, user_id=USER) == []

    assert await learn(pool, fact("home_city", "Metz", 0.1)) == ["candidate"]
    (candidate,) = await ledger.list_candidates(app_name=APP, user_id=USER)
    with pytest.raises(FactNotFoundError):
        await ledger.promote(candidate.id, app_name=APP, user_id="tom")
    assert await ledger.promote(candidate.id, app_name=APP, user_id=USER) == candidate.fact_id
    assert await held(pool) == {"home_city": "Metz"}
    with pytest.raises(InvalidInputError):
        await ledger.list_candidates(app_name=APP, user_id=USER, limit=0)


async def test_profile_and_collection_with_the_local_provider(pool: asyncpg.Pool) -> None:
    """One home at a time; allergies side by side, in two languages."""
    for text in ("I live in Lyon.", "I live in Nice.", "I'm allergic to peanuts.", "I'm allergic to shellfish."):
        await reflect(pool, LocalGenerator(), LocalEmbedder(), text)
    found = await held(pool)
    assert {key: value["text"] for key, value in found.items()} == {
        "home": "lives in Nice",
        "allergy:peanuts": "is allergic to peanuts",
        "allergy:shellfish": "is allergic to shellfish",
    }
    assert set(await held(pool, key="Allergies")) == {"allergy:peanuts", "allergy:shellfish"}


async def test_profile_and_collection_with_gemini(pool: asyncpg.Pool) -> None:
    """One home at a time, hobbies side by side; afterwards as the app's policy says."""
    async with gemini_provider() as (_, generator, embedder):
        await reflect(pool, generator, embedder, "I live in Lyon. My hobby is chess.", "My hobby is hiking.")
        await reflect(pool, generator, embedder, "I live in Nice. My hobby is chess. My favourite food is sushi.")
        await reflect(pool, generator, embedder, "The food I prefer is ramen.")
        assert await held(pool) == {
            "home_city": "Nice", "hobbies:chess": "chess", "hobbies:hiking": "hiking", "favourite_food": "ramen",
        }  # fmt: skip
        await FactLedger(pool).set_style(APP, "preference", "food_preference", "collection")
        await reflect(pool, generator, embedder, "My favourite food is udon.")
        assert set(await held(pool, key="favourite_food")) == {"favourite_food", "favourite_food:udon"}
        with pytest.raises(InvalidInputError):
            await FactLedger(pool).set_style(APP, "preference", "k", "heap")  # type: ignore[arg-type]


async def test_a_recurring_insight_is_stored_once_with_the_higher_importance(pool: asyncpg.Pool) -> None:
    def reflecting(importance: Any, text: str) -> ScriptedGenerator:
        return ScriptedGenerator(
            reflections=[((), [ExtractedInsight(content=text, importance=importance, source_seqs=(1,))])]
        )

    texts = ("Ann likes long walks.", "ann likes long walks!", "Ann likes long walks")
    ids = []
    for importance, text in zip(("low", "high", "medium"), texts, strict=True):
        result = await reflect(pool, reflecting(importance, text), LocalEmbedder(), "...")
        ids.append(result["insights"][0]["memory_id"])
    await reflect(pool, reflecting("low", texts[0]), LocalEmbedder(), "...", user="tom")
    rows = await pool.fetch("SELECT * FROM memories WHERE user_id = $1", USER)
    assert len(set(ids)) == len(rows) == 1
    assert (rows[0]["content"], rows[0]["initial_score"]) == (texts[0], 1.0)
    assert (rows[0]["metadata"]["importance"], rows[0]["metadata"]["support"]) == ("high", 3)
    both = ScriptedGenerator(
        reflections=[
            ((), [ExtractedInsight(content=text, importance="low", source_seqs=(1,)) for text in ("Walks.", "walks")])
        ]
    )
    result = await reflect(pool, both, LocalEmbedder(), "...", user="eve")
    assert len({each["memory_id"] for each in result["insights"]}) == 1


async def test_the_local_provider_does_not_turn_word_counts_into_insights(pool: asyncpg.Pool) -> None:
    texts = [f"Well Caroline, the garden looks nice on day {n}." for n in range(8)]
    result = await reflect(pool, LocalGenerator(), LocalEmbedder(), *texts)
    assert result["insights"] == []


class Proposing(ScriptedGenerator):
    """Proposes the given instructions, and finds nothing else."""

    def __init__(self, *proposals: ExtractedProposal) -> None:
        super().__init__()
        self.proposals = proposals

    async def reflect(self, slices: Any) -> list[Reflection]:
        return [Reflection(facts=(), insights=(), proposals=self.proposals, origin=ORIGIN) for _ in slices]


async def test_a_proposal_waits_for_approval_and_never_takes_effect_by_itself(pool: asyncpg.Pool) -> None:
    store = InstructionStore(pool)
    extracted = ExtractedProposal(key="tone", content="Be brief.", source_seqs=(1,))
    result = await reflect(pool, Proposing(extracted), LocalEmbedder(), "Please always be brief.")
    assert await store.get(APP, "tone") is None
    (proposal,) = await store.list_proposals(APP)
    assert result["proposals"] == [str(proposal.id)]
    assert (proposal.status, proposal.content, proposal.base_version, proposal.user_id, proposal.source_seqs) == (
        "proposed", "Be brief.", 0, USER, (1,),
    )  # fmt: skip
    assert (await reflect(pool, Proposing(extracted), LocalEmbedder(), "..."))["proposals"] == []

    with pytest.raises(ProposalNotFoundError):
        await store.approve("other", proposal.id)
    approved = await store.approve(APP, proposal.id, decided_by="ops")
    assert (approved.status, approved.version, approved.decided_by) == ("approved", 1, "ops")
    in_force = await store.get(APP, "tone")
    assert in_force is not None
    assert (in_force.content, in_force.metadata) == ("Be brief.", {"proposal": str(proposal.id)})
    assert [each.key for each in await store.active(APP)] == ["tone"]
    with pytest.raises(ProposalNotFoundError):
        await store.approve(APP, proposal.id)
    # An instruction that is already in force is not proposed.
    assert (await reflect(pool, Proposing(extracted), LocalEmbedder(), "..."))["proposals"] == []


async def test_a_rejected_instruction_is_not_proposed_again_and_an_outdated_one_needs_force(pool: asyncpg.Pool) -> None:
    store = InstructionStore(pool)
    extracted = [ExtractedProposal(key="tone", content=text, source_seqs=(1,)) for text in ("Be brief.", "Be kind.")]
    await reflect(pool, Proposing(*extracted), LocalEmbedder(), "...")
    kind, brief = await store.list_proposals(APP, status="proposed")
    assert (await store.reject(APP, brief.id, decided_by="ops")).status == "rejected"
    assert (await reflect(pool, Proposing(extracted[0]), LocalEmbedder(), "..."))["proposals"] == []
    await store.put(APP, "tone", "Be formal.")
    with pytest.raises(InstructionConflictError):
        await store.approve(APP, kind.id)
    assert [each.status for each in await store.list_proposals(APP, limit=1)] == ["proposed"]
    assert (await store.approve(APP, kind.id, force=True)).version == 2
    await store.put(APP, "tone", "")
    assert await store.active(APP) == []
    with pytest.raises(InvalidInputError):
        await store.list_proposals(APP, status="lost")


async def test_instructions_are_recognised_in_two_languages_by_both_providers(pool: asyncpg.Pool) -> None:
    store = InstructionStore(pool)
    said = ("Please always answer in French.", "以后请用中文回答。", "From now on, keep your answers short!")
    other = ("I always answer the phone.", "Can you always answer?", "Make this shorter.", "请问现在几点？")
    await reflect(pool, LocalGenerator(), LocalEmbedder(), *said[:1], *other)
    await reflect(pool, LocalGenerator(), LocalEmbedder(), *said[1:], *other)
    found = {(each.key, each.content) for each in await store.list_proposals(APP)}
    assert found == {
        ("answer_language", "Always answer in French."),
        ("answer_language", "以后请用中文回答。"),
        ("answer_length", "Keep your answers short."),
    }
    async with gemini_provider() as (_, generator, embedder):
        await reflect(pool, generator, embedder, *said[:2], app="gemini")
    assert len(await store.list_proposals("gemini")) == 2
