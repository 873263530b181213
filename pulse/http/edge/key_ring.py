"""Who calls: the operator's key, a key of an app, or, where no key is set, anybody on this machine."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from pulse.api_keys import Grant

if TYPE_CHECKING:
    from pulse.api_keys import ApiKeyService

#: How long a key that was just looked up is believed: a revoked one works no longer than this in any process.
CACHE_SECONDS = 1.0
_CACHED_MAX = 1000

#: What HIPPOCAMPUS_API_KEY allows.
OPERATOR = Grant(key_id="operator", app_name=None, roles=frozenset({"admin"}))
#: What is allowed on loopback where no key is set.
ANYBODY = Grant(key_id="anybody", app_name=None, roles=frozenset({"admin"}))


class KeyRing:
    """Tells what a key allows, with at most one look at the database per key and second."""

    def __init__(self, operator_key: str | None, keys: ApiKeyService) -> None:
        self.is_open = operator_key is None
        self._operator_key = None if operator_key is None else operator_key.encode()
        self._keys = keys
        self._seen: OrderedDict[bytes, tuple[Grant, float]] = OrderedDict()

    async def grant_of(self, authorization: str) -> Grant | None:
        """Return what the header Authorization allows; None where it allows nothing.

        Raises:
            asyncpg.PostgresError, OSError: the database can't be asked.
        """
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        text = given.strip()
        if self._operator_key is not None and hmac.compare_digest(text.encode("latin-1"), self._operator_key):
            return OPERATOR
        # By its hash: what is compared while looking it up says nothing of the key.
        place = hashlib.sha256(text.encode("latin-1")).digest()
        known = self._seen.get(place)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        return await self._look_up(text, place)

    async def _look_up(self, text: str, place: bytes) -> Grant | None:
        # From before the look: what is revoked meanwhile is believed no longer than the bound.
        until = time.monotonic() + CACHE_SECONDS
        grant = await self._keys.verify(text)
        self._seen.pop(place, None)
        if grant is not None:
            self._seen[place] = (grant, until)
            if len(self._seen) > _CACHED_MAX:
                self._seen.popitem(last=False)
        return grant
