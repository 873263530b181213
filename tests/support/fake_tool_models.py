"""The fakes of the providers' APIs with tools: they call the first tool once, then answer with its result.

Each refuses what the real API refuses: a call without its result right behind it, in the API's own form.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from tests.support.fake_anthropic import FakeAnthropic
from tests.support.fake_api import Reply, Request, as_json
from tests.support.fake_gemini import FakeGemini
from tests.support.fake_openai import FakeOpenAI

CALL = {"a": 1, "b": 2}


class ToolOpenAI(FakeOpenAI):
    def respond(self, call: Request, fault: Mapping[str, Any]) -> Reply:
        if call.operation != "chat/completions":
            return super().respond(call, fault)
        waiting: list[str] = []
        results = []
        for message in call.body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    return self.fail(400, "a result without its call", "invalid_request_error")
                waiting.remove(message["tool_call_id"])
                results.append(message["content"])
            elif waiting:
                return self.fail(400, "a call without its result", "invalid_request_error")
            waiting += [each["id"] for each in message.get("tool_calls") or ()]
        message: dict[str, Any] = {"role": "assistant", "content": f"it is {results[-1]}" if results else None}
        if not results:
            function = {"name": call.body["tools"][0]["function"]["name"], "arguments": json.dumps(CALL)}
            message["tool_calls"] = [{"id": f"call_{n}", "type": "function", "function": function} for n in (1, 2)]
            message["reasoning_content"] = "thinking"
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10_000, "completion_tokens": 5}
        return as_json(200, {"model": call.model, "choices": [choice], "usage": usage})


class ToolAnthropic(FakeAnthropic):
    def respond(self, call: Request, fault: Mapping[str, Any]) -> Reply:
        waiting: set[str] = set()
        results = []
        roles = [message["role"] for message in call.body["messages"]]
        if roles[0] != "user" or any(one == other for one, other in itertools.pairwise(roles)):
            return as_json(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "roles"}})
        for message in call.body["messages"]:
            found = {block["tool_use_id"]: block for block in message["content"] if block["type"] == "tool_result"}
            if found.keys() != waiting:
                text = "`tool_use` ids were found without `tool_result` blocks immediately after"
                return as_json(400, {"type": "error", "error": {"type": "invalid_request_error", "message": text}})
            results += [block["content"] for block in found.values()]
            waiting = {block["id"] for block in message["content"] if block["type"] == "tool_use"}
        content: list[dict[str, Any]] = [{"type": "text", "text": f"it is {''.join(results[-1:])}"}]
        if not results:
            name = call.body["tools"][0]["name"]
            uses = [{"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": CALL} for n in (1, 2)]
            content = [{"type": "thinking", "thinking": "thinking"}, *uses]
        usage = {"input_tokens": 10, "output_tokens": 5}
        return as_json(200, {"type": "message", "model": call.model, "content": content, "usage": usage})


class ToolGemini(FakeGemini):
    def respond(self, call: Request, fault: Mapping[str, Any]) -> Reply:
        waiting: list[str] = []
        results = []
        for content in call.body["contents"]:
            answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
            if len(answers) != len(waiting):
                return as_json(400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "parts"}})
            results += [next(iter(each["response"].values())) for each in answers]
            calls = [part for part in content["parts"] if "functionCall" in part]
            if any("thoughtSignature" not in part for part in calls):
                return as_json(400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "signature"}})
            waiting = [part["functionCall"]["name"] for part in calls]
        parts: list[dict[str, Any]] = [{"text": f"it is {''.join(results[-1:])}"}]
        if not results:
            name = call.body["tools"][0]["functionDeclarations"][0]["name"]
            parts = [{"text": "thinking", "thought": True}]
            parts += [{"functionCall": {"name": name, "args": CALL}, "thoughtSignature": "c2ln"} for _ in range(2)]
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5}
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        return as_json(200, {"candidates": [candidate], "usageMetadata": usage, "modelVersion": call.model})
