"""ADK events, one of each kind."""

from __future__ import annotations

from collections.abc import Callable

from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from tests.support.adk.services import calling, said


def parts(*given: types.Part) -> Event:
    return Event(invocation_id="e-1", author="agent", content=types.Content(role="model", parts=list(given)))


EVENTS: dict[str, Callable[[], Event]] = {
    "text": lambda: said("hello\n \u2028 世界 🎉"),
    "no content": lambda: Event(author="agent", invocation_id="e-1"),
    "empty content": lambda: Event(author="agent", content=types.Content(role="model", parts=[])),
    "bytes": lambda: parts(types.Part(inline_data=types.Blob(mime_type="image/png", data=bytes(range(256))))),
    "thought": lambda: parts(types.Part(text="hm", thought=True, thought_signature=b"\x00\xff\xfe sig")),
    "function call": lambda: calling({"a": None, "b": [1, {"c": "d"}], "e": 0.1, "f": True}),
    "function response": lambda: parts(
        types.Part(function_response=types.FunctionResponse(id="c1", name="look_up", response={"result": [None, 1]}))
    ),
    "code": lambda: parts(
        types.Part(executable_code=types.ExecutableCode(code="1+1", language=types.Language.PYTHON)),
        types.Part(code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="2")),
    ),
    "file": lambda: parts(types.Part(file_data=types.FileData(file_uri="gs://b/o", mime_type="text/plain"))),
    "long-running": lambda: calling({}, long_running_tool_ids={"c1", "c0"}, branch="root.helper"),
    "model's reply": lambda: said(
        "x",
        "agent",
        finish_reason=types.FinishReason.STOP,
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=7, total_token_count=9),
        grounding_metadata=types.GroundingMetadata(web_search_queries=["q"]),
        custom_metadata={"k": [1, None]},
        turn_complete=True,
        interrupted=False,
        avg_logprobs=-0.25,
    ),
    "error": lambda: Event(author="agent", error_code="MALFORMED", error_message="why"),
    "actions": lambda: Event(
        author="agent",
        actions=EventActions(
            skip_summarization=True,
            artifact_delta={"f.txt": 2},
            transfer_to_agent="other",
            escalate=False,
            requested_tool_confirmations={"c1": ToolConfirmation(hint="sure?", confirmed=False, payload={"a": [1]})},
        ),
    ),
    "agent's state": lambda: Event(author="agent", actions=EventActions(agent_state={"step": 3}, end_of_agent=True)),
    "rewind": lambda: Event(
        author="user", actions=EventActions(rewind_before_invocation_id="e-0", state_delta={"a": None})
    ),
    "compaction": lambda: Event(
        author="user",
        actions=EventActions(
            compaction=EventCompaction(
                start_timestamp=1.25,
                end_timestamp=2.5,
                compacted_content=types.Content(role="model", parts=[types.Part(text="short")]),
            )
        ),
    ),
    "no author": lambda: Event(content=types.Content(role="user", parts=[types.Part(text="x")])),
}
