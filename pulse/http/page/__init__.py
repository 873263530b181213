"""The page that shows threads, at ``/``: static files in this package, without a build step or other hosts.

It contains no data and needs no key: it asks for a key if the API requires one, and keeps it in memory only.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from pulse.http.edge import problems

PREFIX = "/page/"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FILES = frozenset(
    "icon.svg page.css main.js api.js dom.js event_log.js run_stream.js state_panel.js thread_list.js thread_view.js"
    " timeline.js".split()
)
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # The text of users cannot become markup, even through a mistake in a script.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A page and the API that it calls must have the same version.
    "Cache-Control": "no-cache",
}

router = APIRouter(include_in_schema=False)


@router.get("/")
async def show_page() -> Response:
    """Return the page."""
    return _file("index.html")


@router.get(f"{PREFIX}{{name}}")
async def show_file(name: Annotated[str, Path(max_length=64)]) -> Response:
    """Return a file of the page."""
    if name not in _FILES:
        raise problems.ProblemError(problems.NO_SUCH_ROUTE)
    return _file(name)


def _file(name: str) -> Response:
    return Response(_bytes(name), headers={**_HEADERS, "Content-Type": _TYPES[name.rpartition(".")[2]]})


@functools.cache
def _bytes(name: str) -> bytes:
    return resources.files(__name__).joinpath(name).read_bytes()
