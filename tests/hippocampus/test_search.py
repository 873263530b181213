"""Search: what is found, in which order, with which reasons, and how degraded results are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import asyncpg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.errors import EmbeddingDimensionError
from hippocampus.search import MemorySearch, SearchFilter, SearchMemoryResponse, SearchWeights
from pulse.errors import InvalidInputError, SessionNotFoundError
from tests.support.memory_rows import (
    APP,
    DIMENSIONS,
    NOW,
    ExhaustedEmbedder,
    SilentEmbedder,
    WordEmbedder,
    add_fact,
    add_memory,
    consolidate_fast,
    days_ago,
    say,
    vector_of,
)
from tests.support.properties import examples

MEI = "mei"


@pytest.fixture
def search(pool: asyncpg.Pool) -> MemorySearch:
    return MemorySearch(pool, WordEmbedder())


async def find(search: MemorySearch, query: str, *, limit: int = 10, **narrow: object) -> SearchMemoryResponse:
    return await search.search(
        app_name=APP,
        user_id=MEI,
        query=query,
        limit=limit,
        narrow=SearchFilter(**narrow),  # type: ignore[arg-type]
        record_access=False,
    )


def contents(response: SearchMemoryResponse) -> list[str]:
    return [result.content for result in response.memories]


async def test_a_rare_word_outweighs_a_common_one(search: MemorySearch, conn: asyncpg.Connection) -> None:
    """Document frequencies count: ranking is by BM25, not by the number of matching words."""
    for place in range(20):
        await add_memory(conn, MEI, f"coffee coffee coffee in the office number {place}", embedded=False)
    rare = await add_memory(conn, MEI, "a violin stands in the attic", embedded=False)
    found = await find(search, "coffee violin")
    assert found.memories[0].memory_id == rare
    assert found.total_count == 21


async def test_bm25_is_exact_over_the_scope(search: MemorySearch, conn: asyncpg.Connection) -> None:
    """The score equals Okapi BM25 (k1 0.6, b 0.6) computed by hand over the same rows."""
    from math import log

    documents = {"red apple": (1, 2), "apple apple pear": (2, 2), "green pear tree": (0, 3)}
    for content in documents:
        await add_memory(conn, MEI, content, embedded=False)
    found = {r.content: r.why.bm25 for r in (await find(search, "apple")).memories}
    idf = log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = 7 / 3
    for content in ("red apple", "apple apple pear"):
        tf, length = documents[content]
        assert found[content] == pytest.approx(idf * tf * 1.6 / (tf + 0.6 * (0.4 + 0.6 * length / mean)), rel=1e-6)
    assert "green pear tree" not in found


async def test_a_term_frequency_is_the_number_of_positions(conn: asyncpg.Connection) -> None:
    """It is exact up to 64, although it is read from the rank."""
    wrong = await conn.fetch(
        """SELECT n FROM generate_series(1, 64) AS n
           WHERE term_frequency(search_document('other ' || repeat('word more ', n)), 'word') <> n"""
    )
    assert wrong == []


async def test_a_term_that_does_not_occur_has_no_frequency(conn: asyncpg.Connection) -> None:
    """NULL, not 0 or 1: it is counted in how many rows a term has one."""
    assert await conn.fetchval("SELECT term_frequency(search_document('word more'), 'other')") is None


@pytest.mark.parametrize(
    "query",
    [
        "tea",
        "who bought tea",
        "tea milk honey lemon sugar bread butter salt",
        "tea milk honey lemon sugar bread butter salt pepper",
    ],
)
async def test_few_words_are_scored_as_many_are(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection, query: str
) -> None:
    """The frequencies of up to eight forms are read with the memories of a whole scope. Scores, ranks and words are
    those of a search that is narrowed to all time, which reads the documents, beside turns and facts that match too.
    """
    words = "tea milk honey lemon sugar bread butter salt pepper buy bought".split()
    for place in range(30):
        said = [words[(place + step * step) % len(words)] for step in range(1, 2 + place % 7)]
        await add_memory(conn, MEI, " ".join(said), embedded=place % 3 > 0)
    await add_fact(conn, MEI, "drink", "tea with honey")
    await say(pool, MEI, "s", "tea with milk", "bread and butter")
    whole = (await find(search, query, limit=50)).memories
    narrowed = (await find(search, query, limit=50, since=datetime(2000, 1, 1, tzinfo=UTC))).memories
    assert {result.source for result in whole} == {"memory", "fact", "message"}
    matched = [len(result.why.matched_terms) for result in whole if result.source == "memory"]
    assert max(matched) >= min(len(query.split()), 2)
    for one, other in zip(whole, narrowed, strict=True):
        assert (one.memory_id, one.why.matched_terms, one.why.text_rank) == (
            other.memory_id,
            other.why.matched_terms,
            other.why.text_rank,
        )
        assert one.why.bm25 == pytest.approx(other.why.bm25)
        assert one.why.context_bm25 == pytest.approx(other.why.context_bm25)
        assert one.score == pytest.approx(other.score)


async def test_meaning_is_found_without_a_shared_word(search: MemorySearch, conn: asyncpg.Connection) -> None:
    """A row with a near vector is found although it has no word of the query."""
    near = await add_memory(conn, MEI, "something else entirely", embedded=False)
    await conn.execute(
        "UPDATE memories SET embedding = $2, embedding_model = 'words-1' WHERE id = $1",
        near,
        (await WordEmbedder().embed(["pets at home"], "document"))[0],
    )
    found = await find(search, "pets home")
    assert [r.memory_id for r in found.memories] == [near]
    assert found.memories[0].why.bm25 == 0
    assert found.memories[0].relevance_score == pytest.approx(found.memories[0].why.similarity)


async def test_a_new_message_is_found_by_the_next_statement(search: MemorySearch, pool: asyncpg.Pool) -> None:
    await say(pool, MEI, "s-1", "My flight leaves at seven", "Pack the blue umbrella, please")
    (first, *_) = (await find(search, "where is the umbrella?")).memories
    assert (first.source, first.memory_type, first.session_id, first.source_seqs) == ("message", "user", "s-1", (2,))
    assert first.why.similarity is None


async def test_every_turn_is_searched_unless_the_caller_asks_for_less(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    await say(pool, MEI, "s-1", "The umbrella is blue")
    await consolidate_fast(conn, "s-1")
    await say(pool, MEI, "s-1", "Now the umbrella is lost")
    assert set(contents(await find(search, "umbrella"))) == {"The umbrella is blue", "Now the umbrella is lost"}
    assert contents(await find(search, "umbrella", messages="recent")) == ["Now the umbrella is lost"]
    assert contents(await find(search, "umbrella", messages="none")) == []


async def slice_of(conn: asyncpg.Connection, session_id: str, from_seq: int, upto_seq: int, summary: str) -> None:
    """Store the slice and the summary that fast_replay makes of some turns."""
    thread = await conn.fetchval("SELECT id FROM threads WHERE session_id = $1", session_id)
    whole = await conn.fetchval(
        """SELECT string_agg(content, E'\n' ORDER BY sequence_num) FROM messages
           WHERE thread_id = $1 AND sequence_num BETWEEN $2 AND $3""",
        thread,
        from_seq,
        upto_seq,
    )
    for kind, content in (("episodic", whole), ("summary", summary)):
        await add_memory(
            conn,
            MEI,
            content,
            embedded=False,
            memory_type=kind,
            thread_id=thread,
            from_seq=from_seq,
            upto_seq=upto_seq,
            source_seqs=list(range(from_seq, upto_seq + 1)),
        )


async def test_a_consolidated_fact_is_found_as_its_turn_not_as_a_slice(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """The slice and the summary repeat the turn: the list holds the turn alone, or else the better one of the two."""
    await say(pool, MEI, "s-1", *[f"chatter number {n}" for n in range(9)], "The spare key is under the fern")
    await slice_of(conn, "s-1", 1, 10, "Mei said that the spare key is under the fern.")
    await consolidate_fast(conn, "s-1")
    found = await find(search, "where is the spare key?", limit=3)
    assert found.memories[0].content == "The spare key is under the fern"
    assert {result.source for result in found.memories} == {"message"}

    class LongestFirst:
        async def rerank(self, query: str, texts: Sequence[str]) -> list[int]:
            return [len(text) for text in texts]

    reranked = await find(
        MemorySearch(pool, WordEmbedder(), reranker=LongestFirst()), "where is the spare key?", limit=3
    )
    assert (reranked.reranked, {result.source for result in reranked.memories}) == (True, {"message"})
    by_memory = await find(search, "where is the spare key?", sources=("memory",))
    assert [result.memory_type for result in by_memory.memories] == ["summary"]


async def test_an_insight_of_one_turn_steps_back_for_it(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """However well it matches. One of several turns says more than each of them, and stays."""
    await say(pool, MEI, "s-1", "the harbour at dawn", "the harbour at dusk", "well")
    thread = await conn.fetchval("SELECT id FROM threads WHERE session_id = 's-1'")
    learned = {"harbour harbour at dawn": [1], "harbour at any hour": [1, 2]}
    for content, seqs in learned.items():
        await add_memory(conn, MEI, content, embedded=False, thread_id=thread, from_seq=1, upto_seq=3, source_seqs=seqs)
    listed = contents(await find(search, "harbour dawn"))
    assert sorted(listed) == ["harbour at any hour", "the harbour at dawn", "the harbour at dusk", "well"]
    assert set(contents(await find(search, "harbour dawn", sources=("memory",)))) == set(learned)


async def test_a_summary_is_listed_while_none_of_its_turns_is(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Places that summaries leave are filled: the list is as long as without them."""
    for session in range(6):
        await say(pool, MEI, f"s-{session}", f"the harbour at dawn {session}", "yes", "fine")
        await slice_of(conn, f"s-{session}", 1, 3, f"the harbour at dawn was seen {session}")
    await say(pool, MEI, "other", "good", "well")
    await slice_of(conn, "other", 1, 2, "harbour harbour dawn")
    found = (await find(search, "harbour dawn", limit=6)).memories
    assert len(found) == 6
    assert [result.content for result in found if result.source == "memory"] == ["harbour harbour dawn"]


@examples(15)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), min_size=2, max_size=8), st.integers(1, 12))
async def test_no_list_holds_a_summary_and_one_of_its_turns(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection, slices: list[tuple[bool, int]], limit: int
) -> None:
    """Whatever the ranks and the limit are; and no list is shorter than its limit while a turn is left."""
    await conn.execute("TRUNCATE threads, memories CASCADE")
    for number, (loud, turns) in enumerate(slices):
        texts = [f"harbour {'dawn' * (turn % 2)} {number}" for turn in range(turns)]
        await say(pool, MEI, f"s-{number}", *texts)
        await slice_of(conn, f"s-{number}", 1, turns, "harbour dawn harbour dawn" if loud else "harbour and much else")
    found = (await find(search, "harbour dawn", limit=limit)).memories
    turns_found = {(r.session_id, r.source_seqs[0]) for r in found if r.source == "message"}
    for result in found:
        if result.source == "memory":
            assert not {(result.session_id, seq) for seq in result.source_seqs} & turns_found
    assert len(found) >= min(limit, sum(turns for _, turns in slices))


async def test_a_turn_is_found_by_the_words_of_its_neighbours(search: MemorySearch, pool: asyncpg.Pool) -> None:
    """The answer shares no word with the query, but the turn before it does. Other sessions lend no words."""
    await say(pool, MEI, "s-1", "Hello there", "Which instrument does your sister play?", "The cello, since school")
    await say(pool, MEI, "s-2", "The bassoon, since spring")
    found = {r.content: r for r in (await find(search, "instrument sister")).memories}
    assert found["The cello, since school"].why.context_bm25 > 0
    assert found["The cello, since school"].why.bm25 == 0
    assert "The bassoon, since spring" not in found


async def test_neighbours_are_turns_whatever_events_are_between(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Events without text take sequence numbers; they do not separate a question from its answer."""
    await say(pool, MEI, "s-1", "Which instrument does your sister play?", *[""] * 8, "The cello, since school")
    await conn.execute("DELETE FROM messages WHERE content = ''")
    assert "The cello, since school" in contents(await find(search, "instrument sister"))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("我喜欢吃什么", "我最喜欢吃四川火锅"),
        ("火锅", "我最喜欢吃四川火锅"),
        ("Where does Wang 明 work?", "王明 works at the harbour office"),
        ("hot pot recipes", "She cooked hot pots for us"),
        ("在哪里上班", "我在上海的港口上班"),
        ("ラーメン", "昨日ラーメンを食べた"),
    ],
)
async def test_chinese_english_and_mixed_questions_find_their_row(
    search: MemorySearch, conn: asyncpg.Connection, query: str, expected: str
) -> None:
    for content in (
        "我最喜欢吃四川火锅",
        "我在上海的港口上班",
        "王明 works at the harbour office",
        "She cooked hot pots for us",
        "昨日ラーメンを食べた",
        "今天天气很好",
        "The weather is fine",
    ):
        await add_memory(conn, MEI, content, embedded=False)
    assert contents(await find(search, query))[0] == expected


async def test_ranks_count_every_row_that_matches(search: MemorySearch, conn: asyncpg.Connection) -> None:
    """Not only those that are returned. Equal values have the same rank, and what does not match has none."""
    for number in range(40):
        tea, rest = "tea " * (number % 7), "walks along the river " * (number % 4 + 1)
        await add_memory(conn, MEI, f"{tea}{rest}number {number}", embedded=number % 5 > 0)
    everything = (await find(search, "tea by the river", limit=1000, sources=["memory"])).memories
    texts = [result.why.bm25 for result in everything]
    vectors = [result.why.similarity for result in everything if result.why.similarity is not None]
    assert len(everything) == 40 > len(vectors) == 32
    for result in (everything[:5], (await find(search, "tea by the river", limit=5, sources=["memory"])).memories):
        for one in result:
            assert one.why.text_rank == (1 + sum(text > one.why.bm25 for text in texts) if one.why.bm25 else None)
            similarity = one.why.similarity
            rank = None if similarity is None else 1 + sum(vector > similarity for vector in vectors)
            assert one.why.vector_rank == rank


async def test_each_result_has_its_reasons(search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    await say(pool, MEI, "s-1", "hello")
    thread = await conn.fetchval("SELECT id FROM threads")
    await add_memory(
        conn,
        MEI,
        "plays the violin every Sunday",
        thread_id=thread,
        from_seq=1,
        upto_seq=4,
        source_seqs=[1, 3],
        metadata={"topic": "music"},
    )
    await add_memory(conn, MEI, "bought a violin case", embedded=False)
    (first, second) = (await find(search, "violin on Sunday", sources=["memory"])).memories
    assert first.why.matched_terms == ("sunday", "violin")
    assert (first.why.text_rank, second.why.text_rank) == (1, 2)
    assert (first.why.vector_rank, second.why.vector_rank) == (1, None)
    assert first.why.similarity is not None
    assert 0 < first.why.similarity < 1
    assert 0 < second.score < first.score <= 1
    assert (first.session_id, first.from_seq, first.upto_seq, first.source_seqs) == ("s-1", 1, 4, (1, 3))
    assert first.metadata == {"topic": "music"}
    assert second.session_id is None


async def test_facts_are_found_while_they_are_valid(search: MemorySearch, conn: asyncpg.Connection) -> None:
    await add_fact(conn, MEI, "favourite_tea", "oolong", confidence=0.9)
    await add_fact(conn, MEI, "old_tea", "mint", valid_from=days_ago(9), valid_until=days_ago(2))
    (fact,) = (await find(search, "tea")).memories
    assert (fact.source, fact.memory_type, fact.content) == ("fact", "preference", "favourite_tea: oolong")
    assert fact.metadata == {"key": "favourite_tea", "value": "oolong", "confidence": 0.9}


async def test_the_speakers_name_counts_as_a_match(search: MemorySearch, pool: asyncpg.Pool) -> None:
    await say(pool, MEI, "s-1", "I went to the lake", author="Tom")
    await say(pool, MEI, "s-2", "I went to the lake", author="Ann")
    found = (await find(search, "When was Ann's trip to the lake?")).memories
    assert [r.why.author_match for r in found] == [True, False]


async def test_filters_narrow_by_source_type_session_time_and_metadata(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    await say(pool, MEI, "s-1", "tea in the morning")
    thread = await conn.fetchval("SELECT id FROM threads")
    await add_memory(conn, MEI, "tea old", memory_type="summary", occurred_at=NOW, thread_id=thread)
    await add_memory(conn, MEI, "tea tagged", metadata={"tags": ["hot", "cup"], "n": 1})
    await add_fact(conn, MEI, "tea", "green")
    for narrow, expected in [
        ({"sources": ["fact"]}, {"tea: green"}),
        ({"sources": ["memory"]}, {"tea old", "tea tagged"}),
        ({"memory_types": ["summary"]}, {"tea old"}),
        ({"session_id": "s-1"}, {"tea old", "tea in the morning"}),
        ({"until": NOW + timedelta(seconds=1)}, {"tea old"}),
        ({"until": NOW}, set()),
        ({"since": NOW, "sources": ["memory"]}, {"tea old", "tea tagged"}),
        ({"metadata": {"tags": ["cup"]}}, {"tea tagged"}),
        ({"metadata": {"n": 2}}, set()),
    ]:
        assert set(contents(await find(search, "tea", **narrow))) == expected, narrow


async def test_the_minimum_relevance_is_absolute(search: MemorySearch, conn: asyncpg.Connection) -> None:
    """A row's relevance_score does not depend on other matches, and bounds the results."""
    await add_memory(conn, MEI, "green tea")
    alone = (await find(search, "green tea ceremony in Kyoto")).memories[0].relevance_score
    await add_memory(conn, MEI, "green tea ceremony in Kyoto")
    found = (await find(search, "green tea ceremony in Kyoto")).memories
    assert found[0].relevance_score == pytest.approx(1)
    assert found[1].why.similarity == pytest.approx(alone)
    assert contents(await find(search, "green tea ceremony in Kyoto", min_relevance=0.9)) == [found[0].content]


async def test_strong_and_recent_memories_win_among_equals(search: MemorySearch, conn: asyncpg.Connection) -> None:
    for name, score, age in (("weak", 0.4, 0), ("strong", 1.0, 0), ("forgotten", 1.0, 300)):
        await add_memory(
            conn,
            MEI,
            "likes tea",
            metadata={"name": name},
            initial_score=score,
            last_accessed_at=days_ago(age),
            occurred_at=days_ago(age),
        )
    found = (await find(search, "tea")).memories
    assert [r.metadata["name"] for r in found] == ["strong", "weak", "forgotten"]


async def test_a_query_that_cannot_be_embedded_is_answered_by_text_and_reported(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    reasons: list[str] = []
    search = MemorySearch(pool, ExhaustedEmbedder(), on_degraded=reasons.append)
    await add_memory(conn, MEI, "likes green tea")
    found = await find(search, "tea")
    assert contents(found) == ["likes green tea"]
    assert found.degraded is not None
    assert "RateLimitedError" in found.degraded
    assert reasons == ["RateLimitedError"]
    assert (await find(MemorySearch(pool), "tea")).degraded is None


async def test_a_query_with_a_zero_vector_is_answered_by_text_and_reported(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """A zero vector is the embedder's fault, not the caller's."""
    reasons: list[str] = []
    search = MemorySearch(pool, SilentEmbedder(), on_degraded=reasons.append)
    await add_memory(conn, MEI, "likes green tea")
    found = await find(search, "tea")
    assert contents(found) == ["likes green tea"]
    assert "VectorWithoutDirection" in (found.degraded or "")
    assert reasons == ["VectorWithoutDirection"]


async def test_a_query_without_words_is_as_relevant_as_its_vector(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """No share of its words is found, not all of them."""
    near = await add_memory(conn, MEI, "tea with milk")
    (found,) = (
        await MemorySearch(pool).search(
            app_name=APP,
            user_id=MEI,
            query="?!",
            query_embedding=vector_of("tea and cake"),
            embedding_model="words-1",
            record_access=False,
        )
    ).memories
    assert found.memory_id == near
    assert found.relevance_score == found.why.similarity == pytest.approx(1 / 3, abs=1e-3)


async def test_vectors_of_two_models_are_never_compared(search: MemorySearch, conn: asyncpg.Connection) -> None:
    await add_memory(conn, MEI, "alpha beta", embedding_model="words-0")
    await add_memory(conn, MEI, "alpha gamma")
    found = {r.content: r.why.similarity for r in (await find(search, "alpha")).memories}
    assert found["alpha beta"] is None
    assert found["alpha gamma"] is not None


async def test_facts_and_turns_of_another_model_have_no_similarity(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """They are ranked by their words, like rows without a vector."""
    await add_fact(conn, MEI, "drink", "tea", embedding_model="words-0")
    await say(pool, MEI, "s", "tea please")
    vector = (await WordEmbedder().embed(["tea please"], "document"))[0]
    await conn.execute("UPDATE messages SET embedding = $1, embedding_model = 'words-0'", vector)
    found = await find(search, "tea")
    assert {result.source: result.why.similarity for result in found.memories} == {"fact": None, "message": None}


async def test_a_given_vector_needs_its_model_and_its_dimensions(
    search: MemorySearch, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """A vector of other dimensions than the stored ones of its model is an error; of another model, it finds words."""
    await add_memory(conn, MEI, "likes green tea")
    for size in (768, DIMENSIONS + 1, 4001):
        with pytest.raises(EmbeddingDimensionError, match=str(size)):
            await search.search(app_name=APP, user_id=MEI, query="tea", query_embedding=[0.1] * size)
    found = await search.search(
        app_name=APP, user_id=MEI, query="tea", query_embedding=[0.1] * 768, embedding_model="other"
    )
    assert [result.why.similarity for result in found.memories] == [None]
    with pytest.raises(InvalidInputError, match="embedding_model"):
        await MemorySearch(pool).search(app_name=APP, user_id=MEI, query="tea", query_embedding=[0.1] * DIMENSIONS)


async def test_what_was_said_centuries_ago_is_found(search: MemorySearch, conn: asyncpg.Connection) -> None:
    """Its recency is too small for a number, not an error."""
    await add_memory(conn, MEI, "the great fire", occurred_at=datetime(1666, 9, 2, tzinfo=UTC))
    found = await find(search, "fire")
    assert found.memories[0].why.recency == pytest.approx(0)


@pytest.mark.parametrize("size", [256, 384, 3072, 4000])
async def test_vectors_may_have_any_dimensions(pool: asyncpg.Pool, conn: asyncpg.Connection, size: int) -> None:
    """The nearest come first, also of those that are too long for a row; one of zeros is near to nothing."""
    vectors = np.random.default_rng(size).standard_normal((40, size))
    vectors[39] = 0
    ids = [await add_memory(conn, MEI, "note", embedded=False) for _ in vectors]
    await conn.executemany(
        "UPDATE memories SET embedding = $2, embedding_model = 'any' WHERE id = $1",
        [(row, vector.tolist()) for row, vector in zip(ids, vectors, strict=True)],
    )
    asked = vectors[7] + 0.5 * vectors[8]
    found = await MemorySearch(pool).search(
        app_name=APP, user_id=MEI, query="note", query_embedding=asked.tolist(), embedding_model="any", limit=40
    )
    assert [result.memory_id for result in found.memories[:2]] == [ids[7], ids[8]]
    cosine = 1 / np.linalg.norm(asked) / np.linalg.norm(vectors[7]) * float(asked @ vectors[7])
    assert found.memories[0].why.similarity == pytest.approx(cosine, abs=1e-3)
    (zeros,) = [result for result in found.memories if result.memory_id == ids[39]]
    assert zeros.why.similarity == 0


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
async def test_a_vector_without_a_direction_is_refused(
    search: MemorySearch, conn: asyncpg.Connection, value: float
) -> None:
    """Its cosine is NaN and yields no order."""
    await add_memory(conn, MEI, "likes green tea")
    vector = [value] * DIMENSIONS
    with pytest.raises(InvalidInputError, match="direction"):
        await search.search(app_name=APP, user_id=MEI, query="tea", query_embedding=vector)


@pytest.mark.parametrize("length", [1e308, 5e-324])
async def test_a_given_vector_counts_by_its_direction(
    search: MemorySearch, conn: asyncpg.Connection, length: float
) -> None:
    """However long it is, even beyond the range of the column's own numbers."""
    await add_memory(conn, MEI, "likes green tea")
    (unit,) = await WordEmbedder().embed(["likes green tea"], "query")
    given = [length if component else 0.0 for component in unit]
    found = await search.search(app_name=APP, user_id=MEI, query="tea", query_embedding=given)
    assert found.memories[0].why.similarity == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("query", ["", "   ", "\0", "\n\t"])
async def test_a_blank_query_is_refused(search: MemorySearch, query: str) -> None:
    with pytest.raises(InvalidInputError, match="blank"):
        await find(search, query)


@pytest.mark.parametrize(
    "query",
    ["tea\0", "tea' | 'x", "tea & !tea <-> :*", "\\ ' \" tea", "🍵 tea", "\ud800 tea", "tea " * 5000, "%s $1 {tea}"],
)
async def test_odd_text_is_only_text(search: MemorySearch, conn: asyncpg.Connection, query: str) -> None:
    await add_memory(conn, MEI, "likes green tea", embedded=False)
    assert contents(await find(search, query)) == ["likes green tea"]


async def test_nothing_matches_nothing(search: MemorySearch, conn: asyncpg.Connection) -> None:
    await add_memory(conn, MEI, "likes green tea", embedded=False)
    for query in ("zebra", "the of and", "?!"):
        found = await find(search, query)
        assert (found.memories, found.total_count) == ((), 0)


async def test_the_limit_applies_and_the_total_counts_all(search: MemorySearch, conn: asyncpg.Connection) -> None:
    for place in range(15):
        await add_memory(conn, MEI, f"tea number {place}", embedded=False)
    for limit in (1, 10, 15, 1000):
        found = await find(search, "tea", limit=limit)
        assert (len(found.memories), found.total_count) == (min(limit, 15), 15)
    for limit in (0, -1, 1001):
        with pytest.raises(InvalidInputError, match="limit"):
            await find(search, "tea", limit=limit)


async def test_access_is_counted_once_for_relevant_memories(search: MemorySearch, conn: asyncpg.Connection) -> None:
    used = await add_memory(conn, MEI, "green tea")
    await add_memory(conn, MEI, " ".join(["tea", *(f"word{n}" for n in range(60))]))
    await search.search(app_name=APP, user_id=MEI, query="green tea with lots of other things")
    counts = await conn.fetch("SELECT id, access_count, last_accessed_at > created_at AS later FROM memories")
    assert {row["id"]: row["access_count"] for row in counts if row["access_count"]} == {used: 1}
    assert await search.record_access([used, used]) == 1
    assert await search.record_access([]) == 0
    assert await conn.fetchval("SELECT access_count FROM memories WHERE id = $1", used) == 2


async def test_accesses_of_the_same_memories_in_any_order_do_not_deadlock(
    search: MemorySearch, conn: asyncpg.Connection
) -> None:
    ids = [await add_memory(conn, MEI, f"memory {n}", embedded=False) for n in range(20)]
    await asyncio.gather(*(search.record_access(ids[::step]) for step in (1, -1) for _ in range(10)))
    assert await conn.fetchval("SELECT min(access_count) FROM memories") == 20


async def test_an_unknown_session_is_an_error_not_an_empty_answer(search: MemorySearch) -> None:
    with pytest.raises(SessionNotFoundError):
        await find(search, "tea", session_id="nowhere")


@pytest.mark.parametrize(
    "narrow",
    [
        {"sources": []},
        {"sources": ["memories"]},
        {"sources": "memory"},
        {"messages": "some"},
        {"memory_types": ["fact"]},
        {"min_relevance": 1.5},
        {"since": NOW.replace(tzinfo=None)},
    ],
)
def test_an_invalid_filter_is_refused(narrow: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        SearchFilter(**narrow)  # type: ignore[arg-type]


async def test_the_weights_of_python_and_sql_are_the_same(conn: asyncpg.Connection) -> None:
    row = await conn.fetchrow("SELECT (default_search_weights()).*")
    assert row is not None
    assert SearchWeights(**dict(row)) == SearchWeights()
    for wrong in ({"bm25": -1.0}, dict.fromkeys(dict(row), 0.0), {"recency": float("nan")}):
        with pytest.raises(InvalidInputError):
            SearchWeights(**wrong)


async def test_retention_is_scored_by_the_apps_policy(search: MemorySearch, conn: asyncpg.Connection) -> None:
    await add_memory(conn, MEI, "likes tea", initial_score=1.0)
    assert (await find(search, "tea")).memories[0].why.retention == pytest.approx(1.0, abs=1e-4)
    await conn.execute("INSERT INTO app_policies (app_name, retention_curve) VALUES ($1, 'classic')", APP)
    assert (await find(search, "tea")).memories[0].why.retention == pytest.approx(0.2, abs=1e-4)


async def test_facts_are_searched_as_they_were_true_and_known(search: MemorySearch, conn: asyncpg.Connection) -> None:
    """as_of is valid time, known_at is recorded time; an old version is found by its own words."""
    moved, recorded = days_ago(10), days_ago(9)
    fact_id = await add_fact(conn, MEI, "city", "Porto", valid_from=moved, recorded_at=recorded)
    await conn.execute(
        """INSERT INTO fact_versions (fact_id, user_id, app_name, fact_type, key, normal_key, value, content,
                                      confidence, valid_from, recorded_at, accepted_at, source_seqs)
           SELECT id, user_id, app_name, fact_type, key, normal_key, '"Lisbon"', 'city: Lisbon', 0.7, $2, $2, $2,
                  '{3,5}'
           FROM facts WHERE id = $1""",
        fact_id,
        days_ago(30),
    )
    (now,) = (await find(search, "city Lisbon Porto")).memories
    (then,) = (await find(search, "city Lisbon Porto", as_of=days_ago(20))).memories
    (unaware,) = (await find(search, "city Lisbon Porto", as_of=days_ago(9.5), known_at=days_ago(9.5))).memories
    assert (now.content, then.content, unaware.content) == ("city: Porto", "city: Lisbon", "city: Lisbon")
    assert (then.metadata["value"], then.why.retention, then.source_seqs) == ("Lisbon", 0.7, (3, 5))
    assert then.why.matched_terms == ("citi", "lisbon")
    assert (then.why.similarity, now.why.similarity is None) == (None, False)
    assert (await find(search, "city Lisbon Porto", as_of=days_ago(40))).memories == ()


async def test_a_question_ranks_below_a_statement(search: MemorySearch, pool: asyncpg.Pool) -> None:
    await say(pool, MEI, "s-1", "Does the blue kayak leak?")
    await say(pool, MEI, "s-2", "The blue kayak does leak.")
    await say(pool, MEI, "s-3", "蓝色的皮划艇漏水吗？")
    assert contents(await find(search, "blue kayak leak"))[0] == "The blue kayak does leak."


async def test_vectors_are_read_in_one_pass_before_the_tables_have_statistics(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """The planner then expects one vector; a loop over it would read them all again for each row."""
    await say(pool, MEI, "s-1", *(f"note {number} about the garden" for number in range(60)))
    await add_memory(conn, MEI, "a memory of the garden")
    query = (await WordEmbedder().embed(["garden"], "query"))[0]
    await conn.execute("UPDATE messages SET embedding = $1, embedding_model = $2", query, "words-1")
    await conn.execute(
        """INSERT INTO memories (app_name, user_id, memory_type, content, embedding, embedding_model)
           SELECT app_name, user_id, memory_type, 'garden ' || n, embedding, embedding_model
           FROM memories, generate_series(1, 60) AS n"""
    )

    async def scans() -> list[int]:
        rows = await conn.fetch(
            """SELECT sum(pg_stat_get_xact_numscans(r.oid))::integer
               FROM unnest(ARRAY['message_vectors', 'memory_vectors']::regclass[]) AS c (oid)
               CROSS JOIN LATERAL (
                   SELECT c.oid UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = c.oid) AS r
               GROUP BY c.oid ORDER BY c.oid::text"""
        )
        return [row[0] for row in rows]

    async with conn.transaction():
        before = await scans()
        await conn.fetch("SELECT * FROM search_memory($1, $2, 'garden', $3, $4)", APP, MEI, query, "words-1")
        made = [after - former for former, after in zip(before, await scans(), strict=True)]
    assert all(1 <= count <= 4 for count in made), made


async def test_a_bare_search_finds_the_same_rows_without_their_content(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Windows ask for ids and scores alone."""
    await say(pool, MEI, "s-1", "I planted roses", "The roses need water", "My bicycle is red")
    await add_memory(conn, MEI, "roses by the gate")
    await add_fact(conn, MEI, "garden", "roses")
    sql = "SELECT * FROM search_memory($1, $2, 'roses', p_limit => 10, p_bare => $3)"
    async with conn.transaction():  # one clock for both
        whole, bare = [await conn.fetch(sql, APP, MEI, is_bare) for is_bare in (False, True)]
    assert {row["source"] for row in whole} == {"message", "memory", "fact"}
    for column in ("source", "id", "score", "relevance", "bm25", "context_bm25", "occurred_at"):
        assert [row[column] for row in bare] == [row[column] for row in whole], column
    assert all(row["content"] for row in whole)
    assert [(row["content"], row["metadata"], row["matched_terms"]) for row in bare] == [(None, None, [])] * len(bare)
    for bare, most in ((False, 1000), (True, 4000)):
        with pytest.raises(asyncpg.PostgresError, match=f"limit must be from 1 to {most}, not 4001"):
            await conn.fetch(sql.replace("10", "4001"), APP, MEI, bare)
