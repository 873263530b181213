"""The console's views of users and their memory in a real browser, on a conversation that was really consolidated."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from playwright.async_api import Page, Route, expect

from tests.support.browser import NARROW, WIDE, audit, fits, opened, picture_folder, take_picture
from tests.support.console_scene import APP, OTHER, SECRET, USER, furnish
from tests.support.key_scene import made
from tests.support.pace import at_this_pace
from tests.support.waiting import until
from tests.support.writer_process import KEY, WriterProcess

pytestmark = pytest.mark.system

FIRST_VIEW_BYTES_MAX = 150_000
MANY = 10_000


@pytest.fixture(scope="module")
def scene_dsn(agents_dsn: str) -> str:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, furnish(agents_dsn)).result()
    return agents_dsn


@pytest.fixture(scope="module")
def writer(scene_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    """An open writer on loopback, with agents."""
    log = tmp_path_factory.mktemp("console") / "log"
    with WriterProcess(scene_dsn, log, module="tests.support.page_agents") as process:
        yield process


async def show(page: Page, writer: WriterProcess, view: str, **named: str) -> None:
    await page.goto(f"{writer.url}/?{urlencode({'view': view, **named})}")


async def slide(page: Page, position: int) -> None:
    """Move the slider of the day, as a hand does."""
    move = "(element, value) => { element.value = value; element.dispatchEvent(new Event('input', {bubbles: true})); }"
    await page.get_by_role("slider").evaluate(move, position)


async def test_users_are_listed_found_and_opened(writer: WriterProcess) -> None:
    """The start lists users with what they said last, finds them by typing, and opens a user and their words."""
    async with opened() as watched:
        page = watched.page
        await page.goto(writer.url)
        # There is one app: it is chosen.
        users = page.locator("#users tbody tr")
        await expect(users).to_have_count(2)
        await expect(users.filter(has_text=OTHER)).to_contain_text("I live in Leeds.")
        await page.get_by_label("Find a user").fill("ME")
        await expect(users).to_have_count(1)
        await page.reload()
        await expect(users).to_have_count(1)
        await page.get_by_label("Find a user").fill("nobody")
        await expect(page.get_by_text("No name contains this text")).to_be_visible()
        await page.get_by_label("Find a user").fill("")
        await users.filter(has_text=USER).get_by_role("link").first.click()
        await expect(page.locator("main h1")).to_have_text(USER)
        await page.go_back()
        await users.filter(has_text=OTHER).locator(".said").click()
        await expect(page.locator("#timeline .text").last).to_have_text("I live in Leeds.")
        await show(page, writer, "start")
        # What was typed stays when the only app is chosen by itself, and where nothing was typed the app appears.
        await expect(page.get_by_label("App", exact=True)).to_have_value(APP)
        await page.get_by_label("User", exact=True).fill("someone new")
        await page.get_by_role("button", name="Open").click()
        await expect(page.locator("main h1")).to_have_text("someone new")
        await expect(page.get_by_text("No facts")).to_be_visible()
        assert watched.complaints == []


async def test_a_late_answer_overwrites_nothing_that_was_typed(writer: WriterProcess) -> None:
    """A name that is typed before the only app is known stays; a dialog stays open while the page is read again."""
    async with opened() as watched:
        page = watched.page
        answering = asyncio.Event()

        async def late(route: Route) -> None:
            await answering.wait()
            await route.continue_()

        await page.route(re.compile(r"/v1/apps(\?|$)"), late)
        await page.goto(writer.url)
        name, user = page.get_by_label("App", exact=True), page.get_by_label("User", exact=True)
        await name.fill("another")
        await user.fill("someone new")
        answering.set()
        await expect(page.locator("#users tbody tr").first).to_be_visible()
        await expect(name).to_have_value("another")
        await page.get_by_role("button", name="Open").click()
        await expect(page).to_have_url(re.compile("app=another&user=someone"))

        answering.clear()
        await page.route(re.compile(r"/retention$"), late)
        await show(page, writer, "memory", app=APP, user=USER, tab="memories")
        await page.locator(".memory-text").first.click()
        answering.set()
        detail = page.locator(".detail")
        await detail.get_by_role("button", name="Pin").click()
        await expect(detail.get_by_role("button", name="Unpin")).to_be_visible()
        answering.clear()
        async with page.expect_request(re.compile(r"/retention$")):
            await detail.get_by_role("button", name="Unpin").click()
        await detail.get_by_role("button", name="Correct").click()
        await page.get_by_role("dialog").get_by_label("It says").fill("half a senten")
        answering.set()
        await expect(detail.get_by_role("button", name="Pin", exact=True)).to_have_count(1)
        await expect(page.get_by_role("dialog").get_by_label("It says")).to_have_value("half a senten")
        assert watched.complaints == []


async def test_failures_are_shown_and_retried_where_they_are(writer: WriterProcess) -> None:
    """A list whose next page failed goes on with that page; a call that takes too long is reported and repeated; a view
    that cannot be drawn leaves the frame; a browser that is too old is told so."""
    async with opened() as watched:
        page = watched.page
        users, problem = re.compile(r"/v1/apps/shop/users(\?|$)"), {"title": "Out of order", "type": "/problems/x"}
        asked: list[str] = []

        async def one_at_a_time(route: Route) -> None:
            asked.append(route.request.url)
            url = route.request.url
            if "cursor=" in url and len(asked) == 2:
                await route.fulfill(status=422, json=problem)
            else:
                await route.continue_(url=f"{url}{'&' if '?' in url else '?'}limit=1")

        await page.route(users, one_at_a_time)
        await show(page, writer, "start", app=APP)
        rows = page.locator("#users tbody tr")
        await page.get_by_role("button", name="Show more").click()
        await expect(page.get_by_role("alert")).to_have_text(re.compile("Out of order"))
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="Try again").click()
        await expect(rows).to_have_count(2)
        assert ["cursor=" in each for each in asked] == [False, True, True]
        await page.unroute(users)

        await page.route(users, lambda route: route.fulfill(json={"users": [{}], "next_cursor": None}))
        await page.reload()
        broken = page.locator("#broken")
        await expect(broken).to_contain_text("This view could not be shown.")
        await expect(page.get_by_role("navigation", name="Views")).to_be_visible()
        await page.unroute(users)
        await broken.get_by_role("button", name="Try again").click()
        await expect(rows).to_have_count(2)
        # The browser reports the refused page, and the console what could not be drawn.
        assert len(watched.complaints) > 0
        watched.complaints.clear()

        hanging: list[Route] = []
        await page.clock.install()

        async def hang(route: Route) -> None:
            hanging.append(route)

        await page.route(users, hang)
        await page.reload()
        await until(lambda: hanging)
        await page.clock.fast_forward(21_000)
        await expect(page.locator("#notice")).to_contain_text("The server does not respond.")
        await page.unroute(users)
        await page.clock.run_for(4_000)
        await expect(rows).to_have_count(2)
        await expect(page.locator("#notice")).to_have_count(0)
        assert watched.complaints == []

    async with opened() as watched:
        page = watched.page
        await page.add_init_script("delete AbortSignal.any")
        await page.goto(writer.url)
        await expect(page.get_by_text("This browser is too old for this page.")).to_be_visible()
        assert watched.complaints == []
        # What cannot even read the script.
        await page.route(
            re.compile("console.js"), lambda route: route.fulfill(body="a ?!. b", content_type="text/javascript")
        )
        await page.goto(writer.url)
        await expect(page.get_by_text("This browser is too old for this page.")).to_be_visible()


async def test_facts_have_two_clocks_and_lead_to_their_turns_and_back(writer: WriterProcess) -> None:
    """A fact shows since when it is true and known, its history, and its turns; a turn shows what was drawn from it.
    The slider shows the page as of another day, as known now or as known then."""
    async with opened() as watched:
        page = watched.page
        await show(page, writer, "memory", app=APP, user=USER)
        facts = page.locator(".fact")
        await expect(facts.filter(has_text="is allergic to buckwheat")).to_have_count(1)
        everything = await facts.count()
        await page.get_by_label("Find a fact").fill("allergic")
        await expect(facts).to_have_count(1)
        await expect(facts).to_contain_text("3 Mar 2025")
        await facts.get_by_role("link").click()
        detail = page.locator(".detail")
        await expect(detail).to_be_focused()
        await detail.get_by_role("button", name="Close").click()
        await expect(facts.get_by_role("link")).to_be_focused()
        await facts.get_by_role("link").click()
        await expect(detail.locator(".statement")).to_have_text("is allergic to buckwheat")
        await expect(detail.locator(".versions .badge")).to_have_text(["current"])
        await expect(detail.locator(".lane")).to_have_count(3)
        await expect(detail.locator(".turn-text")).to_contain_text("allergic to buckwheat")
        await detail.get_by_role("link", name="Open in the conversation").click()
        await expect(page.locator("#timeline .chosen .text")).to_contain_text("allergic to buckwheat")
        await page.locator("#timeline .chosen .drawn-link").click()
        drawn = page.locator("#drawn")
        await expect(drawn.get_by_role("link", name="Mei is allergic to buckwheat")).to_be_visible()
        await drawn.get_by_role("link", name="Mei is allergic to buckwheat").click()
        await expect(detail.locator(".statement")).to_have_text("is allergic to buckwheat")

        await show(page, writer, "memory", app=APP, user=USER)
        await expect(facts).to_have_count(everything)
        # It begins at the first fact, which is read separately.
        await expect(page.get_by_role("slider")).to_be_enabled()
        first_day = int(await page.get_by_role("slider").get_attribute("min") or "0")
        await slide(page, first_day + 2)
        await expect(page).to_have_url(re.compile("as_of=2025-03-0"))
        await expect(facts).not_to_have_count(everything)
        await expect(facts.filter(has_text="is allergic to buckwheat")).to_have_count(1)
        assert await facts.count() < everything
        await page.reload()
        await expect(page).to_have_url(re.compile("as_of=2025-03-0"))
        await page.get_by_label("As it was known then").check()
        # All was recorded today.
        await expect(page.get_by_text("No facts")).to_be_visible()
        await page.get_by_role("button", name="Back to now").click()
        await expect(facts).to_have_count(everything)
        # A day that does not exist is no day.
        for day in ("2024-13-45", "2025-02-31", "x"):
            await show(page, writer, "memory", app=APP, user=USER, as_of=day)
            await expect(facts).to_have_count(everything)
            await expect(page.locator(".clock-slider output")).to_have_text("now")
        assert watched.complaints == []


async def test_memories_are_explained_pinned_corrected_retired_and_forgotten(
    writer: WriterProcess, scene_dsn: str
) -> None:
    """Each action has its effect in the list and in the database; forgetting shows what it reaches, and the proof."""
    async with opened() as watched:
        page = watched.page
        with psycopg.connect(scene_dsn, autocommit=True) as rows:
            names = [f"note {letter}" for letter in "abc"]
            rows.execute(
                "INSERT INTO memories (app_name, user_id, content, memory_type, initial_score)"
                " SELECT 'shop', 'actor', n, 'semantic', 0.7 FROM unnest(%s::text[]) AS n",
                (names,),
            )
            await show(page, writer, "memory", app=APP, user="actor", tab="memories")
            memories, detail, dialog = page.locator(".memory-row"), page.locator(".detail"), page.get_by_role("dialog")
            await expect(memories).to_have_count(3)
            await memories.filter(has_text="note a").get_by_role("link").click()
            await expect(detail.get_by_role("img")).to_have_attribute(
                "aria-label", re.compile("^Strength now 0.7; below")
            )
            await detail.get_by_role("button", name="Pin").click()
            await expect(memories.filter(has_text="note a").locator(".badge")).to_have_text(["Insight", "pinned"])
            await detail.get_by_role("button", name="Unpin").click()
            await expect(memories.filter(has_text="note a").locator(".badge")).to_have_text(["Insight"])
            await detail.get_by_role("button", name="Correct").click()
            await dialog.get_by_label("It says").fill("note A, corrected")
            await dialog.get_by_role("button", name="Save").click()
            await expect(memories.filter(has_text="note A, corrected")).to_have_count(1)
            await expect(memories).to_have_count(3)

            await memories.filter(has_text="note b").get_by_role("link").click()
            await detail.get_by_role("button", name="Retire").click()
            await expect(memories).to_have_count(2)
            await page.get_by_role("link", name="Archive").click()
            await expect(page.locator(".archived li")).to_have_count(2)
            await page.locator(".archived li", has_text="note b").get_by_role("button", name="Restore").click()
            await expect(page.locator(".archived li")).to_have_count(1)

            await page.get_by_role("link", name="Memories", exact=True).click()
            await memories.filter(has_text="note c").get_by_role("link").click()
            await detail.get_by_role("button", name="Forget").click()
            await expect(dialog.locator(".reached")).to_contain_text("note c")
            await page.keyboard.press("Escape")
            await expect(dialog).to_have_count(0)
            await detail.get_by_role("button", name="Forget").click()
            await dialog.get_by_role("button", name="Forget for good").click()
            await expect(dialog.get_by_role("status")).to_contain_text("Nothing remains")
            await dialog.get_by_role("button", name="Close").last.click()
            await expect(memories).to_have_count(2)
            left = rows.execute("SELECT count(*) FROM memories WHERE content = 'note c'").fetchone()
            assert left == (0,)

            await page.get_by_role("button", name="Forget this user").click()
            forget = dialog.get_by_role("button", name="Forget for good")
            await expect(dialog.locator(".reached")).to_contain_text("memories")
            await expect(forget).to_be_disabled()
            await dialog.get_by_label("Type actor to confirm").fill("actor")
            await forget.click()
            await expect(dialog.get_by_role("status")).to_contain_text("Nothing remains")
            assert rows.execute("SELECT count(*) FROM memories WHERE user_id = 'actor'").fetchone() == (0,)
        assert watched.complaints == []


async def test_a_users_key_sees_that_user_alone_and_no_action(
    scene_dsn: str, writer: WriterProcess, tmp_path: Path
) -> None:
    """With a key of one user that may only read, that user's memory is shown without its actions, and no other's."""
    key = await made(scene_dsn, APP, "read", user_id=USER)
    with WriterProcess(scene_dsn, tmp_path / "log", api_key=KEY) as locked:
        async with opened() as watched:
            page = watched.page
            await show(page, locked, "memory", app=APP, user=USER, type="profile", key="mei:allergy:buckwheat")
            await page.get_by_label("Key", exact=True).fill(key.text)
            await page.keyboard.press("Enter")
            await expect(page.locator(".detail .statement")).to_have_text("is allergic to buckwheat")
            for action in ("Correct", "Retire", "Forget", "Confirm", "Forget this user"):
                await expect(page.get_by_role("button", name=action, exact=True)).to_have_count(0)
            for view in ("memory", "conversation", "start"):
                address = urlencode({"view": view, "app": APP, "user": OTHER})
                await page.evaluate(f"history.pushState(null, '', '?{address}')")
                await page.evaluate("window.dispatchEvent(new PopStateEvent('popstate'))")
                await expect(page.locator("main")).not_to_contain_text(SECRET)
                if view != "start":
                    await expect(page.get_by_text("The key does not allow this.")).to_be_visible()
            assert watched.complaints == [line for line in watched.complaints if "status of 401" in line]


async def test_the_page_speaks_chinese(writer: WriterProcess) -> None:
    """The browser's language is the default; the switch is kept; no word of the frame stays in English."""
    async with opened() as watched:
        await show(watched.page, writer, "memory", app=APP, user=USER)
        await watched.page.get_by_label("Language").select_option("zh")
        await expect(watched.page.get_by_role("link", name="事实")).to_be_visible()
        await watched.page.reload()
        await expect(watched.page.locator("html")).to_have_attribute("lang", "zh-Hans")
        browser = watched.page.context.browser
        assert browser is not None
        page = await (await browser.new_context(locale="zh-CN")).new_page()
        for view in ("start", "memory", "conversation"):
            await show(page, writer, view, app=APP, user="someone new")
            await expect(page.locator("#users" if view == "start" else "main .state-title").first).to_be_visible()
            frame = page.locator(".side a, main h1, main h2, main th, main .lead, main button, main .state")
            words = " ".join(await frame.all_inner_texts()).split()
            names = {APP, "someone", "new"}
            assert [each for each in words if each.isascii() and each.isalpha() and each not in names] == []
        assert watched.complaints == []


@asynccontextmanager
async def many(dsn: str) -> AsyncIterator[str]:
    """A user with ten thousand memories."""
    with psycopg.connect(dsn, autocommit=True) as rows:
        rows.execute(
            "INSERT INTO memories (app_name, user_id, content, memory_type)"
            " SELECT 'shop', 'many', 'memory number ' || n, 'semantic' FROM generate_series(1, %s) AS n",
            (MANY,),
        )
        try:
            yield "many"
        finally:
            rows.execute("DELETE FROM memories WHERE user_id = 'many'")


@pytest.mark.timing
async def test_the_first_view_is_small_and_ten_thousand_memories_scroll(writer: WriterProcess, scene_dsn: str) -> None:
    """The first view takes under 150 kB and 200 ms of work. Of ten thousand memories only those in view exist, and
    scrolling through them takes no task of more than a tenth of a second."""
    async with many(scene_dsn) as user, opened() as watched:
        page = watched.page
        await show(page, writer, "memory", app=APP, user=USER)
        await expect(page.locator(".fact").first).to_be_visible()
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable")
        await page.reload()
        await expect(page.locator(".fact").first).to_be_visible()
        found = {each["name"]: each["value"] for each in (await session.send("Performance.getMetrics"))["metrics"]}
        work = found["ScriptDuration"] + found["LayoutDuration"] + found["RecalcStyleDuration"]
        print(f"first view: {work * 1000:.0f} ms of work")
        assert work < at_this_pace(0.2)
        files = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/page/'))"
        await page.goto(writer.url)
        size = await page.evaluate(f"{files}.reduce((sum, each) => sum + each.encodedBodySize, 0)")
        print(f"first view: {size} bytes")
        assert 0 < size < FIRST_VIEW_BYTES_MAX

        await show(page, writer, "memory", app=APP, user=user, tab="memories")
        box, memories = page.locator("#memories"), page.locator(".memory-row")
        await expect(memories.first).to_be_visible()
        await page.evaluate(
            """() => { window.longest = 0; new PerformanceObserver((list) => {
                 for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
               }).observe({type: "longtask"}); }"""
        )
        count = page.get_by_role("status").filter(has_text="memories")

        async def is_all() -> bool:
            await box.evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
            return await count.inner_text() == "10,000 memories"

        await until(is_all)
        assert await memories.count() < 60
        for position in range(0, 600_000, 30_000):
            await box.evaluate("(element, top) => element.scrollTo(0, top)", position)
            await page.wait_for_timeout(16)
        assert await memories.count() < 60
        longest = await page.evaluate("window.longest")
        print(f"longest task: {longest:.0f} ms")
        assert longest < at_this_pace(0.1) * 1000
        assert watched.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_views_are_accessible_fit_and_are_pictured(
    writer: WriterProcess, node_folder: Path, tmp_path: Path, scheme: Any
) -> None:
    """Every view, wide and on a phone: nothing overflows, axe finds nothing, and a picture is taken; `make
    screenshots` keeps the pictures in docs/."""
    folder = picture_folder(tmp_path)
    mei = {"app": APP, "user": USER}
    async with opened(WIDE, color_scheme=scheme) as watched:
        page = watched.page
        views = (
            ("start", {"view": "start", "app": APP}, "#users .said"),
            (
                "memory",
                {"view": "memory", **mei, "type": "profile", "key": "mei:allergy:buckwheat"},
                ".detail .turn-text",
            ),
            ("memories", {"view": "memory", **mei, "tab": "memories"}, ".memory-row"),
            ("archive", {"view": "memory", **mei, "tab": "archive"}, ".state-title"),
            ("conversation", {"view": "conversation", **mei, "turn": "13", "panel": "drawn"}, "#drawn .turns li"),
        )
        await show(page, writer, "conversation", **mei)
        chat = await page.locator(".thread-name").last.inner_text()
        for name, address, shown in views:
            for size, (width, height) in (("wide", WIDE), ("phone", NARROW)):
                await page.set_viewport_size({"width": width, "height": height})
                await show(page, writer, **(address | ({"thread": chat} if name == "conversation" else {})))
                await expect(page.locator(shown).first).to_be_visible()
                if name == "memories":
                    await page.locator(".memory-text").nth(2).click()
                    await expect(page.locator(".detail .curve").first).to_be_visible()
                    await expect(page.locator(".detail .turn-text").first).to_be_visible()
                await expect(page.locator("main .loading")).to_have_count(0)
                assert await fits(page), (name, size)
                assert await audit(page, node_folder) == [], (name, size)
                if name != "archive":
                    await take_picture(page, name, size, scheme, folder)
        await show(page, writer, "memory", **mei)
        await page.get_by_role("button", name="Forget this user").click()
        await expect(page.locator(".reached")).to_be_visible()
        assert await audit(page, node_folder) == []
        assert watched.complaints == []
