"""An agent in a process of its own that knows only HTTP: ``python plain_agent.py URL THREAD RUN``.

It needs nothing but the standard library, as an agent in any other language would. It executes one run with a thought,
a tool, state and a streamed answer, and sends some of its calls twice, as after a lost reply. After each line on its
standard input it goes on.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

HOLDER = "plain-agent"
OWNER = {"X-App-Name": "shop", "X-User-Id": "mei"}
WORDS = ("It ", "arrives ", "tomorrow 🦊.")


def main(url: str, thread: str, run: str) -> None:
    def post(path: str, **body: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{url}/api/runs{path}",
            json.dumps({"holder": HOLDER, **body}).encode(),
            {"Content-Type": "application/json", **OWNER},
        )
        with urllib.request.urlopen(request) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def go_on(step: str) -> None:
        print(step, flush=True)
        sys.stdin.readline()

    message = {"id": "q1", "content": "Where is my parcel?"}
    for expected in (True, False):
        assert post("", thread_id=thread, run_id=run, message=message)["created"] is expected
    go_on("started")
    call = {"tool_name": "parcels", "tool_input": {"id": 7}, "tool_call_id": "c1"}
    result = {"tool_name": "parcels", "tool_call_id": "c1", "observation": {"eta": "tomorrow"}}
    events = [
        {"id": "e1", "author": "model", "event_type": "thought", "content": {"content": "I look it up."}},
        {"id": "e2", "author": "model", "event_type": "act", "content": call},
        {
            "id": "e3",
            "author": "tool",
            "event_type": "observe",
            "content": result,
            "actions": {"state_delta": {"eta": "tomorrow"}},
        },
    ]
    for appended in (True, False):
        written = post(f"/{run}/events", events=events)
        assert [each["appended"] for each in written["events"]] == [appended] * 3
    text = ""
    for word in WORDS:
        for _ in range(2):
            lease = post(f"/{run}/deltas", deltas=[{"message_id": "a1", "offset": len(text), "text": word}])
        assert lease == {"status": "running", "cancel_requested": False}
        text += word
    go_on("streamed")
    assert post(f"/{run}/heartbeat")["status"] == "running"
    for _ in range(2):
        usage = [{"model": "tiny", "inputTokens": 7, "outputTokens": 5}]
        ended = post(f"/{run}/end", status="completed", answer=text, message_id="a1", usage=usage)
    print(ended["status"], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
