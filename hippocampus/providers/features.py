"""Which optional parameters a server accepts: found once, by a short request, or set by hand.

Servers of one API differ: some have no structured output, some models accept no temperature. The first call of a model
is preceded by a probe with all of them. If the server rejects it, the parameter that its message names is changed, or
else the next one that has not been changed yet, until a request is accepted. What is found holds for the process.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from hippocampus.errors import BlockedReplyError, PermanentProviderError

Features: TypeAlias = frozenset[str]

#: Every word that HIPPOCAMPUS_GENERATOR_FEATURES may hold, and how the message of a rejection names the parameter.
KNOWN: Mapping[str, re.Pattern[str]] = {
    "max_completion_tokens": re.compile(r"max_(?:completion_)?tokens", re.IGNORECASE),
    "temperature": re.compile("temperature", re.IGNORECASE),
    "schema_bounds": re.compile("(?:max|min)(?:imum|_?length|_?items)", re.IGNORECASE),
    "json_schema": re.compile("response_format|output_config|schema|grammar|structured", re.IGNORECASE),
}
#: The order in which they are changed if the message names none.
_ORDER = ("schema_bounds", "json_schema", "max_completion_tokens", "temperature")

#: A server that has started on a reply before it ran out of tokens has accepted the request.
_OUT_OF_TOKENS = re.compile("could not finish the message", re.IGNORECASE)


def parse(text: str) -> Features:
    """Return the features of a setting: words separated by commas, or ``none``.

    Raises:
        ValueError: a word is unknown.
    """
    words = {word.strip() for word in text.split(",") if word.strip()} - {"none"}
    if unknown := sorted(words - KNOWN.keys()):
        raise ValueError(f"unknown: {', '.join(unknown)}; choose auto, none, or some of {', '.join(sorted(KNOWN))}")
    return frozenset(words)


class FeatureFinder:
    """The features of one model on one server."""

    def __init__(self, first: Features, options: Features, given: Features | None) -> None:
        """Begin with `first`; any of `options` may change. If the features are `given` by hand, no probe is sent."""
        self._first = first
        self._options = options
        self._found = None if given is None else given & options
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def find(self, probe: Callable[[Features], Awaitable[object]]) -> Features:
        """Return the features; `probe` sends a short request with the features that it is given.

        Raises:
            ProviderError: no request was accepted; the error is that of the first one.
        """
        if self._found is None:
            async with self._lock_of_loop():
                if self._found is None:
                    self._found = await self._probe(probe)
        return self._found

    async def _probe(self, probe: Callable[[Features], Awaitable[object]]) -> Features:
        features, left = self._first, [name for name in _ORDER if name in self._options]
        first_error: PermanentProviderError | None = None
        while True:
            try:
                await probe(features)
                return features
            except BlockedReplyError:
                return features
            except PermanentProviderError as error:
                text = f"{error} {error.raw_reply or ''}"
                if _OUT_OF_TOKENS.search(text):
                    return features
                first_error = first_error or error
                if error.code not in ("400", "422") or not left:
                    raise first_error from None
                name = next((each for each in KNOWN if each in left and KNOWN[each].search(text)), left[0])
                left.remove(name)
                features ^= {name}

    def _lock_of_loop(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        return self._lock[1]
