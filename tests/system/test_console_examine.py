"""The console's views that examine an installation, in a real browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import pytest
from playwright.async_api import Locator, Page, expect

from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from tests.support.browser import NARROW, WIDE, Watched, audit, fits, opened, picture_folder, take_picture
from tests.support.examine_scene import APP, FADING, OTHER, SECRET, USER, WEAK, examined
from tests.support.live_writer import LiveWriter, serving
from tests.support.writer_process import KEY

pytestmark = pytest.mark.system

MEI = {"app": APP, "user": USER}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
#: With the name of its picture, if one is kept.
VIEWS: tuple[tuple[str | None, dict[str, str]], ...] = (
    ("search", {"view": "search", **MEI, "q": "What does Mei eat?"}),
    ("window", {"view": "search", **MEI, "q": "What does Mei eat?", "tab": "window"}),
    ("consolidation", {"view": "consolidation", **MEI}),
    (None, {"view": "consolidation", **MEI, "tab": "replay"}),
    ("operations", {"view": "operations"}),
    ("activity", {"view": "operations", "tab": "activity"}),
    (None, {"view": "operations", "tab": "keys"}),
    ("upkeep", {"view": "upkeep", "app": APP}),
    (None, {"view": "upkeep", "app": APP, "days": "7"}),
    (None, {"view": "upkeep", "app": APP, "tab": "webhooks"}),
    ("tools", {"view": "tools", "app": APP, "tool": "echo"}),
    (None, {"view": "knowledge", "app": APP}),
    ("knowledge", {"view": "knowledge", "app": APP, "corpus": "handbook"}),
    (
        "passages",
        {"view": "knowledge", "app": APP, "corpus": "handbook", "tab": "search", "for": USER, "q": "returned"},
    ),
)


async def go(page: Page, live: LiveWriter, **query: str) -> None:
    await page.goto(f"{live.url}/?{urlencode(query)}")


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("Key", exact=True).fill(key)
    await page.keyboard.press("Enter")


@asynccontextmanager
async def watched_by(live: LiveWriter, **options: Any) -> AsyncIterator[Watched]:
    """A browser that reports no error and asks no other host."""
    async with opened(**options) as watched:
        yield watched
        assert watched.complaints == []
        assert watched.hosts <= {live.url.removeprefix("http://")}


async def test_every_view_and_action_without_a_key(dsn: str) -> None:
    """Scores fall into their parts and follow the weights, the window names what it leaves out, a failed job shows the
    reply and is retried, a replay is compared before it is applied, operations and upkeep tell what runs, costs and
    goes, and a tool can be called; every step has its address, and Back leads to the one before."""
    async with examined(dsn), serving(dsn, {}) as live, watched_by(live) as watched:
        page = watched.page
        await _four_questions(page, live)
        await _search(page, live)
        await _consolidation(page, live)
        await _operations(page, live)
        await _machinery(page, live)
        await _tools(page, live)
        await _knowledge(page, live)
        # The browser itself reports the document that was refused, the corpus that a user may not read, and the
        # one that exists.
        refused = [line for line in watched.complaints if re.search("status of (422|409|404)", line)]
        assert len(refused) == 4
        watched.complaints[:] = [line for line in watched.complaints if line not in refused]


async def _four_questions(page: Page, live: LiveWriter) -> None:
    """What somebody asks who sees the page for the first time, from its start, with the clicks of docs/page.md."""
    clicks = 0

    async def click(what: Locator) -> None:
        nonlocal clicks
        clicks += 1
        await what.click()

    async def begin() -> None:
        nonlocal clicks
        clicks = 0
        await page.goto(live.url)
        await expect(page.locator("#users tbody tr")).to_have_count(2)

    def view(name: str) -> Locator:
        return page.get_by_role("navigation", name="Views").get_by_role("link", name=name)

    # What is known of Mei's diet, and since when?
    await begin()
    await click(page.locator("#users").get_by_role("link", name=USER, exact=True))
    await page.get_by_label("Find a fact").fill("diet")
    known = page.locator(".fact", has_text="vegetarian").first
    await expect(known).to_contain_text(re.compile(r"4 May 2025.*known ", re.DOTALL))
    assert clicks == 1
    # No fact says it: the memories and the turns may.
    await page.get_by_label("Find a fact").fill("umbrella")
    await click(page.get_by_role("link", name="Search for it everywhere"))
    await expect(page.locator(".result").first).to_be_visible()
    # Why did this result rank first?
    await click(view("Search"))
    await page.get_by_label("Query").fill("coffee after noon")
    await page.keyboard.press("Enter")
    await expect(page.locator(".result").first).to_contain_text("Mostly: ")
    await expect(page.locator(".result").first.get_by_role("list", name="Parts of the score")).to_be_visible()
    assert clicks == 3
    # What will be forgotten this week?
    await begin()
    await click(view("Upkeep"))
    await expect(page.locator("#weak")).to_contain_text(WEAK)
    await expect(page.locator("#weak")).not_to_contain_text(FADING)
    await click(page.get_by_role("link", name="Within 7 days"))
    await expect(page.locator("#going")).to_contain_text(FADING)
    await expect(page.locator("#going")).to_contain_text(WEAK)
    assert clicks == 2
    # Which job failed, and why?
    await begin()
    await click(view("Operations"))
    await expect(page.locator("#failed-jobs")).to_contain_text("malformed")
    await click(page.locator("#failed-jobs").get_by_role("link", name="Deep reflection"))
    await expect(page.locator(".job-error")).to_contain_text("the reply is not valid JSON")
    assert clicks == 2


async def _search(page: Page, live: LiveWriter) -> None:
    used = "SELECT sum(access_count) FROM memories"
    before = await live.pool.fetchval(used)
    await go(page, live, view="search", **MEI)
    await expect(page.get_by_text("Type a query")).to_be_visible()
    await page.get_by_label("Query").fill("coffee after noon")
    await page.keyboard.press("Enter")
    first = page.locator(".result").first
    await expect(first).to_contain_text("coffee")
    await expect(first.get_by_role("list", name="Parts of the score")).to_contain_text("words around it")
    parts = [float(each) for each in await first.locator(".bar-value").all_text_contents()]
    shown = float(await first.locator(".result-score").inner_text())
    assert sum(parts) == pytest.approx(shown, abs=0.01)
    await page.get_by_role("checkbox", name="turn", exact=True).uncheck()
    await expect(page).to_have_url(re.compile("sources=memory%2Cfact"))
    await expect(page.locator(".result-head .badge", has_text="turn")).to_have_count(0)
    await page.get_by_role("checkbox", name="words around it").uncheck()
    await expect(page).to_have_url(re.compile("w=context_bm25%3A0"))
    await expect(first.get_by_role("list", name="Parts of the score")).not_to_contain_text("words around it")
    await page.get_by_role("button", name="Reset").click()
    await expect(page).not_to_have_url(re.compile("[?&]w="))
    await page.get_by_role("link", name="Context window").click()
    await expect(page.get_by_text(re.compile(r"\d+ of 800 tokens"))).to_be_visible()
    await expect(page.locator(".window-group.window-fact")).to_contain_text("coffee")
    await page.get_by_role("spinbutton", name="Token budget").fill("120")
    await page.get_by_role("spinbutton", name="Token budget").press("Tab")
    await expect(page.get_by_text(re.compile(r"\d+ of 120 tokens"))).to_be_visible()
    await expect(page.locator(".left-out .badge", has_text="no room left").first).to_be_visible()
    await page.get_by_role("textbox", name="System prompt").fill("Be brief.")
    await page.get_by_role("textbox", name="System prompt").press("Tab")
    await expect(page.locator(".window-group.window-system")).to_contain_text("Be brief.")
    await page.go_back()
    await expect(page.locator(".result").first).to_be_visible()
    assert await live.pool.fetchval(used) == before


async def _consolidation(page: Page, live: LiveWriter) -> None:
    await go(page, live, view="operations")
    await expect(page.locator("#queues")).to_contain_text("deep_reflection")
    await page.locator("#failed-jobs").get_by_role("link", name="Deep reflection").click()
    detail = page.locator(".job-detail")
    await expect(detail.locator(".job-error")).to_contain_text("the reply is not valid JSON")
    await expect(detail.locator(".raw-reply")).to_contain_text('"vegetarian", "confidence": ')
    await expect(detail.get_by_role("region", name="It read")).to_contain_text("I have been a vegetarian since May.")
    await detail.get_by_role("button", name="Run it again").click()
    await expect(detail.get_by_role("button", name="Cancel it")).to_be_visible()
    await detail.get_by_role("button", name="Cancel it").click()
    await expect(detail.locator(".badge", has_text="cancelled")).to_be_visible()
    await page.get_by_label("Status").select_option("completed")
    await page.locator("#jobs").get_by_role("link", name="Deep reflection").first.click()
    wrote = detail.get_by_role("region", name="It wrote")
    await expect(wrote.locator("li").first).to_contain_text("from #")
    # What is read later, above, would move the row from under the pointer.
    await expect(detail.locator(".job-line")).to_contain_text("completed")
    await wrote.locator("li").first.hover()
    await expect(detail.locator(".read-turns .marked").first).to_be_visible()

    await live.pool.execute("UPDATE memories SET content = 'tampered with' WHERE memory_type = 'summary'")
    await page.get_by_role("link", name="Replay", exact=True).click()
    await page.get_by_role("button", name="Compare").click()
    diff = page.locator(".diff")
    await expect(diff.locator(".dropped").first).to_contain_text("tampered with")
    await expect(diff.locator(".kept")).to_have_count(0)
    assert await live.pool.fetchval("SELECT count(*) FROM memories WHERE content = 'tampered with'") > 0
    # What was compared is applied, whatever the field says by now.
    await page.get_by_label("Session (none").fill("another session")
    await page.get_by_role("button", name="Apply the changes").click()
    await expect(page.get_by_role("dialog")).to_contain_text("This concerns all sessions of the user.")
    await page.get_by_role("dialog").get_by_role("button", name="Apply the changes").click()
    await expect(page.get_by_role("heading", name="What has changed")).to_be_visible()
    left = "SELECT count(*) FROM memories WHERE content = 'tampered with' AND app_name = $1 AND user_id = $2"
    assert await live.pool.fetchval(left, APP, USER) == 0


async def _operations(page: Page, live: LiveWriter) -> None:
    await go(page, live, view="operations", tab="activity")
    await expect(page.get_by_role("img", name=re.compile(r"Turns by the hour: \d+"))).to_be_visible()
    await expect(page.locator("#costs tbody tr").first).to_contain_text(APP)
    await page.get_by_role("link", name="Autonomic layer").click()
    await expect(page.get_by_text("The autonomic layer does not run here")).to_be_visible()
    await page.get_by_role("link", name="Keys").click()
    await expect(page.locator("#keys tbody tr")).to_have_count(5)
    for name, user_roles in (("reader", "any"), ("appender", "none"), ("admin", "clerk, guest"), ("mei", "none")):
        cells = page.locator("#keys tbody tr").filter(has=page.get_by_text(name, exact=True)).get_by_role("cell")
        await expect(cells.nth(2)).to_have_text(user_roles)
    await go(page, live, view="upkeep", app=APP)
    await expect(page.locator("#weak")).to_contain_text(WEAK)
    await page.get_by_role("link", name="Webhooks").click()
    await expect(page.locator("#endpoints")).to_contain_text("https://example.org/hook")
    await page.get_by_role("button", name="Send a test").click()
    await expect(page.locator("#deliveries")).to_contain_text("webhook.ping")
    await page.get_by_role("button", name="Disable").click()
    await expect(page.locator("#endpoints .badge")).to_have_text("off")
    await page.get_by_role("link", name="Audit log").click()
    await expect(page.locator("#acts tbody tr").first).to_be_visible()


async def _machinery(page: Page, live: LiveWriter) -> None:
    """A breaker that is open, what the autonomic layer decided, and a trace: as the processes record them."""
    await live.pool.execute(
        "INSERT INTO call_breakers (name, state, failures, openings, next_probe_at, reason)"
        " VALUES ('deep_reflection:gemini', 'open', 5, 1, now() + interval '40 seconds', 'unavailable')"
    )
    await live.pool.execute("INSERT INTO pulse_scopes (scope, ticks, holder, last_tick_at) VALUES ('s', 7, 'h', now())")
    effect = await live.pool.fetchval(
        "INSERT INTO pulse_events (scope, kind, key, meta) VALUES ('s', 'effect', 'shed:writer',"
        """ '{"rule": "disk-full", "survival": true, "params": {"free": 0.02}}') RETURNING id"""
    )
    await live.pool.execute(
        "INSERT INTO pulse_events (scope, kind, key, ref, meta) VALUES ('s', 'effect-acked', 'shed:writer', $1, '{}'),"
        """ ('s', 'tick', '', NULL, '{"ticks": 7, "holder": "h", "ms": 4, "errors": 0,"""
        """ "decided": [["disk-full", "shed:writer"]]}')""",
        effect,
    )
    spans = "start_time, end_time, trace_id, span_id, parent_span_id, is_root, operation_name, span_kind, service_name"
    await live.pool.executemany(
        f"INSERT INTO traces ({spans}, app_name, user_id, session_id, duration_ns, status_code, attributes)"
        " VALUES (now() - interval '1 s', now(), repeat('a', 32), $1, $2, $3, $4, 'internal', 'writer',"
        " 'shop', 'mei', 'lunch', $5, 'ok', $6::text::jsonb)",
        [
            ("b" * 16, None, True, "invoke agent", 1_000_000_000, "{}"),
            ("c" * 16, "b" * 16, False, "chat tiny", 600_000_000, '{"gen_ai.usage.input_tokens": 70}'),
        ],
    )
    await go(page, live, view="operations")
    await expect(page.locator("dl.pairs", has_text="deep_reflection:gemini")).to_contain_text("unavailable")
    await expect(page.locator(".stat", has_text="Open breakers")).to_contain_text("calls stop")
    await page.get_by_role("link", name="Autonomic layer").click()
    decision = page.locator("#decisions tbody tr")
    await expect(decision).to_contain_text("disk-full")
    await expect(decision.locator(".badge")).to_have_text(["survival", "done"])
    await expect(page.locator("section", has_text="Ticks that decided something").last).to_contain_text("#7")
    await go(page, live, view="conversation", **MEI, thread="lunch", panel="traces")
    await page.get_by_role("link", name="invoke agent").click()
    waterfall = page.get_by_role("region", name="Waterfall")
    await expect(waterfall.locator("li")).to_have_count(2)
    await expect(waterfall).to_contain_text("70 tokens in, 0 out")
    await page.reload()
    await expect(waterfall.locator("li")).to_have_count(2)


async def _tools(page: Page, live: LiveWriter) -> None:
    await go(page, live, view="tools", app=APP)
    await page.locator("#tools").get_by_role("link", name="echo").click()
    await page.get_by_label("On behalf of the user").fill(USER)
    await page.get_by_label("Arguments (JSON)").fill("{")
    await page.get_by_role("button", name="Call it").click()
    await expect(page.get_by_role("alert")).to_have_text("This is not valid JSON.")
    await page.get_by_label("Arguments (JSON)").fill("{}")
    await page.get_by_role("button", name="Call it").click()
    await expect(page.locator(".call-outcome .badge")).to_have_text("succeeded")
    await page.get_by_role("link", name="Log of calls").click()
    await page.locator("#calls").get_by_role("button", name="echo").click()
    await expect(page.locator(".call-detail")).to_contain_text("Arguments")


async def _knowledge(page: Page, live: LiveWriter) -> None:
    service = KnowledgeService(live.pool, APP, LocalEmbedder())

    async def ingest(source: str) -> None:
        found = "SELECT id FROM knowledge_documents WHERE source_uri = $1"
        await service.ingest(await live.pool.fetchval(found, source))

    await go(page, live, view="knowledge", app=APP)
    await expect(page.locator("#corpora tbody tr")).to_contain_text("user:mei")
    await page.locator("#corpora").get_by_role("link", name="handbook").click()
    documents, dialog = page.locator("#documents tbody tr"), page.get_by_role("dialog")
    await expect(documents).to_have_count(2)
    await expect(documents.filter(has_text="returns.md")).to_contain_text("supersedes 1")
    failed = documents.filter(has_text="parcels.md")
    await expect(failed).to_contain_text("the model did not answer")
    await page.get_by_label("State").select_option("failed")
    await expect(page).to_have_url(re.compile("status=failed"))
    await expect(documents).to_have_count(1)
    await failed.get_by_role("button", name="Ingest it again").click()
    # It waits now.
    await expect(page.get_by_text("No document has this state")).to_be_visible()
    await page.get_by_label("State").select_option("")
    await expect(failed.locator(".badge")).to_have_text("waiting")
    running = (
        "UPDATE knowledge_documents SET status = 'running', chunks_done = 3, chunks_total = 12 WHERE source_uri = $1"
    )
    await live.pool.execute(running, "parcels.md")
    # What is on its way is read again by itself.
    await expect(failed).to_contain_text("3 of 12 chunks")
    await ingest("parcels.md")
    await expect(failed.locator(".badge")).to_have_text("ready")

    await page.get_by_label("Or a text").fill("# Hours\n\nThe shop opens at nine.")
    await page.get_by_label("Address (the same").fill("hours.md")
    await page.get_by_role("button", name="Add it").click()
    await expect(page.get_by_text("It is stored, and waits for a worker.")).to_be_visible()
    await expect(documents).to_have_count(3)
    await ingest("hours.md")
    await expect(documents.filter(has_text="hours.md").locator(".badge")).to_have_text("ready")
    note = {"name": "note.txt", "mimeType": "text/plain", "buffer": "Vouchers end after a year. 🦊".encode()}
    await page.get_by_label("A file").set_input_files([note])
    await expect(page.get_by_label("Address (the same")).to_have_value("note.txt")
    await page.get_by_role("button", name="Add it").click()
    await expect(documents).to_have_count(4)
    await page.get_by_label("A file").set_input_files([{**note, "name": "empty.txt", "buffer": b" "}])
    await page.get_by_role("button", name="Add it").click()
    await expect(page.get_by_role("alert")).to_contain_text("The document cannot be read")
    await documents.filter(has_text="note.txt").get_by_role("button", name="Remove").click()
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await documents.filter(has_text="note.txt").get_by_role("button", name="Remove").click()
    await dialog.get_by_role("button", name="Remove for good").click()
    await expect(documents).to_have_count(3)
    assert await live.pool.fetchval("SELECT count(*) FROM knowledge_documents WHERE source_uri = 'note.txt'") == 0

    await page.get_by_role("button", name="Change").click()
    await dialog.get_by_label("Readers").fill("user:mei, role:clerk, role:driver")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.locator(".stats")).to_contain_text("role:driver")
    await page.get_by_role("link", name="Search and answers").click()
    await expect(page.get_by_text("Name a user to search for")).to_be_visible()
    await page.get_by_label("Act for the user").fill(OTHER)
    await page.get_by_label("Act for the user").press("Enter")
    # Who may not read the corpus does not learn that it exists.
    await expect(page.get_by_role("alert")).to_contain_text("there is no corpus")
    # The field follows the address, also while it has the focus.
    await page.go_back()
    await expect(page.get_by_label("Act for the user")).to_be_focused()
    await expect(page.get_by_label("Act for the user")).to_have_value("")
    await page.go_forward()
    await expect(page.get_by_role("alert")).to_contain_text("there is no corpus")
    await page.get_by_label("Act for the user").fill(USER)
    await page.get_by_label("Act for the user").press("Enter")
    await page.get_by_role("searchbox").fill("how long may goods be returned?")
    await page.keyboard.press("Enter")
    hit = page.locator(".result").first
    await expect(hit).to_contain_text("within thirty days")
    await expect(hit.get_by_role("list", name="Parts of the score")).to_contain_text("its words (BM25)")
    await expect(hit).to_contain_text("Returns")
    await hit.get_by_role("button", name="Show it in the text").click()
    await expect(hit.locator("mark")).to_contain_text("within thirty days")
    await page.get_by_role("button", name="Answer it").click()
    await expect(page).to_have_url(re.compile("mode=ask"))
    await expect(page.locator(".answer")).to_contain_text("from the passages, without a model")
    await expect(page.get_by_role("list", name="Citations")).to_contain_text("returns.md")
    await page.reload()
    await expect(page.get_by_role("list", name="Citations")).to_contain_text("returns.md")

    await go(page, live, view="knowledge", app=APP)
    await page.get_by_role("button", name="New corpus").click()
    await dialog.get_by_label("Name").fill("handbook")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("There is a corpus of this name")
    assert (await service.corpus("handbook")).readers == ("role:clerk", "role:driver", f"user:{USER}")
    await dialog.get_by_label("Name").fill("drafts")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("The corpus is empty")).to_be_visible()
    await live.pool.execute(
        "INSERT INTO knowledge_documents (corpus_id, app_name, source_uri, title, mime_type, last_version, status)"
        " SELECT c.id, c.app_name, 'd' || n, 'd' || n, 'text/plain', 1, CASE n WHEN 101 THEN 'running' ELSE 'ready' END"
        " FROM corpus AS c, generate_series(1, 101) AS n WHERE c.name = 'drafts' ORDER BY n"
    )
    await page.reload()
    await expect(documents).to_have_count(100)
    await page.get_by_role("button", name="Show more").click()
    await expect(documents.last.locator(".badge")).to_have_text("running")
    await live.pool.execute("UPDATE knowledge_documents SET status = 'ready' WHERE source_uri = 'd101'")
    # Every page that is shown is read again.
    await expect(documents.last.locator(".badge")).to_have_text("ready")
    await expect(documents).to_have_count(101)
    await page.get_by_role("button", name="Remove", exact=True).click()
    remove = dialog.get_by_role("button", name="Remove for good")
    await expect(remove).to_be_disabled()
    await dialog.get_by_label("Type drafts to confirm").fill("drafts")
    await remove.click()
    await expect(page.locator("#corpora tbody tr")).to_have_count(1)


async def test_a_key_shows_what_its_role_allows_and_no_other_user(dsn: str) -> None:
    """A key of an app's user has that user's views alone, a reader no action, an app's administrator nothing of the
    installation; a user's key shows nothing of another, by no address."""
    async with examined(dsn) as (_, keys), serving(dsn, {}, api_key=KEY) as live:
        shown = {
            "reader": [
                "Start",
                "Operations",
                "Knowledge",
                "Tools",
                "Memory",
                "Conversations",
                "Search",
                "Consolidation",
            ],
            "admin": ["Start", "Knowledge", "Tools", "Upkeep", "Memory", "Conversations", "Search", "Consolidation"],
            "mei": ["Memory", "Conversations", "Search", "Consolidation"],
        }
        async with opened() as watched:
            page = watched.page
            for name, views in shown.items():
                await go(page, live, view="consolidation", **MEI)
                await sign_in(page, keys[name])
                await expect(page.locator("#jobs tbody tr").first).to_be_visible()
                found = await page.locator("nav.side a").all_text_contents()
                assert sorted(found) == sorted(views)
                await page.get_by_label("Status").select_option("failed")
                await page.locator("#jobs").get_by_role("link").first.click()
                await expect(page.locator(".raw-reply")).to_be_visible()
                is_admin = name == "admin"
                await expect(page.get_by_role("button", name="Run it again")).to_have_count(int(is_admin))
                await expect(page.get_by_role("link", name="Replay", exact=True)).to_have_count(int(is_admin))
            await go(page, live, view="knowledge", app=APP, corpus="handbook")
            await sign_in(page, keys["reader"])
            await expect(page.locator("#documents tbody tr")).to_have_count(2)
            # Change and Remove wait for the corpus.
            await expect(page.locator(".stats")).to_contain_text("role:clerk")
            for action in ("Add it", "Ingest it again", "Remove", "Change"):
                await expect(page.get_by_role("button", name=action, exact=True)).to_have_count(0)
            await go(page, live, view="search", app=APP, user=OTHER, q="spare key flowerpot")
            await sign_in(page, keys["mei"])
            await expect(page.locator("main")).to_contain_text("The key does not allow this.")
            await expect(page.locator("main")).not_to_contain_text(SECRET)
            await go(page, live, view="search", app=APP, user=OTHER, q="spare key flowerpot")
            await sign_in(page, keys["ben"])
            await expect(page.locator(".result").first).to_contain_text(SECRET)
            await expect(page.locator("main")).not_to_contain_text("Mei")
            await go(page, live, view="operations")
            await sign_in(page, keys["admin"])
            await expect(page.locator("main")).to_contain_text("The key does not allow this.")
            # Chromium reports the answer to the first request, which has no key.
            assert {each for each in watched.complaints if "401" not in each} == set()


async def test_reference_lets_people_try_a_call(dsn: str) -> None:
    """/docs shows every section of the API, and sends a call with the key that was entered, within its policy."""
    async with serving(dsn, {}, api_key=KEY) as live, watched_by(live) as watched:
        page = watched.page
        await page.goto(f"{live.url}/docs")
        await page.get_by_role("button", name="Authorize").click()
        await page.locator(".auth-container input").fill(KEY)
        await page.locator(".auth-btn-wrapper .authorize").click()
        await page.locator(".auth-btn-wrapper .btn-done").click()
        await page.locator(".opblock-tag", has_text="operation").click()
        call = page.locator(".opblock", has_text="/api/installation/overview")
        await call.locator(".opblock-summary-control").click()
        await call.get_by_role("button", name="Execute").click()
        await expect(call.locator(".live-responses-table .response .response-col_status").first).to_contain_text("200")


async def test_views_are_accessible_fit_and_are_pictured(dsn: str, node_folder: Path, tmp_path: Path) -> None:
    """Wide and on a phone, light and dark, in both languages: nothing overflows, and axe finds nothing. `make
    screenshots` keeps the pictures in docs/."""
    folder = picture_folder(tmp_path)
    async with examined(dsn), serving(dsn, {}) as live, watched_by(live, bypass_csp=True) as watched:
        page = watched.page
        for name, query in VIEWS:
            await go(page, live, **query)
            await expect(page.locator("main .panel").first).to_be_visible()
            await expect(page.locator("main .loading")).to_have_count(0)
            if name == "consolidation":
                await page.get_by_label("Status").select_option("failed")
                await page.locator("#jobs").get_by_role("link").first.click()
                await expect(page.locator(".raw-reply")).to_be_visible()
                await expect(page.locator(".read-turns li").first).to_be_visible()
            for size, (width, height) in (("phone", NARROW), ("wide", WIDE)):
                await page.set_viewport_size({"width": width, "height": height})
                assert await fits(page), (query, size)
                for scheme in SCHEMES:
                    await page.emulate_media(color_scheme=scheme)
                    if size == "wide":
                        assert await audit(page, node_folder) == [], (query, scheme)
                    if name is not None:
                        await take_picture(page, name, size, scheme, folder)
        await page.get_by_label("Language").select_option("zh")
        await expect(page.get_by_role("heading", name="知识").first).to_be_visible()
