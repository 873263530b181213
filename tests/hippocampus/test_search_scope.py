"""Search stays within one user of one app, finds all of it, and uses its indexes if a scope is large."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import count

import asyncpg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.consolidation.vector_copies import update_vector_indexes
from hippocampus.search import MemorySearch, SearchFilter
from tests.support.memory_rows import WordEmbedder, add_fact, add_memory, say, vector_of
from tests.support.properties import examples

SCOPES = [(app, user) for app in ("app", "App", "app2") for user in ("mei", "mei ", "Mei", "tom%", "' OR true --")]

GIANT = 5600


@pytest.fixture
def search(pool: asyncpg.Pool) -> MemorySearch:
    return MemorySearch(pool, WordEmbedder())


async def test_a_user_with_one_percent_of_the_rows_gets_ten_of_ten(
    search: MemorySearch, conn: asyncpg.Connection
) -> None:
    """Nearer rows of another user do not displace this user's rows."""
    rows = [("big", f"tea tea tea {n}", vector_of(f"tea tea tea {n}")) for n in range(990)]
    rows += [("small", f"tea and biscuits {n}", vector_of(f"tea and biscuits {n}")) for n in range(10)]
    await conn.copy_records_to_table(
        "memories",
        records=[("app", user, text, vector, "words-1") for user, text, vector in rows],
        columns=["app_name", "user_id", "content", "embedding", "embedding_model"],
    )
    await conn.execute("ANALYZE memories")
    found = await search.search(app_name="app", user_id="small", query="tea", record_access=False)
    assert len(found.memories) == 10
    assert found.total_count == 10
    near = await conn.fetch("SELECT id FROM nearest_memories('app', 'small', $1, 'words-1', 10)", vector_of("tea"))
    assert len(near) == 10


async def test_nearest_vectors_are_found_in_clusters_that_the_index_misses(conn: asyncpg.Connection) -> None:
    """Groups of equal vectors, of which HNSW reaches a few: one row of each is this user's, and all are returned."""
    rows = [
        ("small" if n == 0 else "big", f"{island} {n}", vector_of(f"island{island}"))
        for island in range(200)
        for n in range(20)
    ]
    await conn.copy_records_to_table(
        "memories",
        records=[("app", user, text, vector, "words-1") for user, text, vector in rows],
        columns=["app_name", "user_id", "content", "embedding", "embedding_model"],
    )
    await conn.execute("ANALYZE memories")
    near = await conn.fetch("SELECT * FROM nearest_memories('app', 'small', $1, 'words-1', 200)", vector_of("island7"))
    assert len({row["id"] for row in near}) == 200
    assert near[0]["similarity"] == pytest.approx(1)


async def test_nearest_turns_are_found_in_clusters_that_the_index_misses(conn: asyncpg.Connection) -> None:
    now, threads, numbers = datetime.now(UTC), {}, {"small": count(1), "big": count(1)}
    async with conn.transaction():
        for user, turns in (("small", 200), ("big", 3800)):
            threads[user] = await conn.fetchval("SELECT thread_id FROM create_session('app', $1, 's')", user)
            await conn.execute(
                """INSERT INTO events (thread_id, sequence_num, id, author, event_type, content, occurred_at)
                   SELECT $1, n, 'e' || n, 'user', 'user_message', '{}', now() FROM generate_series(1, $2) AS n""",
                threads[user],
                turns,
            )
        records = []
        for island in range(200):
            vector = vector_of(f"island{island}")
            for user in ("small", *["big"] * 19):
                n = next(numbers[user])
                said = (threads[user], n, f"e{n}", "app", user, "user", "user", "x", 1, vector, "words-1", now)
                records.append(said)
        columns = (
            "thread_id sequence_num event_id app_name user_id role author content token_estimate embedding"
            " embedding_model occurred_at"
        )
        await conn.copy_records_to_table("messages", records=records, columns=columns.split())
    await conn.execute("ANALYZE messages")
    near = await conn.fetch("SELECT * FROM nearest_messages('app', 'small', $1, 'words-1', 200)", vector_of("island7"))
    assert len({row["id"] for row in near}) == 200
    assert near[0]["similarity"] == pytest.approx(1)


@examples(25)
@given(
    scope=st.sampled_from([*SCOPES, ("app", "nobody"), ("%", "%"), ("app", "")]),
    query=st.one_of(st.sampled_from(["tea", "secret tea", "茶", "mei"]), st.text(min_size=1).filter(str.strip)),
    messages=st.sampled_from(["recent", "all"]),
    embedded=st.booleans(),
)
async def test_no_query_ever_returns_another_scopes_row(
    filled: None, pool: asyncpg.Pool, scope: tuple[str, str], query: str, messages: str, embedded: bool
) -> None:
    """For any query, each returned row belongs to the given app and user."""
    app, user = scope
    search = MemorySearch(pool, WordEmbedder() if embedded else None)
    if not query.replace("\0", " ").strip():
        return
    found = await search.search(
        app_name=app,
        user_id=user,
        query=query,
        limit=100,
        narrow=SearchFilter(messages=messages),  # type: ignore[arg-type]
        record_access=False,
    )
    owner = f"owned by {SCOPES.index(scope)}." if scope in SCOPES else "nobody"
    assert all(owner in result.content for result in found.memories)
    if scope in SCOPES and query == "secret tea":
        assert {result.source for result in found.memories} == {"memory", "fact", "message"}


@pytest.fixture
async def filled(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    for place, (app, user) in enumerate(SCOPES):
        text = f"secret tea 茶 owned by {place}."
        await add_memory(conn, user, text, app=app)
        await add_fact(conn, user, "secret", f"tea 茶 owned by {place}.", app=app)
        await say(pool, user, "s", text, "and milk, owned by " + f"{place}.", app=app)


@pytest.fixture
async def giant(conn: asyncpg.Connection) -> None:
    """A scope beyond the limit of exact scoring, beside a few rows of others."""
    await conn.execute(
        """INSERT INTO memories (app_name, user_id, content, metadata, occurred_at, created_at)
           SELECT 'app', 'giant',
                  'common words about number' || n % 40 || CASE WHEN n % 1000 = 7 THEN ' zanzibar' ELSE '' END,
                  jsonb_build_object('n', n), now() - n * interval '1 minute', now() - n * interval '1 minute'
           FROM generate_series(1, $1) AS n""",
        GIANT,
    )
    await conn.execute(
        """UPDATE memories SET embedding = $1, embedding_model = 'words-1'
           WHERE (metadata ->> 'n')::integer % 500 = 3""",
        vector_of("near to this"),
    )
    await add_memory(conn, "other", "zanzibar near to this")
    await conn.execute("VACUUM ANALYZE memories")


async def test_a_giant_scope_finds_its_rare_words_and_its_nearest_vectors(giant: None, search: MemorySearch) -> None:
    found = await search.search(app_name="app", user_id="giant", query="zanzibar common words", record_access=False)
    top = [result for result in found.memories if "zanzibar" in result.content]
    assert found.memories[: len(top)] == tuple(top)
    assert len(top) == 6
    near = await search.search(app_name="app", user_id="giant", query="near to this", record_access=False)
    assert {result.metadata["n"] % 500 for result in near.memories} == {3}


async def test_a_giant_scope_is_filtered_before_it_is_limited(giant: None, search: MemorySearch) -> None:
    """The one row that passes a filter is found, however many others there are."""
    found = await search.search(
        app_name="app",
        user_id="giant",
        query="common words",
        narrow=SearchFilter(metadata={"n": 4321}),
        record_access=False,
    )
    assert [result.metadata["n"] for result in found.memories] == [4321]


async def test_common_words_alone_are_answered_in_a_giant_scope(giant: None, search: MemorySearch) -> None:
    found = await search.search(app_name="app", user_id="giant", query="common words", record_access=False)
    assert len(found.memories) == 10


async def test_document_frequencies_of_a_giant_scope_are_those_of_the_scope(
    giant: None, search: MemorySearch, conn: asyncpg.Connection
) -> None:
    seen = await conn.fetchval(
        """SELECT (memory_candidates('app', 'giant', '{zanzibar,common}', NULL, NULL, NULL, NULL, NULL, NULL)).seen"""
    )
    assert seen == [6, GIANT]


async def test_a_giant_scope_finds_the_row_of_several_terms_that_none_is_rare(
    search: MemorySearch, conn: asyncpg.Connection
) -> None:
    """It holds two of the query's terms, of which each is in more rows than those of the rarest that are scored."""
    await conn.execute(
        """INSERT INTO memories (app_name, user_id, content, occurred_at, created_at)
           SELECT 'app', 'giant', ('{alpha,beta,gamma,delta}'::text[])[n % 4 + 1] || ' note ' || n,
                  'epoch'::timestamptz, now() - n * interval '1 minute'
           FROM generate_series(1, 6000) AS n
           UNION ALL
           SELECT 'app', 'giant', 'beta gamma', 'epoch', now() - interval '1 year'"""
    )
    found = await search.search(app_name="app", user_id="giant", query="alpha beta gamma", record_access=False)
    assert found.memories[0].content == "beta gamma"


@pytest.mark.parametrize("query", ["hike", "hike xyzzy", "hike zebra", "hike zebra xyzzy"])
async def test_a_giant_scope_finds_the_best_row_of_a_frequent_word_beside_other_words(
    search: MemorySearch, conn: asyncpg.Connection, query: str
) -> None:
    """A word that is in no row, or in one, keeps no row of the frequent one from being scored as if all were equal."""
    await conn.execute(
        """INSERT INTO memories (app_name, user_id, content, occurred_at, created_at)
           SELECT 'app', 'giant',
                  CASE WHEN n % 4 = 0 THEN 'hike' WHEN n = 5999 THEN 'zebra' ELSE 'walk' END || ' note ' || n,
                  'epoch'::timestamptz, now() - n * interval '1 minute'
           FROM generate_series(1, 6000) AS n
           UNION ALL
           SELECT 'app', 'giant', 'hike hike', 'epoch', now() - interval '1 year'"""
    )
    found = await search.search(app_name="app", user_id="giant", query=query, record_access=False)
    assert "hike hike" in [memory.content for memory in found.memories[:2]]


async def test_a_giant_scope_is_searched_by_a_frequent_word_beside_one_that_is_nowhere(
    giant: None, search: MemorySearch
) -> None:
    async def count(query: str) -> int:
        found = await search.search(app_name="app", user_id="giant", query=query, record_access=False)
        return found.total_count

    assert await count("common xyzzy") == await count("common") >= 2000


async def test_a_giant_scope_finds_the_one_row_of_a_rare_word_beside_words_of_an_earlier_time(
    search: MemorySearch, conn: asyncpg.Connection
) -> None:
    """None of the question's words is in the newest memories, which tell how frequent words are."""
    await conn.execute(
        """INSERT INTO memories (app_name, user_id, content, created_at)
           SELECT 'app', 'giant', 'on the hike we took photos of the mountain trail, the lake, the boots ' || n,
                  now() - interval '1 year' - n * interval '1 minute'
           FROM generate_series(1, 5000) AS n
           UNION ALL
           SELECT 'app', 'giant', 'The deployment of build ' || n || ' passed review', now() - n * interval '1 minute'
           FROM generate_series(1, 1100) AS n
           UNION ALL
           SELECT 'app', 'giant', 'We slept at the Weisshorn', now() - interval '2 years'"""
    )
    for query in ("mountain trail lake hike photos boots Weisshorn", "Weisshorn boots photos hike lake trail mountain"):
        found = await search.search(app_name="app", user_id="giant", query=query, record_access=False)
        assert found.memories[0].content == "We slept at the Weisshorn"


async def test_document_frequencies_of_a_giant_scope_are_those_of_the_rows_that_pass_the_filters(
    search: MemorySearch, conn: asyncpg.Connection
) -> None:
    await conn.execute(
        """INSERT INTO memories (app_name, user_id, memory_type, content)
           SELECT 'app', 'giant', CASE WHEN n % 3 = 0 THEN 'semantic' ELSE 'episodic' END,
                  CASE WHEN n <= 300 THEN 'alpha' ELSE 'beta' END || ' ' || n
           FROM generate_series(1, 6000) AS n"""
    )
    seen = await conn.fetchval(
        "SELECT (memory_candidates('app', 'giant', '{alpha}', NULL, NULL, '{semantic}', NULL, NULL, NULL)).seen"
    )
    assert seen == [100]


async def test_a_giant_scope_is_searched_by_its_indexes(
    giant: None, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Words come from the GIN index, nearest vectors from the index of their model, which the upkeep creates."""
    vector = vector_of("zanzibar near")
    query = "SELECT id FROM search_memory('app', 'giant', 'zanzibar near', $1, 'words-1')"
    exact = await conn.fetch(query, vector)
    # Nothing has vectors of this index's model.
    await conn.execute(
        """CREATE INDEX memory_vectors_hnsw_gone ON memory_vectors
           USING hnsw ((embedding::halfvec(9)) halfvec_ip_ops) WHERE model = 'gone' AND vector_dims(embedding) = 9"""
    )
    assert await update_vector_indexes(pool, rows=GIANT) == 1
    assert await update_vector_indexes(pool, rows=10) == 1
    assert await update_vector_indexes(pool, rows=10) == 0
    assert (await scans_of(conn, query, vector))["memories_search_idx"] > 0
    (index, *more) = await conn.fetch(
        "SELECT relname FROM pg_class WHERE relname LIKE 'memory_vectors_hnsw_%' AND relkind = 'i'"
    )
    assert not more
    assert (await scans_of(conn, query, vector, table="memory_vectors"))[index["relname"]] > 0
    assert await conn.fetch(query, vector) == exact


async def test_a_small_scope_in_a_big_table_is_found_by_its_scope(giant: None, conn: asyncpg.Connection) -> None:
    """A user with one row pays for one row: nothing is scanned sequentially."""
    scans = await scans_of(conn, "SELECT id FROM search_memory('app', 'other', 'zanzibar')")
    assert scans["memories"] == 0
    assert scans["memories_scope_idx"] > 0


async def test_a_new_user_pays_nothing_for_one_who_has_nearly_every_row(conn: asyncpg.Connection) -> None:
    """Plans are made once, and statistics say that each row of these tables is the user's who asks."""
    await say_much(conn, "tom", 6000)
    await conn.execute(
        """INSERT INTO memories (app_name, user_id, content, embedding, embedding_model)
           SELECT 'app', 'tom', 'word ' || n, $1, 'words-1' FROM generate_series(1, 2000) AS n""",
        vector_of("word"),
    )
    await conn.execute("UPDATE messages SET embedding = $1, embedding_model = 'words-1'", vector_of("word"))
    await conn.execute(
        """INSERT INTO facts (app_name, user_id, key, value, content)
           SELECT 'app', 'tom', 'key' || n, '1', 'key' FROM generate_series(1, 4000) AS n"""
    )
    await conn.execute(
        """INSERT INTO fact_versions (fact_id, user_id, app_name, fact_type, key, normal_key, value, confidence,
                                      valid_from, recorded_at, accepted_at)
           SELECT f.id, f.user_id, f.app_name, f.fact_type, f.key, f.normal_key, '2', 1, now(), now(), now()
           FROM facts AS f"""
    )
    await conn.execute("UPDATE facts SET embedding = $1, embedding_model = 'words-1'", vector_of("key"))
    await conn.execute("VACUUM ANALYZE")
    await add_memory(conn, "mei", "tea with milk", memory_type="summary")
    await add_fact(conn, "mei", "home", "Lisbon")
    asked = "'app', 'mei', {session}'Where does she live?', $1, 'words-1')"
    for query in (
        f"SELECT id FROM search_memory({asked.format(session='')}",
        f"SELECT id FROM context_candidates({asked.format(session='NULL, ')}",
    ):
        for table in (
            "memories",
            "memory_vectors",
            "messages",
            "message_vectors",
            "facts",
            "fact_vectors",
            "fact_versions",
        ):
            scans = await scans_of(conn, query, vector_of("tea"), table=table)
            assert scans[table] == 0, (query, table)


async def test_turns_are_reached_by_their_session(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """Among thousands of turns of others, a user's few are found without scanning the rest."""
    await say(pool, "other", "s", "hello")
    await conn.execute("SET hippocampus.notify = 'off'")
    await conn.execute(
        """WITH said AS (
               INSERT INTO events (thread_id, sequence_num, id, author, event_type, content, occurred_at)
               SELECT t.id, n, 'e' || n, 'user', 'user_message', '{}', now()
               FROM threads AS t, generate_series(2, 6000) AS n RETURNING *)
           INSERT INTO messages (thread_id, sequence_num, event_id, app_name, user_id, role, author, content,
                                 token_estimate, occurred_at)
           SELECT s.thread_id, s.sequence_num, s.id, 'app', 'other', 'user', 'user', 'word ' || s.sequence_num, 2, now()
           FROM said AS s"""
    )
    await say(pool, "mei", "s", "tea with milk", "and sugar")
    await conn.execute("VACUUM ANALYZE messages, threads")
    for messages in ("recent", "all"):
        scans = await scans_of(
            conn, "SELECT id FROM search_memory('app', 'mei', 'tea', p_messages => $1)", messages, table="messages"
        )
        assert scans["messages"] == 0
        assert scans["messages_thread_id_sequence_num_key"] > 0


async def test_a_giant_scope_never_compares_two_models(
    giant: None, search: MemorySearch, conn: asyncpg.Connection
) -> None:
    """The index holds vectors of both models; the nearer ones of the other model are not returned."""
    await conn.execute(
        """UPDATE memories SET embedding = $1, embedding_model = 'words-0'
           WHERE user_id = 'giant' AND (metadata ->> 'n')::integer % 20 = 11""",
        vector_of("near this"),
    )
    await conn.execute("VACUUM ANALYZE memories")
    near = await conn.fetch(
        """SELECT m.embedding_model, m.user_id FROM nearest_memories('app', 'giant', $1, 'words-1', 10) AS n
           JOIN memories AS m USING (id)""",
        vector_of("near this"),
    )
    assert [tuple(row) for row in near] == [("words-1", "giant")] * 10
    found = await search.search(app_name="app", user_id="giant", query="near this", record_access=False)
    assert {result.metadata["n"] % 500 for result in found.memories} == {3}
    assert all(result.why.similarity is not None for result in found.memories)


async def say_much(conn: asyncpg.Connection, user: str, turns: int) -> None:
    """Thousands of turns in one session; every 700th mentions zanzibar, every 500th has a vector."""
    await conn.execute("SELECT create_session('app', $1, 'long')", user)
    await conn.execute("SET hippocampus.notify = 'off'")
    await conn.execute(
        """WITH said AS (
               INSERT INTO events (thread_id, sequence_num, id, author, event_type, content, occurred_at)
               SELECT t.id, n, 'e' || n, 'user', 'user_message', '{}', now() - (7000 - n) * interval '1 minute'
               FROM threads AS t, generate_series(1, $2) AS n WHERE t.user_id = $1 RETURNING *)
           INSERT INTO messages (thread_id, sequence_num, event_id, app_name, user_id, role, author, content,
                                 token_estimate, occurred_at, embedding, embedding_model)
           SELECT s.thread_id, s.sequence_num, s.id, 'app', $1, 'user', 'user',
                  'common words about number' || s.sequence_num % 40
                      || CASE WHEN s.sequence_num % 700 = 9 THEN ' zanzibar' ELSE '' END, 2, s.occurred_at,
                  CASE WHEN s.sequence_num % 500 = 3 THEN $3::vector END,
                  CASE WHEN s.sequence_num % 500 = 3 THEN 'words-1' END
           FROM said AS s""",
        user,
        turns,
        vector_of("near to this"),
    )
    await conn.execute("UPDATE threads SET last_seq = $2, last_event_at = now() WHERE user_id = $1", user, turns)
    await conn.execute("VACUUM ANALYZE messages, threads")


async def test_a_giant_scope_of_turns_finds_rare_words_near_vectors_and_neighbours(
    pool: asyncpg.Pool, search: MemorySearch, conn: asyncpg.Connection
) -> None:
    """Exact and limited scoring meet at the limit; nearest vectors come from the turns' own index."""
    await say(pool, "other", "s", "zanzibar near to this")
    await say_much(conn, "giant", GIANT)
    everything = SearchFilter(sources=("message",), messages="all")
    ask = {"app_name": "app", "user_id": "giant", "record_access": False}
    rare = await search.search(query="zanzibar common words", narrow=everything, **ask)  # type: ignore[arg-type]
    assert {result.source_seqs[0] % 700 for result in rare.memories[:8]} == {9}
    assert any(result.source_seqs[0] % 700 in (8, 10) for result in rare.memories[8:])
    near = await search.search(query="near to this", narrow=everything, **ask)  # type: ignore[arg-type]
    assert {result.source_seqs[0] % 500 for result in near.memories} == {3}
    assert all(result.why.vector_rank for result in near.memories)
    assert await update_vector_indexes(pool, rows=10) == 1
    scans = await scans_of(
        conn,
        "SELECT id FROM search_memory('app', 'giant', 'near', $1, 'words-1', p_messages => 'all')",
        vector_of("near"),
        table="message_vectors",
    )
    assert sum(count for name, count in scans.items() if name.startswith("message_vectors_hnsw_")) > 0
    newest = SearchFilter(messages="recent")
    recent = await search.search(query="zanzibar common words", narrow=newest, **ask)  # type: ignore[arg-type]
    assert recent.total_count == 5000
    assert min(result.source_seqs[0] for result in recent.memories) > GIANT - 5000


@pytest.mark.parametrize("size", [2001, 3072, 4000])
async def test_vectors_of_large_models_have_an_index(pool: asyncpg.Pool, conn: asyncpg.Connection, size: int) -> None:
    """Beyond 2,000 dimensions, which an index of full precision cannot have: it finds what the exact scan finds."""
    vectors = np.random.default_rng(size).standard_normal((60, size))
    texts = [f"note {number}" for number in range(len(vectors))]
    for text in texts:
        await add_memory(conn, "mei", text, embedded=False)
    await say(pool, "mei", "s", *texts)
    asked = (vectors[7] + 0.5 * vectors[8]).tolist()
    found = {}
    for table, function in (("memories", "nearest_memories"), ("messages", "nearest_messages")):
        await conn.executemany(
            f"UPDATE {table} SET embedding = $2, embedding_model = 'any' WHERE content = $1",
            zip(texts, vectors.tolist(), strict=True),
        )
        query = f"SELECT n.*, o.content FROM {function}('app', 'mei', $1, 'any', 10) AS n JOIN {table} AS o USING (id)"
        found[table, query] = await conn.fetch(query, asked)
        assert [row["content"] for row in found[table, query][:2]] == ["note 7", "note 8"]
    assert await update_vector_indexes(pool, rows=50) == 2
    for (table, query), exact in found.items():
        copies = {"memories": "memory_vectors", "messages": "message_vectors"}[table]
        scans = await scans_of(conn, query, asked, table=copies)
        # Once: and not by reading the scope, in either of the function's two ways.
        assert {name: count for name, count in scans.items() if count} == {
            await conn.fetchval("SELECT vector_index_name($1, 'any', $2)", copies, size): 1
        }
        by_index = await conn.fetch(query, asked)
        assert [row["id"] for row in by_index] == [row["id"] for row in exact]
        assert [row["similarity"] for row in by_index] == pytest.approx([row["similarity"] for row in exact], abs=1e-3)


async def plan_of(conn: asyncpg.Connection, function: str, places: str, *arguments: object) -> str:
    """The plan of the statement inside the function that returns the rows for these arguments."""
    source = await conn.fetchval("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = $1", function)
    source = re.sub(rf"FUNCTION \S*{function}\(", f"FUNCTION pg_temp.{function}_plan(", source, count=1)
    source = re.sub(r"RETURNS TABLE\(.*?\)\n", "RETURNS TABLE(plan text)\n", source, count=1, flags=re.DOTALL)
    source = re.sub(r"\bSTABLE\b", "VOLATILE", source, count=1).replace("RETURN QUERY", "RETURN QUERY EXPLAIN")
    await conn.execute(source)
    return "\n".join(
        row["plan"] for row in await conn.fetch(f"SELECT * FROM pg_temp.{function}_plan({places})", *arguments)
    )


async def test_the_plan_reaches_every_table_by_an_index(
    giant: None, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Inside the functions, for small scopes and giant ones: memories by scope or id, turns by thread."""
    await say_much(conn, "tom", 6000)
    await say(pool, "mei", "s", "tea with milk")
    await conn.execute(
        """INSERT INTO facts (app_name, user_id, key, value, content)
           SELECT 'app', 'user' || n % 50, 'key' || n, '1', 'key' FROM generate_series(1, 5000) AS n"""
    )
    await conn.execute("VACUUM ANALYZE")
    near = (vector_of("zanzibar near"), "words-1")
    learned = """'app', $1, (SELECT array_agg(id) FROM (SELECT id FROM memories WHERE user_id = $1 LIMIT $4) AS m),
                 true, NULL, NULL, NULL, NULL, NULL, 'zanzibar', $2, $3, 'exponential', 0.1, now(), NULL"""
    turns = "'app', $1, true, 'all', NULL, NULL, NULL, NULL, NULL, NULL, 'zanzibar', ' zanzibar ', $2, $3"
    small = await plan_of(conn, "search_learned", learned, "other", *near, 0)
    plans = [
        small,
        await plan_of(conn, "search_learned", learned, "giant", *near, 300),
        await plan_of(conn, "search_memory", "'app', $1, 'zanzibar', $2, $3", "other", *near),
        await plan_of(conn, "search_memory", "'app', $1, 'zanzibar', $2, $3", "giant", *near),
    ]
    for user in ("mei", "tom"):
        plans.append(await plan_of(conn, "search_turns", turns, user, *near))
        assert "messages_thread_id_sequence_num_key" in plans[-1]
    for plan in plans:
        assert not re.search(r"Seq Scan on (memories|messages|facts)", plan), plan
    # The plan for a whole scope is kept: it must not read another user's rows, however the tables grow.
    assert "Bitmap Index Scan on memories_scope_idx" in small
    assert "Bitmap Index Scan on memory_vectors_scope_idx" in small
    assert "Nested Loop Left Join" not in small
    assert "Bitmap Index Scan on message_vectors_scope_idx" in plans[-1]
    assert re.search(r"memories_(pkey|scope_idx)", plans[1])
    assert "facts_" in plans[2]


async def scans_of(conn: asyncpg.Connection, query: str, *arguments: object, table: str = "memories") -> dict[str, int]:
    """The number of sequential scans of each table, and of scans of each of its indexes."""
    counts = """SELECT relname, pg_stat_get_xact_numscans(oid) AS scans FROM pg_class
                WHERE relname LIKE $1 || '%' AND relkind IN ('r', 'i')"""
    async with conn.transaction():
        before = dict(await conn.fetch(counts, table))
        assert await conn.fetch(query, *arguments)
        after = dict(await conn.fetch(counts, table))
    return {name: after[name] - before[name] for name in after}
