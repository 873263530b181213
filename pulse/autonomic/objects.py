"""Contents by their hash: the SHA-256 of their canonical JSON. Written once, shared, verified when they are read."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from pulse.autonomic.errors import ObjectCorruptError, PulseNotFoundError
from pulse.autonomic.statements import STATEMENTS
from pulse.autonomic.types import canonical_json
from pulse.errors import InvalidInputError

if TYPE_CHECKING:
    from pulse.postgres.statements import Session

OBJECT_BYTES_MAX = 1 << 20


async def put_object(db: Session, value: object) -> str:
    """Store a JSON value and return its hash. An equal one is stored once.

    Raises:
        InvalidInputError: the value has no JSON, or over a mebibyte of it.
    """
    body = canonical_json(value)
    if len(body) > OBJECT_BYTES_MAX:
        raise InvalidInputError(f"an object must have at most {OBJECT_BYTES_MAX} bytes, not {len(body)}")
    return str(await STATEMENTS.fetchval(db, "put_object", body))


async def get_object(db: Session, digest: str) -> Any:
    """Return the value of a hash.

    Raises:
        PulseNotFoundError: there is none.
        ObjectCorruptError: what is stored has another hash.
    """
    body = await STATEMENTS.fetchval(db, "get_object", digest)
    if body is None:
        raise PulseNotFoundError(f"there is no object {digest!r:.80}")
    found = hashlib.sha256(body).hexdigest()
    if found != digest:
        raise ObjectCorruptError(f"object {digest} has the content of {found}: restore it from a backup")
    return json.loads(body)
