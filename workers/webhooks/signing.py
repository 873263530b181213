"""The signature of a delivery, by the Standard Webhooks specification."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any


def body_of(event_type: str, created_at: datetime, data: Mapping[str, Any]) -> bytes:
    """Return the body of an event: the same bytes in each of its attempts."""
    event = {"type": event_type, "timestamp": created_at.astimezone(UTC).isoformat(), "data": data}
    return json.dumps(event, separators=(",", ":"), sort_keys=True).encode()


def headers_of(event_id: str, sent_at: int, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """Return the headers that a receiver verifies.

    Args:
        sent_at: the time of this attempt, in whole seconds since 1970.
        secrets: the current one and, while they are being changed over, former ones.
    """
    signed = f"{event_id}.{sent_at}.".encode() + body
    digests = (hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": " ".join("v1," + base64.b64encode(digest).decode() for digest in digests),
    }
