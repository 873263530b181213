"""The console at ``/`` in a real browser, against a real writer with running agents: conversations, and the frame."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.support.browser import NARROW, WIDE, audit, opened
from tests.support.key_scene import made
from tests.support.stream_client import OWNER, asked, run_agent
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, WriterProcess

pytestmark = pytest.mark.system

WHO = {"app": OWNER["X-App-Name"], "user": OWNER["X-User-Id"]}
EVIL = "<img src=x onerror=\"window.pwned='text'\"><script>window.pwned='script'</script> 你好 🦊"
SHOPS = "/v1/apps/shop/users/mei/sessions"


@pytest.fixture(scope="module")
def writer(agents_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    """An open writer on loopback."""
    with WriterProcess(
        agents_dsn,
        tmp_path_factory.mktemp("page") / "log",
        module="tests.support.page_agents",
        model_prices="tiny=1.5/10,a/b:c=1/2",
        price_currency="EUR",
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


async def open_page(page: Page, writer: WriterProcess, thread: str | None = None, **more: str) -> None:
    """Open the conversations, and one of them."""
    named = WHO if thread is None else {**WHO, "thread": thread}
    await page.goto(f"{writer.url}/?{urlencode({'view': 'conversation', **named, **more})}")


async def test_page_shows_threads_a_live_run_and_the_state(writer: WriterProcess) -> None:
    """Threads are listed, a live run's text grows and is cancelled, the state and its history follow; users' messages
    stay plain text; no other host is contacted, and the console stays empty."""
    async with client_of(writer) as client, opened() as watched:
        page = watched.page
        await run_agent(client, asked(EVIL, "evil-1", EVIL))
        await client.post(SHOPS, json={"session_id": "quiet one"})
        state = {"evil": EVIL, "user:name": EVIL, "app:banner": {"text": EVIL}}
        event = {"author": EVIL, "content": {"text": EVIL}, "actions": {"state_delta": state}}
        await client.post(f"{SHOPS}/quiet%20one/events", json={"events": [event]})
        await open_page(page, writer)
        threads = page.get_by_role("navigation", name="Conversations").get_by_role("link")
        await expect(threads).to_have_count(2)
        await threads.filter(has_text=EVIL).click()
        timeline = page.locator("#timeline")
        await expect(timeline.locator(".user_message .text")).to_have_text(EVIL)
        await expect(timeline.locator(".thought .text")).to_have_text("I should look it up.")
        await expect(timeline.locator(".tool_call pre")).to_have_text('{"query":"a/b~c","limit":2}')
        await expect(timeline.locator(".assistant_message")).to_have_count(2)
        await expect(page.locator("#run-status")).to_have_text("Run completed")
        await expect(page.locator('[data-scope="user"] dd')).to_have_text(json.dumps(EVIL, ensure_ascii=False))
        await expect(page.locator('[data-scope="session"] dt')).to_have_text(["progress"])
        await expect(page.locator("#history > li")).to_have_count(3)
        await expect(page.locator("#history > li").last).to_contain_text('"done":0')
        beside = page.get_by_role("navigation", name="Beside the conversation")
        await beside.get_by_role("link", name="Runs").click()
        await expect(page.locator("#frames .type").last).to_have_text("RUN_FINISHED")
        await expect(page.get_by_role("list", name="Steps and tool calls").get_by_role("listitem")).to_have_count(2)

        # Said by the page, followed live, and cancelled by it.
        await page.get_by_label("Agent").select_option("wait")
        message = page.get_by_role("textbox", name="Message")
        await message.fill("And now?")
        await message.press("Enter")
        talking = timeline.locator(".open .text")
        await expect(talking).to_have_text("still here ")
        await expect(timeline.locator(".user_message .text").last).to_have_text("And now?")
        await expect(message).to_have_value("")
        await expect(page.locator("#run-status")).to_have_text("Run is live")
        await expect(threads.locator(".running")).to_have_text("live")
        await page.get_by_role("button", name="Cancel run").click()
        await expect(page.locator("#run-status")).to_have_text("Run cancelled")
        await expect(talking).to_have_count(0)
        await expect(threads.locator(".cancelled")).to_have_count(1)

        await threads.filter(has_text="quiet one").click()
        await expect(page.locator("#thread-title")).to_have_text("quiet one")
        await expect(page.locator('[data-scope="session"] dd')).to_have_text(json.dumps(EVIL, ensure_ascii=False))
        await expect(page.locator("#history > li")).to_contain_text(EVIL)
        # Back changes the conversation.
        await page.go_back()
        await expect(page.locator("#thread-title")).to_have_text(EVIL)
        for view in ("start", "memory"):
            await page.goto(f"{writer.url}/?{urlencode({**WHO, 'view': view})}")
            await expect(page.locator("main h1")).to_be_visible()
        await expect(page.get_by_role("link", name="Start").first).to_be_visible()
        assert await page.evaluate("window.pwned") is None
        assert await page.locator("main img, body script").count() == 0
        assert watched.hosts == {writer.url.removeprefix("http://")}
        assert watched.complaints == []


async def test_text_grows_piece_by_piece_and_ends_as_stored(writer: WriterProcess, tmp_path: Path) -> None:
    """While an agent speaks, its words are appended, in order and once; the final text is the stored one."""
    async with client_of(writer) as client, opened() as watched:
        page = watched.page
        await client.post(SHOPS, json={"session_id": "grows"})
        await open_page(page, writer, "grows")
        await expect(page.locator("#thread-title")).to_have_text("grows")
        await expect(page.get_by_text("This conversation has no messages yet")).to_be_visible()
        await page.evaluate(
            """() => {
              window.texts = [];
              const open = () => document.querySelector(".open.assistant_message .text");
              const seen = () => window.texts.push(open()?.textContent);
              new MutationObserver(seen).observe(document.querySelector("#timeline"),
                {childList: true, subtree: true, characterData: true});
            }"""
        )
        enough = tmp_path / "enough"

        async def steps() -> list[str]:
            return [text for text in await page.evaluate("window.texts") if text and text.startswith("word0")]

        async def has_grown() -> bool:
            return len(set(await steps())) > 5

        # The agent speaks for as long as a slow page needs to be seen growing.
        speaking = asyncio.create_task(run_agent(client, asked("grows", "grows-1", str(enough)), "speak"))
        try:
            await until(has_grown)
        finally:
            enough.touch()
            await speaking
        await expect(page.locator("#run-status")).to_have_text("Run completed")
        await expect(page.locator("#timeline .open")).to_have_count(0)
        stored = [each["content"] for each in (await client.get("/conversations/grows/messages")).json()["timeline"]]
        whole = stored[-1]
        assert stored == [str(enough), "".join(f"word{number} " for number in range(len(whole.split())))]
        await expect(page.locator("#timeline .text")).to_have_text(stored)
        assert await page.locator("#timeline .text").all_text_contents() == stored
        seen = await steps()
        assert all(whole.startswith(text) for text in seen)
        assert seen == sorted(seen, key=len)
        assert watched.complaints == []


async def test_a_long_run_keeps_its_steps_and_says_what_it_cost(writer: WriterProcess) -> None:
    """All steps of a run are listed, also if it has more events than the page keeps. Its tokens are shown by model,
    with their cost where the operator named a price; without one it says so."""
    async with client_of(writer) as client, opened() as watched:
        page = watched.page
        await run_agent(client, asked("costs", "costs-1"), "steps")
        await run_agent(client, asked("costs", "costs-2"), "echo")
        await open_page(page, writer, "costs", panel="runs", run="costs-1")
        steps = page.get_by_role("list", name="Steps and tool calls").get_by_role("listitem")
        await expect(steps.locator("code")).to_have_text(["gather", "answer"])
        assert int((await page.locator("#runs h3 .note").inner_text()).split()[0].replace(",", "")) > 600
        cost = page.locator(".cost dd")
        # 700 * 1.5 + 500 * 10, of a million.
        await expect(cost.first).to_have_text("700 tokens in, 500 out · €0.00605")
        await expect(cost.last).to_contain_text("no price of other is configured")
        await page.get_by_role("link", name="costs-2").click()
        await expect(page.get_by_text("This run recorded no tokens.")).to_be_visible()
        assert watched.complaints == []


async def test_key_is_requested_checked_and_kept_in_memory(locked: WriterProcess, agents_dsn: str) -> None:
    """If the API requires a key, the page requests one, reports a wrong one, follows runs with it, and stores the key
    neither in its address nor in the browser. What a key's role or bounds forbid is not shown."""
    with locked:
        async with client_of(locked, Authorization=f"Bearer {KEY}") as client, opened() as watched:
            page = watched.page
            await begin(client, "secret", "secret-1", "wait")
            await open_page(page, locked, "secret")
            key = page.get_by_label("Key", exact=True)
            await expect(key).to_be_focused()
            await expect(page.locator("#key-status")).to_have_text("This server requires a key.")
            await key.fill("not the key")
            await key.press("Enter")
            await expect(page.locator("#key-status")).to_have_text("This server does not accept the key.")
            await key.fill(KEY)
            await key.press("Enter")
            await expect(page.locator("#timeline .open .text")).to_have_text("still here ")
            await expect(page.locator("#key-status")).to_have_count(0)
            kept = await page.evaluate("JSON.stringify([location.href, {...localStorage}, {...sessionStorage}])")
            assert KEY not in kept
            assert await page.context.cookies() == []
            asked_urls = await page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
            assert not [url for url in asked_urls if KEY in url]
            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_label("Key", exact=True)).to_have_value("")
            await expect(page.locator("#timeline")).to_have_count(0)
            await client.post("/api/runs/secret-1/cancel")

            # A key of one app that may only read; a key of one user; a key that may not read.
            views = page.get_by_role("navigation", name="Views").get_by_role("link")
            for roles, user, seen in ((("read",), None, 7), (("read", "append"), "mei", 4), (("append",), None, 0)):
                made_key = await made(agents_dsn, "shop", *roles, user_id=user)
                await open_page(page, locked, "secret")
                await page.get_by_label("Key", exact=True).fill(made_key.text)
                await page.get_by_role("button", name="Sign in").click()
                await expect(views).to_have_count(seen)
                await expect(page.locator("#timeline")).to_have_count(1 if seen else 0)
                may_append = "append" in roles and seen > 0
                await expect(page.get_by_role("textbox", name="Message")).to_have_count(1 if may_append else 0)
                if user is not None:
                    await page.get_by_role("link", name="Hippocampus").click()
                    await expect(page.locator("main h1")).to_have_text(user)
                    await page.evaluate("history.pushState(null, '', '?view=memory&app=shop&user=ben')")
                    await page.evaluate("window.dispatchEvent(new PopStateEvent('popstate'))")
                    await expect(page.get_by_text("The key does not allow this.")).to_be_visible()
            await expect(page.get_by_text("This key may not read")).to_be_visible()
            # The answers 401 of wrong keys and 403 are logged by the browser itself; nothing else is.
            assert [line for line in watched.complaints if "status of 401" not in line] == []


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
            await expect(page.locator("#notice")).to_have_count(0)
            await expect(page.locator("#run-status")).to_contain_text("the process that ran it ended")
            async with client_of(writer) as client:
                await run_agent(client, asked("away", "away-2", "are you back?"), "echo")
            texts = page.locator("#timeline .assistant_message .text")
            await expect(texts).to_have_text(["still here ", "are you back? "])


async def test_what_a_silent_server_is_told_can_be_said_again(agents_dsn: str, tmp_path: Path) -> None:
    """A server that does not answer costs the composer its time-out; the same message is then said, and once."""
    async with opened() as watched:
        page = watched.page
        with WriterProcess(agents_dsn, tmp_path / "log", module="tests.support.page_agents") as writer:
            assert writer.process is not None
            async with client_of(writer) as client:
                await client.post(SHOPS, json={"session_id": "silent"})
            await page.clock.install()
            await open_page(page, writer, "silent")
            await page.get_by_label("Agent").select_option("echo")
            message = page.get_by_role("textbox", name="Message")
            await message.fill("Anybody?")
            writer.process.send_signal(signal.SIGSTOP)
            try:
                async with page.expect_request("**/agui/echo?*"):
                    await message.press("Enter")
                await page.clock.fast_forward(20_000)
                await expect(page.locator(".composer [role=alert]")).to_contain_text("The server does not respond.")
            finally:
                writer.process.send_signal(signal.SIGCONT)
            await message.press("Enter")
            await expect(page.locator("#timeline .assistant_message .text")).to_have_text(["Anybody? "])
            await expect(page.locator("#timeline .user_message .text")).to_have_text(["Anybody?"])


async def test_keyboard_alone_is_enough(writer: WriterProcess) -> None:
    """Without a mouse: the list of users, the navigation, the list of conversations, the conversation and the composer
    are reached in order, and focus is visible."""
    async with client_of(writer) as client, opened() as watched:
        page, press = watched.page, watched.page.keyboard.press
        await run_agent(client, asked("keys", "keys-1"), "echo")
        await page.goto(f"{writer.url}/?view=start&app=shop")
        person = page.locator("#users a.name-link")
        await expect(person).to_be_visible()

        async def reach(what: Any, presses: int = 30) -> None:
            for _ in range(presses):
                await press("Tab")
                if await what.evaluate("(element) => element === document.activeElement"):
                    return
            raise AssertionError(f"not reached: {what}")

        await press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await press("Enter")
        await expect(page.locator("main")).to_be_focused()
        await reach(person)
        await press("Enter")
        await expect(page.locator("main h1")).to_have_text("mei")
        await page.locator("body").focus()
        conversations = page.get_by_role("navigation", name="Views").get_by_role("link", name="Conversations")
        await reach(conversations)
        assert await conversations.evaluate("(element) => getComputedStyle(element).outlineStyle") == "solid"
        await press("Enter")
        thread = page.get_by_role("link", name="keys")
        await expect(thread).to_be_visible()
        await reach(thread)
        await press("Enter")
        await expect(thread).to_have_attribute("aria-current", "true")
        await expect(page.locator("#timeline .assistant_message .text")).to_have_text("hi ")
        await expect(thread).to_be_focused()
        await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        reached = []
        for _ in range(40):
            await press("Tab")
            reached.append(await page.evaluate("document.activeElement.id || document.activeElement.localName"))
        assert reached.index("timeline") < reached.index("textarea")
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
        for panel in ("state", "runs"):
            await open_page(page, writer, thread, panel=panel)
            await expect(page.locator("#timeline .open .text")).to_have_text("still here ")
            await expect(page.locator("#history > li" if panel == "state" else "#frames .type").first).to_be_visible()
            for width, height in (WIDE, (900, 800), NARROW):
                await page.set_viewport_size({"width": width, "height": height})
                await page.screenshot(path=tmp_path / f"{scheme}-{width}-{panel}.png", full_page=True)
                assert await is_fitting(page), width
                assert await audit(page, node_folder) == [], (panel, width)
        background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        red, *_ = (int(part) for part in background.removeprefix("rgb(").rstrip(")").split(","))
        assert red > 200 if scheme == "light" else red < 60
        # The switch of the page overrules the system's scheme, and is kept.
        await page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
        other = "dark" if scheme == "light" else "light"
        await page.get_by_label("Colours").select_option(other)
        await page.reload()
        switched = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert switched != background
        await client.post(f"/api/runs/{thread}-2/cancel")
        assert watched.complaints == []


async def test_long_conversation_is_shown_from_its_end(writer: WriterProcess) -> None:
    """Only what is in view of a long conversation exists, from its end; scrolling up reads earlier parts, each message
    once. Long results of tools are folded, and a turn is opened by its link, in a thread outside of the list too."""
    async with client_of(writer) as client, opened() as watched:
        page = watched.page
        await client.post(SHOPS, json={"session_id": "long"})
        events: list[dict[str, Any]] = [
            {"author": "user", "content": {"text": f"message {number}"}} for number in range(450)
        ]
        await client.post(f"{SHOPS}/long/events", json={"events": events})
        await open_page(page, writer, "long")
        box, items = page.locator("#timeline"), page.locator("#timeline .text")
        await expect(items.last).to_have_text("message 449")
        await expect(items.last).to_be_in_viewport()
        assert await items.count() < 60
        seen: dict[str, None] = {}
        first = page.locator("#timeline .text", has_text="message 0").first

        async def is_at_the_first() -> bool:
            seen.update(dict.fromkeys(await items.all_text_contents()))
            # On after two frames: in the first one the page is told, by the second it has drawn what is there.
            await box.evaluate(
                """(element) => new Promise((drawn) => {
                  element.scrollBy(0, -element.clientHeight / 2);
                  requestAnimationFrame(() => requestAnimationFrame(drawn));
                })"""
            )
            return await first.count() > 0 and "message 0" in seen

        await until(is_at_the_first)
        assert set(seen) == {f"message {number}" for number in range(450)}
        await box.evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
        await expect(items.last).to_have_text("message 449")
        await client.post(f"{SHOPS}/long/events", json={"events": [{"author": "user", "content": {"text": "newest"}}]})
        await expect(items.last).to_have_text("newest")
        await expect(items.last).to_be_in_viewport()

        await open_page(page, writer, "long", turn="200", panel="drawn")
        chosen = page.locator("#timeline .chosen .text")
        await expect(chosen).to_have_text("message 199")
        await expect(chosen).to_be_in_viewport()
        await expect(page.locator("#drawn .turn-text").first).to_have_text("message 199")
        # One page is read on, and the rest as the reader scrolls.
        read: list[str] = []
        page.on("request", lambda request: read.append(request.url) if "after_sequence" in request.url else None)
        await open_page(page, writer, "long", turn="5")
        await expect(chosen).to_have_text("message 4")
        await expect(chosen).to_be_in_viewport()
        await expect(page.locator("#timeline")).to_have_attribute("aria-busy", "false")
        assert len(read) <= 1

        async def is_newest() -> bool:
            await box.evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
            return await items.last.text_content() == "newest"

        await until(is_newest)
        assert len(read) > 3

        for number in range(101):
            await client.post(SHOPS, json={"session_id": f"crowd {number}"})
        await open_page(page, writer, "long")
        await expect(items.last).to_have_text("newest")
        find = page.get_by_label("Find a conversation")
        await find.fill("LON")
        await expect(page.locator(".thread-name")).to_have_text(["long"])
        await open_page(page, writer, "there is none")
        await expect(page.get_by_text("There is no such conversation")).to_be_visible()
        assert [line for line in watched.complaints if "status of 404" not in line] == []
