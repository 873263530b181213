"""The page at ``/`` in a real browser, against a real writer with running agents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.support.browser import NARROW, WIDE, audit, opened
from tests.support.page_agents import WORDS
from tests.support.stream_client import OWNER, asked, run_agent
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import KEY, WriterProcess

pytestmark = pytest.mark.system

WHO = {"app": OWNER["X-App-Name"], "user": OWNER["X-User-Id"]}
EVIL = "<img src=x onerror=\"window.pwned='text'\"><script>window.pwned='script'</script> 你好 🦊"
SHOPS = "/v1/apps/shop/users/mei/sessions"


@pytest.fixture(scope="module")
def writer(agents_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    """An open writer on loopback."""
    with WriterProcess(
        agents_dsn, tmp_path_factory.mktemp("page") / "log", module="tests.support.page_agents"
    ) as process:
        yield process


@pytest.fixture
def locked(agents_dsn: str, tmp_path: Path) -> WriterProcess:
    """A writer with a key, for the test to start."""
    return WriterProcess(agents_dsn, tmp_path / "log", module="tests.support.page_agents", api_key=KEY)


def client_of(writer: WriterProcess, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=writer.url, headers={**OWNER, **headers}, timeout=WAIT_SECONDS)


async def begin(client: httpx.AsyncClient, thread: str, run: str, agent: str, text: str = "hi") -> None:
    """Start a run and disconnect; the run continues."""
    async with client.stream("POST", f"/agui/{agent}", json=asked(thread, run, text)) as response:
        assert response.status_code == 200
        async for _ in response.aiter_raw():
            return


async def is_fitting(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    return bool(await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


async def open_page(page: Page, writer: WriterProcess, thread: str | None = None) -> None:
    await page.goto(f"{writer.url}/?{urlencode(WHO if thread is None else {**WHO, 'thread': thread})}")


async def test_page_shows_threads_a_live_run_and_the_state(writer: WriterProcess, tmp_path: Path) -> None:
    """Threads are listed, a live run's text grows, its end is shown, the state and its history follow; users' messages
    stay plain text; no other host is contacted, and the console stays empty."""
    async with client_of(writer) as client, opened() as watched:
        page = watched.page
        await run_agent(client, asked(EVIL, "evil-1", EVIL))
        await client.post(SHOPS, json={"session_id": "quiet one"})
        state = {"evil": EVIL, "user:name": EVIL, "app:banner": {"text": EVIL}}
        event = {"author": EVIL, "content": {"text": EVIL}, "actions": {"state_delta": state}}
        await client.post(f"{SHOPS}/quiet%20one/events", json={"events": [event]})
        await open_page(page, writer)
        await expect(page.locator("#threads button")).to_have_count(2)
        await page.get_by_role("button", name=EVIL).click()
        timeline = page.locator("#timeline")
        await expect(timeline.locator(".user_message .text")).to_have_text(EVIL)
        await expect(timeline.locator(".thought .text")).to_have_text("I should look it up.")
        await expect(timeline.locator(".tool_call pre")).to_have_text('{"query":"a/b~c","limit":2}')
        await expect(timeline.locator(".assistant_message")).to_have_count(2)
        await expect(page.locator("#run-status")).to_have_text("Run completed")
        await expect(page.locator("#frames .type").last).to_have_text("RUN_FINISHED")
        await expect(page.locator('[data-scope="user"] dd')).to_have_text(json.dumps(EVIL, ensure_ascii=False))
        await expect(page.locator('[data-scope="session"] dt')).to_have_text(["progress"])
        await expect(page.locator("#history > li")).to_have_count(3)
        await expect(page.locator("#history > li").last).to_contain_text('"done":0')

        await begin(client, EVIL, "evil-2", "wait")
        talking = timeline.locator(".open .text")
        await expect(talking).to_have_text("still here ")
        await expect(page.locator("#run-status")).to_have_text("Run is live")
        await expect(page.locator("#threads .running")).to_have_text("live")
        await page.screenshot(path=tmp_path / "live.png")
        await client.post("/api/runs/evil-2/cancel")
        await expect(page.locator("#run-status")).to_have_text("Run cancelled")
        await expect(talking).to_have_count(0)
        await expect(page.locator("#threads .cancelled")).to_have_count(1)

        await page.get_by_role("button", name="quiet one").click()
        await expect(page.locator("#thread-title")).to_have_text("quiet one")
        await expect(page.locator('[data-scope="session"] dd')).to_have_text(json.dumps(EVIL, ensure_ascii=False))
        await expect(page.locator("#history > li")).to_contain_text(EVIL)
        assert await page.evaluate("window.pwned") is None
        assert await page.locator("main img, aside img, nav img, body script").count() == 0
        assert watched.hosts == {writer.url.removeprefix("http://")}
        assert watched.complaints == []


async def test_text_grows_piece_by_piece_and_ends_as_stored(writer: WriterProcess) -> None:
    """While an agent speaks, its words are appended, in order and once; the final text is the stored one."""
    async with client_of(writer) as client, opened() as watched:
        page = watched.page
        await client.post(SHOPS, json={"session_id": "grows"})
        await open_page(page, writer, "grows")
        await expect(page.locator("#thread-title")).to_have_text("grows")
        await page.evaluate(
            """() => {
              window.texts = [];
              const open = () => document.querySelector(".open.assistant_message .text");
              const seen = () => window.texts.push(open()?.textContent);
              new MutationObserver(seen).observe(document.querySelector("#timeline"),
                {childList: true, subtree: true, characterData: true});
            }"""
        )
        await run_agent(client, asked("grows", "grows-1"), "speak")
        await expect(page.locator("#run-status")).to_have_text("Run completed")
        await expect(page.locator("#timeline .open")).to_have_count(0)
        whole = "".join(WORDS)
        await expect(page.locator("#timeline .text")).to_have_text(["hi", whole])
        steps = [text for text in await page.evaluate("window.texts") if text and text.startswith("word0")]
        assert len(set(steps)) > 5
        assert all(whole.startswith(text) for text in steps)
        assert steps == sorted(steps, key=len)
        stored = (await client.get("/conversations/grows/messages")).json()["timeline"]
        assert await page.locator("#timeline .text").all_text_contents() == [each["content"] for each in stored]
        assert watched.complaints == []


async def test_key_is_requested_checked_and_kept_in_memory(locked: WriterProcess) -> None:
    """If the API requires a key, the page requests one, reports a wrong one, follows runs with tickets, and stores the
    key neither in its address nor in the browser."""
    with locked:
        async with client_of(locked, Authorization=f"Bearer {KEY}") as client, opened() as watched:
            page = watched.page
            await begin(client, "secret", "secret-1", "wait")
            await open_page(page, locked, "secret")
            key = page.get_by_label("Key", exact=True)
            await expect(key).to_be_focused()
            await expect(page.locator("#notice")).to_have_text("This server requires a key.")
            await key.fill("not the key")
            await key.press("Enter")
            await expect(page.locator("#notice")).to_have_text("This server does not accept the key.")
            await key.fill(KEY)
            await key.press("Enter")
            await expect(page.locator("#timeline .open .text")).to_have_text("still here ")
            await expect(page.locator("#notice")).to_be_hidden()
            kept = await page.evaluate("JSON.stringify([location.href, {...localStorage}, {...sessionStorage}])")
            assert KEY not in kept
            assert await page.context.cookies() == []
            asked_urls = await page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
            assert not [url for url in asked_urls if KEY in url]
            await page.reload()
            await expect(page.get_by_label("Key", exact=True)).to_have_value("")
            await expect(page.locator("#notice")).to_have_text("This server requires a key.")
            await client.post("/api/runs/secret-1/cancel")


async def test_lost_server_is_reported_and_reconnected(agents_dsn: str, tmp_path: Path) -> None:
    """The page reports that the server does not respond, and continues by itself once it does."""
    writer = WriterProcess(agents_dsn, tmp_path / "log", module="tests.support.page_agents")
    async with opened() as watched:
        page = watched.page
        with writer:
            async with client_of(writer) as client:
                await begin(client, "away", "away-1", "wait")
                await open_page(page, writer, "away")
                await expect(page.locator("#timeline .open .text")).to_have_text("still here ")
        await expect(page.locator("#notice")).to_contain_text("The server does not respond.")
        with writer:
            await expect(page.locator("#notice")).to_be_hidden()
            await expect(page.locator("#run-status")).to_contain_text("the process that ran it ended")
            async with client_of(writer) as client:
                await run_agent(client, asked("away", "away-2", "are you back?"), "echo")
            texts = page.locator("#timeline .assistant_message .text")
            await expect(texts).to_have_text(["still here ", "are you back? "])


async def test_keyboard_alone_is_enough(writer: WriterProcess) -> None:
    """Without a mouse: the form, the list, the conversation and the stream are reached in order,
    and focus is visible."""
    async with client_of(writer) as client, opened() as watched:
        page, press = watched.page, watched.page.keyboard.press
        await run_agent(client, asked("keys", "keys-1"), "echo")
        await page.goto(writer.url)
        await expect(page.get_by_label("App", exact=True)).to_be_focused()
        await page.keyboard.type(WHO["app"])
        await press("Tab")
        await page.keyboard.type(WHO["user"])
        await press("Enter")
        button = page.get_by_role("button", name="keys")
        await expect(button).to_be_visible()
        for _ in range(20):
            await press("Tab")
            if await button.evaluate("(element) => element === document.activeElement"):
                break
        await expect(button).to_be_focused()
        outline = await button.evaluate("(element) => getComputedStyle(element).outlineStyle")
        assert outline == "solid"
        await press("Enter")
        await expect(button).to_have_attribute("aria-current", "true")
        await expect(page.locator("#timeline .assistant_message .text")).to_have_text("hi ")
        await expect(button).to_be_focused()
        reached = []
        for _ in range(12):
            await press("Tab")
            reached.append(await page.evaluate("document.activeElement.id || document.activeElement.localName"))
        assert reached.index("log") < reached.index("summary")
        await page.goto(f"{writer.url}/?{urlencode({**WHO, 'thread': 'keys'})}")
        await expect(button).to_have_attribute("aria-current", "true")
        await press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await press("Enter")
        await expect(page.locator("#conversation")).to_be_focused()
        assert watched.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_layout_and_accessibility(writer: WriterProcess, node_folder: Path, tmp_path: Path, scheme: Any) -> None:
    """Light and dark, wide and narrow: nothing overflows, and axe reports no violation, contrast included."""
    thread = f"looks-{scheme}"
    async with client_of(writer) as client, opened(WIDE, color_scheme=scheme) as watched:
        page = watched.page
        await run_agent(client, asked(thread, f"{thread}-1", "Where is my parcel? " + "x" * 300))
        await run_agent(client, asked(f"{thread} failed", f"{thread}-f"), "fail")
        await begin(client, thread, f"{thread}-2", "wait", "And now?")
        await open_page(page, writer, thread)
        await expect(page.locator("#timeline .open .text")).to_have_text("still here ")
        await page.locator("#stream summary").click()
        await expect(page.locator("#history > li")).to_have_count(3)
        background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        for width, height in (WIDE, (900, 800), NARROW):
            await page.set_viewport_size({"width": width, "height": height})
            await page.screenshot(path=tmp_path / f"{scheme}-{width}.png", full_page=True)
            assert await is_fitting(page), width
            assert await audit(page, node_folder) == []
        red, *_ = (int(part) for part in background.removeprefix("rgb(").rstrip(")").split(","))
        assert red > 200 if scheme == "light" else red < 60
        await client.post(f"/api/runs/{thread}-2/cancel")
        assert watched.complaints == []


async def test_long_conversation_is_shown_from_its_end(writer: WriterProcess) -> None:
    """Of a long conversation the newest part is shown, and earlier parts on request, each message once."""
    async with client_of(writer) as client, opened() as watched:
        page = watched.page
        await client.post(SHOPS, json={"session_id": "long"})
        events = [{"author": "user", "content": {"text": f"message {number}"}} for number in range(250)]
        await client.post(f"{SHOPS}/long/events", json={"events": events})
        await open_page(page, writer, "long")
        items = page.locator("#timeline .text")
        await expect(items.last).to_have_text("message 249")
        await expect(items).to_have_count(100)
        await expect(items.last).to_be_in_viewport()
        for count in (200, 250):
            await page.get_by_role("button", name="Show earlier", exact=True).click()
            await expect(items).to_have_count(count)
        await expect(page.locator("#earlier")).to_be_hidden()
        assert await items.all_text_contents() == [f"message {number}" for number in range(250)]
        await client.post(f"{SHOPS}/long/events", json={"events": [{"author": "user", "content": {"text": "newest"}}]})
        await expect(items.last).to_have_text("newest")
        assert watched.complaints == []
