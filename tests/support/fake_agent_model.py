"""A fake of the models' APIs that agents' frameworks call: it repeats the newest message, whole or as a stream.

OpenAI's ``/v1/chat/completions`` and Anthropic's ``/v1/messages``. `FakeApi.requests` has what a model was given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.fake_api import FakeApi, Reply, Request, as_json

USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


class FakeAgentModel(FakeApi):
    operations = ("chat/completions", "messages")

    def read_call(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Request | None:
        operation = path.removeprefix("/v1/")
        return Request(operation, str(body.get("model")), "", body, headers) if operation in self.operations else None

    def describe(self, path: str, headers: Mapping[str, str]) -> Reply | None:
        return None

    def error(self, code: int, message: str) -> Reply:
        return as_json(code, {"error": {"type": "not_found_error", "message": message}})

    def refusal(self, call: Request) -> Reply | None:
        return None

    def respond(self, call: Request, fault: Mapping[str, Any]) -> Reply:
        text = f"You said: {newest(call.body['messages'])}"
        if call.operation == "messages":
            return anthropic(call, text)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        head = {"id": "chatcmpl-1", "created": 1, "model": call.model}
        if not call.body.get("stream"):
            return as_json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": USAGE})
        chunk = {**head, "object": "chat.completion.chunk"}
        parts = ({"delta": {"role": "assistant", "content": text}}, {"delta": {}, "finish_reason": "stop"})
        chunks = [{**chunk, "choices": [{"index": 0, "finish_reason": None, **part}]} for part in parts]
        lines = [json.dumps(each) for each in (*chunks, {**chunk, "choices": [], "usage": USAGE})]
        return as_stream(f"data: {line}\n\n" for line in (*lines, "[DONE]"))


def newest(messages: list[dict[str, Any]]) -> str:
    """The last text of the newest message of the user."""
    content = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    texts = [content] if isinstance(content, str) else [part["text"] for part in content if part.get("type") == "text"]
    return str(texts[-1])


def anthropic(call: Request, text: str) -> Reply:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": call.model}
    message |= {"stop_sequence": None, "usage": usage}
    block = {"type": "text", "text": text}
    if not call.body.get("stream"):
        return as_json(200, {**message, "content": [block], "stop_reason": "end_turn"})
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return as_stream(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def as_stream(frames: Iterator[str]) -> Reply:
    return Reply(200, "".join(frames).encode(), content_type="text/event-stream")
