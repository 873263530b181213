"""The console at ``/``: files in this package, built from ``console/`` (`make page`), without other hosts.

It contains no data and needs no key: it asks for a key if the API requires one, and keeps it in memory only.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
from importlib import resources
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.routing import DeferredRoute

PREFIX: Final = "/page/"
INDEX: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
DOCS: Final = "docs.html"
_FILES: Final = frozenset("console.js console.css icon.svg docs.js swagger-ui.css".split())
_POLICY: Final = "; ".join(
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
#: Swagger UI sets markup that it has cleaned, and its style has images in its text.
_DOCS_POLICY: Final = _POLICY.replace("img-src 'self'", "img-src 'self' data:").partition("; require-trusted-types")[0]
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
#: A file that was requested by its content never changes; any other is compared at each request, since a page and the
#: API that it calls must have the same version.
_FOREVER: Final = "public, max-age=31536000, immutable"
_COMPARED: Final = "no-cache"
#: Characters of a file's hash in its address; see ``console/build.mjs``.
_VERSION_LENGTH: Final = 12

router = APIRouter(include_in_schema=False, route_class=DeferredRoute)

Accepted = Annotated[str, Header()]


class _File(NamedTuple):
    body: bytes
    zipped: bytes
    digest: str


@router.get("/")
async def show_page(accept_encoding: Accepted = "", if_none_match: Accepted = "") -> Response:
    """Return the page."""
    return _answer(INDEX, None, accept_encoding, if_none_match)


@router.get("/docs")
async def show_docs(accept_encoding: Accepted = "", if_none_match: Accepted = "") -> Response:
    """Return the page of the API's reference, where a call can be tried."""
    answer = _answer(DOCS, None, accept_encoding, if_none_match)
    answer.headers["Content-Security-Policy"] = _DOCS_POLICY
    return answer


@router.get(f"{PREFIX}{{name}}")
async def show_file(
    name: Annotated[str, Path(max_length=64)],
    version: Annotated[str | None, Query(alias="v", max_length=64)] = None,
    accept_encoding: Accepted = "",
    if_none_match: Accepted = "",
) -> Response:
    """Return a file of the page."""
    if name not in _FILES:
        raise problems.ProblemError(problems.NO_SUCH_ROUTE)
    return _answer(name, version, accept_encoding, if_none_match)


def _answer(name: str, version: str | None, accepted: str, known: str) -> Response:
    file = _read(name)
    is_zipped = "gzip" in {each.partition(";")[0].strip().lower() for each in accepted.split(",")}
    tag = f'"{file.digest}{"-gzip" if is_zipped else ""}"'
    headers = {
        **HEADERS,
        "Cache-Control": _FOREVER if version == file.digest[:_VERSION_LENGTH] else _COMPARED,
        "ETag": tag,
    }
    if tag in {each.strip().removeprefix("W/") for each in known.split(",")}:
        return Response(status_code=304, headers=headers)
    headers["Content-Type"] = _TYPES[name.rpartition(".")[2]]
    if not is_zipped:
        return Response(file.body, headers=headers)
    return Response(file.zipped, headers={**headers, "Content-Encoding": "gzip"})


@functools.cache
def _read(name: str) -> _File:
    body = resources.files(__name__).joinpath("built", name).read_bytes()
    return _File(body, gzip.compress(body, mtime=0), hashlib.sha256(body).hexdigest())
