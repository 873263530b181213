"""The sites whose pages may follow streams: those of the API's own host, and those of the settings.

A request may be refused before it reaches a route, and its page has to read the refusal of a stream, too. So the
outermost layers note the sites of the settings in the request's scope, for all that answer it.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

_KEY = "stream_origins"


def parse_origins(text: str) -> frozenset[str]:
    """Return the sites of a setting, separated by commas."""
    return frozenset(filter(None, text.split(",")))


def note_origins(scope: Scope, origins: frozenset[str]) -> None:
    """Note in a connection's scope which sites may follow streams, besides those of the API's own host."""
    scope.setdefault("state", {})[_KEY] = origins


def may_follow(scope: Scope) -> bool:
    """Whether a connection comes from a page that may follow streams, or from no page."""
    headers = Headers(scope=scope)
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is None or origin in scope["state"].get(_KEY, ()):
        return True
    return bool(host) and origin.partition("://")[2].lower() == host.lower()


def page_headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a response that the page which asked for it may read; none for a page that may not."""
    origin = Headers(scope=scope).get("origin")
    if origin is None or not may_follow(scope):
        return {}
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
