"""A page in Debian's Chromium, and its checks: requests to other hosts, console errors, contrast."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PIL import Image
from playwright.async_api import BrowserContext, Page, async_playwright, expect

from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS

FLAGS = ["--disable-gpu", "--disable-quic", "--disable-sync", "--no-first-run"]
WAIT_MILLISECONDS = 1000 * WAIT_SECONDS
PICTURE_BYTES_MAX = 160_000
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
        browser = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=FLAGS, timeout=WAIT_MILLISECONDS
        )
        try:
            context: BrowserContext = await browser.new_context(
                viewport={"width": size[0], "height": size[1]}, locale="en-GB", **options
            )
            yield Watched(await context.new_page())
        finally:
            await browser.close()


async def fits(page: Page) -> bool:
    """Whether nothing is wider than the window, once what follows its size is drawn: charts do so a frame later."""
    return bool(
        await page.evaluate(
            """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
                 done(document.documentElement.scrollWidth <= window.innerWidth))))"""
        )
    )


def picture_folder(tmp_path: Path) -> Path:
    """Where pictures are kept: in docs/ for `make screenshots`, else nowhere."""
    folder = ROOT / "docs" / "screenshots" if os.environ.get("SCREENSHOTS") else tmp_path
    folder.mkdir(exist_ok=True)
    return folder


async def take_picture(page: Page, name: str, size: str, scheme: str, folder: Path) -> None:
    """Keep what is in view, from its top, in 128 colours."""
    await page.evaluate("document.activeElement.blur(); document.querySelector('main').scrollTo(0, 0)")
    taken = Image.open(BytesIO(await page.screenshot()))
    target = folder / f"{name}-{size}-{scheme}.png"
    taken.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(target, optimize=True)
    assert target.stat().st_size < PICTURE_BYTES_MAX, target.name


async def audit(page: Page, node_folder: Path) -> list[str]:
    """Return axe's violations of WCAG 2.2 AA and of its own advice: landmarks, labels, names, contrast."""
    await page.evaluate((node_folder / "node_modules/axe-core/axe.min.js").read_text())
    found = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes']][:3]}"
        for each in found["violations"]
    ]
