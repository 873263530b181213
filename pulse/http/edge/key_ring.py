"""Authentication: by the operator's key, or an app's key; without an operator's key, local callers need none."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from pulse.api_keys import Grant

if TYPE_CHECKING:
    from pulse.api_keys import ApiKeyService

#: How long a verified key is cached: a revoked key works no longer than this in any process.
CACHE_SECONDS = 1.0
_CACHED_MAX = 1000

#: The grant of HIPPOCAMPUS_API_KEY.
OPERATOR = Grant(key_id="operator", app_name=None, roles=frozenset({"admin"}))
#: The grant of a caller on loopback where HIPPOCAMPUS_API_KEY is not set.
ANYBODY = Grant(key_id="anybody", app_name=None, roles=frozenset({"admin"}))


class KeyRing:
    """Returns what a key allows, with at most one query per key and second."""

    def __init__(self, operator_key: str | None, keys: ApiKeyService) -> None:
        self.is_open = operator_key is None
        self._operator_key = None if operator_key is None else operator_key.encode()
        self._keys = keys
        self._cache: OrderedDict[bytes, tuple[Grant, float]] = OrderedDict()

    async def grant_of(self, authorization: str) -> Grant | None:
        """Return what the header Authorization allows; None if it allows nothing.

        Raises:
            asyncpg.PostgresError, OSError: the key could not be looked up.
        """
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        text = given.strip()
        if self._operator_key is not None and hmac.compare_digest(text.encode("latin-1"), self._operator_key):
            return OPERATOR
        # By its hash: the time of a comparison must not reveal the key.
        digest = hashlib.sha256(text.encode("latin-1")).digest()
        cached = self._cache.get(digest)
        if cached is not None and cached[1] > time.monotonic():
            return cached[0]
        return await self._look_up(text, digest)

    async def _look_up(self, text: str, digest: bytes) -> Grant | None:
        # Counted from before the query: a key that is revoked meanwhile must not be cached for longer.
        until = time.monotonic() + CACHE_SECONDS
        grant = await self._keys.verify(text)
        self._cache.pop(digest, None)
        if grant is not None:
            self._cache[digest] = (grant, until)
            if len(self._cache) > _CACHED_MAX:
                self._cache.popitem(last=False)
        return grant
