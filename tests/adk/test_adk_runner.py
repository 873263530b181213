"""ADK agents, run by ADK's own Runner on our sessions, and the features that ADK and others build on it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog
from ag_ui.core import RunAgentInput, UserMessage
from google.adk.agents import SequentialAgent
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models import LlmRequest
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools import LongRunningFunctionTool, ToolContext, load_memory, preload_memory
from google.genai import types

from hippocampus.adk import PostgresMemoryService
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.gemini.provider import GeminiConnection, GeminiEmbedder
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.search import SearchFilter
from pulse.adk import PostgresArtifactService, PostgresSessionService
from tests.support import cli_process
from tests.support.adk.scripted import ScriptedLlm, agent, echo, last_text, user_says
from tests.support.adk.services import Who
from tests.support.fake_gemini import FakeGemini
from tests.support.queue_claims import work_off
from tests.support.waiting import WAIT_SECONDS, until

# ADK warns about its experimental features, in whichever test uses one first.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL:UserWarning"),
    pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated:DeprecationWarning"),
]

WHO: Who = {"app_name": "app", "user_id": "ann"}


@pytest.fixture
async def service(dsn: str) -> AsyncIterator[PostgresSessionService]:
    async with PostgresSessionService(dsn) as opened:
        yield opened


def runner(service: PostgresSessionService, **fields: Any) -> Runner:
    return Runner(**{"app_name": "app", "agent": agent(), "session_service": service, **fields})


async def talk(run: Runner, text: str, session_id: str = "s", **fields: Any) -> list[Event]:
    return [
        event
        async for event in run.run_async(user_id="ann", session_id=session_id, new_message=user_says(text), **fields)
    ]


async def read(service: PostgresSessionService, session_id: str = "s") -> Session:
    session = await service.get_session(**WHO, session_id=session_id)
    assert session is not None
    return session


def texts(session: Session) -> list[str]:
    return [part.text for event in session.events if event.content for part in event.content.parts or [] if part.text]


async def test_a_conversation_continues_in_a_new_runner(service: PostgresSessionService) -> None:
    await service.create_session(**WHO, session_id="s")
    run = runner(service)
    await talk(run, "one")
    await talk(run, "two")
    await run.close()
    assert texts(await read(service)) == ["one", "[1] you said: one", "two", "[3] you said: two"]


def test_each_run_may_have_its_own_event_loop(dsn: str) -> None:
    """`Runner.run` starts a thread and an event loop per call. Their connections close with the loop, which sends what
    notifications wait."""
    service = PostgresSessionService(dsn)
    asyncio.run(service.create_session(**WHO, session_id="s"))

    async def connections() -> int:
        connection = await asyncpg.connect(dsn)
        try:
            return await _connections(connection)
        finally:
            await connection.close()

    before = threading.active_count()
    with structlog.testing.capture_logs() as logs:
        for n in range(5):
            events = list(runner(service).run(user_id="ann", session_id="s", new_message=user_says(str(n))))
            assert len(events) == 1
            assert asyncio.run(connections()) == 0
    assert threading.active_count() == before
    assert logs == []

    async def finish() -> int:
        found = await read(service)
        await service.close()
        return len(found.events)

    assert asyncio.run(finish()) == 10
    assert asyncio.run(connections()) == 0


@contextlib.contextmanager
def gemini_in_its_own_loop() -> Iterator[FakeGemini]:
    """A fake Gemini API that outlives the event loops of its callers."""
    gemini, loop = FakeGemini(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(gemini.start(), loop).result(10)
    try:
        yield gemini
    finally:
        asyncio.run_coroutine_threadsafe(gemini.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def look_up(request: Any) -> types.Part:
    """Search the memory for the user's message, then answer whether anything was found."""
    for part in request.contents[-1].parts:
        if part.function_response:
            return types.Part(text="found" if part.function_response.response["result"].memories else "nothing")
    return types.Part(function_call=types.FunctionCall(name="load_memory", args={"query": last_text(request)}))


def test_a_model_is_called_from_the_event_loop_of_each_run(dsn: str) -> None:
    """A query is embedded in a loop that ends with the run. Connections to the model end with it and are not reused."""
    service = PostgresSessionService(dsn)
    for n in range(3):
        asyncio.run(service.create_session(**WHO, session_id=f"s{n}"))
    with gemini_in_its_own_loop() as gemini:
        connection = GeminiConnection(api_key="k", base_url=gemini.base_url, timeout_seconds=WAIT_SECONDS, attempts=1)
        memory = PostgresMemoryService(dsn, GeminiEmbedder(connection))
        run = runner(service, agent=agent(look_up, tools=[load_memory]), memory_service=memory)
        for n in range(3):
            events = list(run.run(user_id="ann", session_id=f"s{n}", new_message=user_says(f"The harbour, note {n}.")))
            assert [part.text for part in events[-1].content.parts] == ["found" if n else "nothing"]
            assert gemini.counts.calls["batchEmbedContents"] == n + 1
        asyncio.run(memory.close())
    asyncio.run(service.close())


async def _connections(database: Any) -> int:
    count: int = await database.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'hippocampus'"
    )
    return count


class _ReadTogether(PostgresSessionService):
    """Returns the session only after two callers have asked for it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._both = asyncio.Barrier(2)
        self._readers = 0

    async def get_session(self, **asked: Any) -> Session | None:
        found = await super().get_session(**asked)
        self._readers += 1
        if self._readers <= 2:
            await self._both.wait()
        return found


async def test_concurrent_runs_of_one_session_do_not_mix(dsn: str) -> None:
    """Both read the session before either writes. One gets StaleSessionError, and stores nothing after that."""
    async with _ReadTogether(dsn) as service:
        await service.create_session(**WHO, session_id="s")
        done = await asyncio.gather(
            *(talk(runner(service), text) for text in ("left", "right")), return_exceptions=True
        )
        lost = [each for each in done if isinstance(each, BaseException)]
        assert [type(each).__name__ for each in lost] == ["StaleSessionError"]
        assert len((await read(service)).events) in (2, 3)


async def test_an_agent_reads_temp_state_of_the_agent_before_it(service: PostgresSessionService) -> None:
    """`output_key='temp:…'` of one agent reaches the instruction of the next one, and no table."""
    steps = SequentialAgent(
        name="steps",
        sub_agents=[
            agent(lambda _: types.Part(text="Lisbon"), name="first", output_key="temp:city"),
            agent(
                lambda request: types.Part(text=str(request.config.system_instruction)),
                name="second",
                instruction="The city is {temp:city}.",
                output_key="answer",
            ),
        ],
    )
    await service.create_session(**WHO, session_id="s")
    await talk(runner(service, agent=steps), "go")
    state = (await read(service)).state
    assert "The city is Lisbon." in state.pop("answer")
    assert state == {}


def remember(note: str, tool_context: ToolContext) -> dict[str, str]:
    """Keep a note."""
    tool_context.state["note"] = note
    tool_context.state["user:notes"] = [*tool_context.state.get("user:notes", []), note]
    return {"kept": note}


def call_once(request: Any) -> types.Part:
    """Call the first tool with the user's message, then answer."""
    if any(part.function_response for part in request.contents[-1].parts):
        return types.Part(text="done")
    name = next(iter(request.tools_dict))
    return types.Part(function_call=types.FunctionCall(name=name, args={"note": last_text(request)}))


async def write_down(note: str, tool_context: ToolContext) -> dict[str, str]:
    """Keep a note, also in a file."""
    for name in ("note.txt", f"{note}.txt"):
        await tool_context.save_artifact(name, types.Part(text=note))
    return remember(note, tool_context)


async def test_a_rewind_restores_state_and_files_and_keeps_history(service: PostgresSessionService, dsn: str) -> None:
    await service.create_session(**WHO, session_id="s")
    files = PostgresArtifactService(dsn)
    run = runner(service, agent=agent(call_once, tools=[write_down]), artifact_service=files)

    async def written(name: str) -> str | None:
        part = await files.load_artifact(**WHO, session_id="s", filename=name)
        return part.text if part else None

    await talk(run, "tea")
    first = (await read(service)).events[-1].invocation_id
    await talk(run, "coffee")
    second = (await read(service)).events[-1].invocation_id
    assert first != second
    assert (await read(service)).state["note"] == "coffee"
    assert [await written(name) for name in ("note.txt", "tea.txt", "coffee.txt")] == ["coffee", "tea", "coffee"]
    await run.rewind_async(user_id="ann", session_id="s", rewind_before_invocation_id=second)
    after = await read(service)
    assert after.state["note"] == "tea"
    assert [await written(name) for name in ("note.txt", "tea.txt", "coffee.txt")] == ["tea", "tea", None]
    assert await files.list_versions(**WHO, session_id="s", filename="note.txt") == [0, 1, 2]
    assert after.events[-1].actions.rewind_before_invocation_id == second
    assert len(after.events) == 9
    await talk(run, "water")
    assert (await read(service)).state["note"] == "water"
    await files.close()


async def test_a_run_reads_as_many_events_as_its_configuration_allows(service: PostgresSessionService) -> None:
    await service.create_session(**WHO, session_id="s")
    run = runner(service)
    await talk(run, "one")
    few = RunConfig(get_session_config=GetSessionConfig(num_recent_events=1))
    await talk(run, "two", run_config=few)
    none = RunConfig(get_session_config=GetSessionConfig(num_recent_events=0))
    await talk(run, "three", run_config=none)
    assert texts(await read(service))[1::2] == ["[1] you said: one", "[2] you said: two", "[1] you said: three"]


async def look_back(note: str, tool_context: ToolContext) -> dict[str, list[str]]:
    """Add the session and a note to the memory, and search it."""
    await tool_context.add_session_to_memory()
    await tool_context.add_memory(
        memories=[MemoryEntry(content=types.Content(parts=[types.Part(text=f"Noted: {note}")]))]
    )
    found = await tool_context.search_memory("harbour")
    return {"found": sorted(part.text or "" for each in found.memories for part in each.content.parts or [])}


async def test_a_tool_adds_to_memory_and_searches_it_through_its_context(
    service: PostgresSessionService, dsn: str
) -> None:
    await service.create_session(**WHO, session_id="s")
    memory = PostgresMemoryService(dsn)
    run = runner(service, agent=agent(call_once, tools=[look_back]), memory_service=memory)
    events = await talk(run, "The harbour opens at nine.")
    await memory.close()
    [answer] = [each for event in events for each in event.get_function_responses()]
    assert answer.response == {"found": ["Noted: The harbour opens at nine.", "The harbour opens at nine."]}


def noting_preloaded() -> tuple[list[str], Callable[[LlmRequest], types.Part]]:
    """Return what was preloaded into each prompt so far, and the model that notes it."""
    prompts: list[str] = []

    def answer(request: LlmRequest) -> types.Part:
        contents = [part.text or "" for content in request.contents for part in content.parts or []]
        prompts.append("\n".join(text for text in contents if "PAST_CONVERSATIONS" in text))
        return types.Part(text="I see.")

    return prompts, answer


async def test_preloaded_memory_is_of_other_sessions_without_what_was_rewound(
    service: PostgresSessionService, dsn: str
) -> None:
    """The running session is in the prompt already; a turn that was taken back is in none."""
    prompts, answer = noting_preloaded()
    memory = PostgresMemoryService(dsn, LocalEmbedder())
    run = runner(service, agent=agent(answer, tools=[preload_memory]), memory_service=memory)
    for session_id in ("old", "now"):
        await service.create_session(**WHO, session_id=session_id)
    await talk(run, "The harbour of Ghent is deep.", "old")
    await talk(run, "The harbour of Bruges is shallow.", "old")
    taken_back = (await read(service, "old")).events[-1].invocation_id
    await run.rewind_async(user_id="ann", session_id="old", rewind_before_invocation_id=taken_back)
    await talk(run, "The harbour of Antwerp is large.", "now")
    await talk(run, "Which harbour is deep?", "now")
    assert "The harbour of Ghent is deep." in prompts[-1]
    for text in ("Bruges", "Antwerp", "Which harbour"):
        assert text not in prompts[-1]
    # Asked by others, or if it is wished for, the running session is found.
    with_running = PostgresMemoryService(dsn, LocalEmbedder(), include_running_session=True)
    for each, query in ((memory, "harbours"), (with_running, "Which harbour is deep?")):
        found = await each.search_memory(**WHO, query=query)
        said = "\n".join(part.text or "" for entry in found.memories for part in entry.content.parts or [])
        assert "Antwerp" in said
        assert "Bruges" not in said
    await memory.close()
    await with_running.close()


async def said_in(service: PostgresMemoryService, query: str) -> list[str]:
    """The texts that a search returns."""
    entries = (await service.search_memory(**WHO, query=query)).memories
    return [part.text or "" for entry in entries for part in entry.content.parts or []]


@pytest.mark.parametrize("query", ["Which harbour", "Which harbour is"])
async def test_words_that_a_question_begins_with_find_its_session(
    service: PostgresSessionService, dsn: str, query: str
) -> None:
    """As `load_memory` may ask for them."""
    run = runner(service, agent=agent(lambda request: types.Part(text="Fine.")))
    await service.create_session(**WHO, session_id="now")
    await talk(run, "The harbour of Antwerp is large.", "now")
    await talk(run, "Which harbour is deep?", "now")
    memory = PostgresMemoryService(dsn, LocalEmbedder())
    found = await said_in(memory, query)
    assert "Which harbour is deep?" in found
    assert await said_in(memory, "Which harbour is deep?") == []
    await memory.close()


async def test_the_running_session_is_left_out_where_secrets_are_masked(
    service: PostgresSessionService, dsn: str, pool: asyncpg.Pool
) -> None:
    """Its stored turn is not word for word what is asked."""
    await pool.execute("SELECT set_app_policy($1, $2)", WHO["app_name"], {"redaction": "mask"})
    run = runner(service, agent=agent(lambda request: types.Part(text="Fine.")))
    for session_id in ("old", "now"):
        await service.create_session(**WHO, session_id=session_id)
    await talk(run, "The harbour of Ghent is deep.", "old")
    await talk(run, "The harbour of Antwerp is large.", "now")
    question = f"With my key ghp_{'a1B2' * 9}, which harbour is large?"
    await talk(run, question, "now")
    memory = PostgresMemoryService(dsn, LocalEmbedder())
    found = await said_in(memory, question)
    assert "The harbour of Ghent is deep." in found
    assert not any("Antwerp" in text or "which harbour" in text for text in found)
    await memory.close()


async def test_preloaded_memory_leaves_out_what_was_made_of_the_running_session_and_of_rewound_turns(
    service: PostgresSessionService, dsn: str, pool: asyncpg.Pool
) -> None:
    """Summaries and insights. A fact of the running session may have been stated there again: it stays."""
    prompts, answer = noting_preloaded()

    async def consolidate(session_id: str) -> None:
        await memory.add_session_to_memory(await read(service, session_id))
        assert await work_off(pool, MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder()))

    async def remembered(service: PostgresMemoryService, query: str) -> set[tuple[str, str]]:
        """What is found apart from turns and slices, which would stand for a summary: its kind, and the place in it."""
        kinds = set()
        for narrowed in (SearchFilter(memory_types=("summary", "semantic")), SearchFilter(sources=("fact",))):
            for entry in (await service.search_memory(**WHO, query=query, limit=50, filter=narrowed)).memories:
                said = " ".join(part.text or "" for part in entry.content.parts or [])
                kinds |= {(entry.custom_metadata["memory_type"], each) for each in places if each in said}
        return kinds

    places = ("Ghent", "Bruges", "Antwerp")
    memory = PostgresMemoryService(dsn, LocalEmbedder())
    with_running = PostgresMemoryService(dsn, LocalEmbedder(), include_running_session=True)
    run = runner(service, agent=agent(answer, tools=[preload_memory]), memory_service=memory)
    for session_id in ("old", "now"):
        await service.create_session(**WHO, session_id=session_id)
    await talk(run, "I learned that the harbour of Ghent is deep. I live in Ghent.", "old")
    await consolidate("old")
    await talk(run, "I realised that the harbour of Bruges is shallow. My sister lives in Bruges.", "old")
    await consolidate("old")
    await talk(run, "I realised that the harbour of Antwerp is large. I work in Antwerp.", "now")
    await consolidate("now")
    everything = {(kind, place) for kind in ("summary", "semantic", "profile") for place in places}
    wide = "Which harbour did she learn of, in which field does she work, and where does her sister live?"
    assert await remembered(memory, wide) == everything
    [taken_back] = {
        event.invocation_id
        for event in (await read(service, "old")).events
        if event.content and "Bruges" in str(event.content.parts) and event.author == "user"
    }
    await run.rewind_async(user_id="ann", session_id="old", rewind_before_invocation_id=taken_back)
    left = {each for each in everything if each[1] != "Bruges"}
    assert await remembered(memory, wide) == left
    query = "Which harbour did I learn of, in which field do I work, and where does my sister live?"
    await talk(run, query, "now")
    assert await remembered(memory, query) == left - {("summary", "Antwerp"), ("semantic", "Antwerp")}
    assert await remembered(with_running, query) == left
    for text in ("harbour of Ghent is deep", "lives in Ghent", "works in Antwerp"):
        assert text in prompts[-1]
    for text in ("Bruges", "harbour of Antwerp"):
        assert text not in prompts[-1]
    await memory.close()
    await with_running.close()


def ask_permission(note: str) -> None:
    """Request a permission, which is granted later."""


async def test_a_run_that_waits_for_an_answer_is_resumed(service: PostgresSessionService) -> None:
    app = App(
        name="app",
        root_agent=agent(call_once, tools=[LongRunningFunctionTool(ask_permission)]),
        resumability_config=ResumabilityConfig(is_resumable=True),
    )
    await service.create_session(**WHO, session_id="s")
    run = Runner(app=app, session_service=service)
    [asked, *_] = await talk(run, "may I?")
    [call] = asked.get_function_calls()
    assert asked.long_running_tool_ids == {call.id}
    answer = types.Part(
        function_response=types.FunctionResponse(id=call.id, name=call.name, response={"result": "yes"})
    )
    # In another runner, as after a restart.
    again = Runner(app=app, session_service=service)
    resumed = [
        event
        async for event in again.run_async(
            user_id="ann",
            session_id="s",
            invocation_id=asked.invocation_id,
            new_message=types.Content(role="user", parts=[answer]),
        )
    ]
    assert [part.text for event in resumed if event.content for part in event.content.parts or [] if part.text] == [
        "done"
    ]
    assert {event.invocation_id for event in (await read(service)).events} == {asked.invocation_id}


async def test_compacted_turns_reach_the_model_as_a_summary_and_stay_stored(service: PostgresSessionService) -> None:
    shown: list[str] = []

    def answer(request: Any) -> types.Part:
        shown.append(" | ".join(p.text for c in request.contents for p in c.parts if p.text))
        return types.Part(text="ok")

    summarizer = LlmEventSummarizer(llm=ScriptedLlm(answer=lambda _: types.Part(text="THE SUMMARY")))
    app = App(
        name="app",
        root_agent=agent(answer),
        events_compaction_config=EventsCompactionConfig(summarizer=summarizer, compaction_interval=2, overlap_size=0),
    )
    await service.create_session(**WHO, session_id="s")
    run = Runner(app=app, session_service=service)
    for text in ("first", "second", "third"):
        await talk(run, text)
    session = await read(service)
    [compaction] = [each.actions.compaction for each in session.events if each.actions.compaction]
    assert compaction.compacted_content.parts[0].text == "THE SUMMARY"
    assert "THE SUMMARY" in shown[-1]
    assert "first" not in shown[-1]
    assert texts(session)[:2] == ["first", "ok"]


async def agui_events(service: Any, texts_: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The events that ag-ui-adk emits for a conversation on a service, and the final state."""
    from ag_ui_adk import ADKAgent

    bridge = ADKAgent(
        adk_agent=agent(call_once, tools=[remember]),
        app_name="app",
        user_id="ann",
        session_service=service,
        use_in_memory_services=True,
        # The test ends the sessions itself.
        delete_session_on_cleanup=False,
        use_thread_id_as_session_id=True,
    )
    emitted = []
    for n, text in enumerate(texts_):
        run = RunAgentInput(
            thread_id="t1",
            run_id=f"r{n}",
            state={},
            messages=[UserMessage(id=f"m{n}", content=text)],
            tools=[],
            context=[],
            forwarded_props={},
        )
        emitted += [event.type.value async for event in bridge.run(run)]
    await bridge.close()
    found = await service.get_session(**WHO, session_id="t1")
    assert found is not None
    return emitted, {key: value for key, value in found.state.items() if not key.startswith("_ag_ui")}


async def test_ag_ui_adk_emits_the_same_events_on_our_sessions_as_on_adks(service: PostgresSessionService) -> None:
    """An independent client of the contract. When it closes, the session still exists."""
    conversation = ["tea", "coffee"]
    expected = await agui_events(InMemorySessionService(), conversation)
    assert await agui_events(service, conversation) == expected
    assert expected[0][0] == "RUN_STARTED"
    assert expected[0].count("RUN_FINISHED") == 2
    assert expected[1]["user:notes"] == ["tea", "coffee"]


async def test_the_cleanup_of_ag_ui_adk_adds_sessions_to_memory_and_deletes_none(
    service: PostgresSessionService, dsn: str, pool: asyncpg.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """The real cleanup finds the session too old and adds it to the memory. The conversation then continues."""
    from ag_ui_adk import ADKAgent

    memory = PostgresMemoryService(dsn)
    bridge = ADKAgent(
        adk_agent=agent(),
        app_name="app",
        user_id="ann",
        session_service=service,
        memory_service=memory,
        session_timeout_seconds=0,
        cleanup_interval_seconds=0.05,  # type: ignore[arg-type]  # a whole second is long
        delete_session_on_cleanup=False,
        use_thread_id_as_session_id=True,
    )

    messages: list[UserMessage] = []
    for n in range(2):
        messages.append(UserMessage(id=f"m{n}", content=f"The harbour, note {n}."))
        run = RunAgentInput(
            thread_id="t1", run_id=f"r{n}", state={}, messages=messages, tools=[], context=[], forwarded_props={}
        )
        assert [event.type.value async for event in bridge.run(run)][-1] == "RUN_FINISHED"
        await until(lambda: bridge._session_manager.get_session_count() == 0)
    await bridge.close()
    await memory.close()
    said = ["The harbour, note 0.", "[1] you said: The harbour, note 0."]
    said += ["The harbour, note 1.", "[3] you said: The harbour, note 1."]
    assert texts(await read(service, "t1")) == said
    assert await pool.fetchval("SELECT count(*) > 0 FROM consolidation_jobs")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_worker_consolidates_the_messages_of_an_agents_session(
    service: PostgresSessionService, pool: asyncpg.Pool, dsn: str, home: Path
) -> None:
    """Messages of the user and the model are consolidated, thoughts and calls are not. The policy enqueues the job."""
    await pool.execute("SELECT set_app_policy('app', '{\"fast_events\": 6}')")
    await service.create_session(**WHO, session_id="s")
    run = runner(service, agent=agent(call_once, tools=[remember]))
    await talk(run, "My cat is called Pixel.")
    await talk(run, "I live in Lisbon.")
    said = await pool.fetch("SELECT role, author, content FROM messages ORDER BY sequence_num")
    assert [tuple(row) for row in said] == [
        ("user", "user", "My cat is called Pixel."),
        ("assistant", "helper", "done"),
        ("user", "user", "I live in Lisbon."),
        ("assistant", "helper", "done"),
    ]
    jobs = await pool.fetch("SELECT job_type FROM consolidation_jobs")
    assert [row["job_type"] for row in jobs] == ["fast_replay"]

    async def summary() -> str | None:
        found: str | None = await pool.fetchval("SELECT content FROM memories WHERE memory_type = 'summary'")
        return found

    with subprocess.Popen(
        cli_process.command("worker", "fast_replay"),
        env=cli_process.environment(home, DATABASE_URL=dsn, HIPPOCAMPUS_PROVIDER="local"),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as worker:
        try:
            assert "Pixel" in await until(summary)
        finally:
            worker.terminate()


def test_the_echo_counts_turns() -> None:
    """The tests above rely on this behaviour of the scripted model."""
    request = type("Request", (), {"contents": [user_says("x")]})()
    assert echo(request).text == "[1] you said: x"
