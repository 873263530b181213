"""A page in Debian's Chromium, and its checks: requests to other hosts, console errors, contrast."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, Page, async_playwright, expect

FLAGS = ["--disable-gpu", "--disable-quic", "--disable-sync", "--no-first-run"]
# Other test runs may occupy the cores.
WAIT_MILLISECONDS = 20_000
WIDE, NARROW = (1400, 900), (400, 800)


class Watched:
    """A page, with its requests and its console messages.

    Attributes:
        hosts: the hosts of all requests.
        complaints: warnings and errors of the console, and uncaught exceptions.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.hosts: set[str] = set()
        self.complaints: list[str] = []
        page.set_default_timeout(WAIT_MILLISECONDS)
        expect.set_options(timeout=WAIT_MILLISECONDS)
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console", lambda line: self.complaints.append(line.text) if line.type in ("error", "warning") else None
        )


@asynccontextmanager
async def opened(size: tuple[int, int] = WIDE, **options: Any) -> AsyncIterator[Watched]:
    """Start a browser with a fresh profile, and open an empty page in it."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        try:
            context: BrowserContext = await browser.new_context(
                viewport={"width": size[0], "height": size[1]}, locale="en-GB", **options
            )
            yield Watched(await context.new_page())
        finally:
            await browser.close()


async def audit(page: Page, node_folder: Path) -> list[str]:
    """Return axe's violations of WCAG 2.2 AA and of its own advice: landmarks, labels, names, contrast."""
    await page.evaluate((node_folder / "node_modules/axe-core/axe.min.js").read_text())
    found = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes']][:3]}"
        for each in found["violations"]
    ]
