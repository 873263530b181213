"""A small and strict stream client: it checks each frame against the rules, and stores what a page shows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.support.agui_rules import Reducer, StreamRules

OWNER = {"X-App-Name": "shop", "X-User-Id": "mei"}


class Page:
    """A page's copy of a thread: messages, state, and the last frame's id, over any number of connections."""

    def __init__(self) -> None:
        self.rules = StreamRules()
        self.reducer = Reducer()
        self.last_id: str | None = None
        self.frames: list[bytes] = []

    @property
    def is_over(self) -> bool:
        return bool(self.reducer.ends)

    @property
    def shown(self) -> tuple[list[dict[str, Any]], Any]:
        return self.reducer.messages, self.reducer.state

    def take(self, frame: bytes) -> None:
        self.reducer.event(self.rules.frame(frame))
        first_line = frame.split(b"\n")[0]
        if first_line.startswith(b"id: "):
            self.last_id = first_line.removeprefix(b"id: ").decode()
        self.frames.append(frame)


async def frames_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """The frames of a stream, without its comments."""
    waiting = b""
    async for chunk in response.aiter_raw():
        waiting += chunk
        *whole, waiting = waiting.split(b"\n\n")
        for frame in whole:
            if not frame.startswith(b":"):
                yield frame + b"\n\n"


async def follow(client: httpx.AsyncClient, run: str, page: Page, *, at_most: int | None = None) -> httpx.Response:
    """Follow a run into a page, from the page's position, for at most this many frames."""
    headers = {} if page.last_id is None else {"Last-Event-ID": page.last_id}
    async with client.stream("GET", f"/api/runs/{run}/events", headers=headers) as response:
        if response.status_code == 200:
            got = 0
            async for frame in frames_of(response):
                page.take(frame)
                got += 1
                if got == at_most:
                    break
        return response


def asked(thread: str, run: str, text: str = "hi", **fields: Any) -> dict[str, Any]:
    """The input of a run, as a client of protocol 1.0 sends it."""
    message = {"id": f"u-{run}", "role": "user", "content": text}
    return {"threadId": thread, "runId": run, "protocolVersion": "1.0", "messages": [message], **fields}


async def run_agent(
    client: httpx.AsyncClient, body: dict[str, Any], agent: str = "default", page: Page | None = None, **headers: str
) -> Page:
    """Post a run and read its stream to the end, into `page` or a new one."""
    page = page or Page()
    page.reducer.messages = json.loads(json.dumps(body["messages"]))
    async with client.stream("POST", f"/agui/{agent}", json=body, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        async for frame in frames_of(response):
            page.take(frame)
    page.rules.end()
    return page
