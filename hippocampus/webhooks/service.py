"""Endpoints, their secrets, and the deliveries of an app's events to them, by the Standard Webhooks specification.

An event is written in the transaction that it reports, with one delivery per endpoint that wants it, each carried by a
job of the queue. Events hold ids and types, never what a user said: the receiver reads that by the API.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE, WebhookNotFoundError
from hippocampus.names import check_app_name, check_names, check_optional_app_name
from pulse.errors import InvalidInputError
from pulse.names import check_app
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

WebhookEventType: TypeAlias = Literal[
    "session.finalized",
    "session.consolidated",
    "job.completed",
    "job.failed",
    "memory.created",
    "fact.changed",
    "erasure.completed",
]
DeliveryStatus: TypeAlias = Literal["waiting", "parked", "sending", "delivered", "failed", "cancelled"]
EVENT_TYPES: tuple[WebhookEventType, ...] = get_args(WebhookEventType)
DELIVERY_STATUSES: tuple[DeliveryStatus, ...] = get_args(DeliveryStatus)

SECRET_PREFIX = "whsec_"  # noqa: S105 - what a secret's text begins with
SECRET_BYTES = 32
URL_LENGTH_MAX = 2048
DESCRIPTION_LENGTH_MAX = 255
#: How long former secrets still sign after a rotation.
OVERLAP = timedelta(hours=24)
OVERLAP_MAX = timedelta(days=30)
LIST_LENGTH_MAX = 1000
#: Events that one call replays.
REPLAY_MAX = 1000

_STATEMENTS = Statements("hippocampus.webhooks", "webhooks.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint:
    """An address that receives an app's events, without its secrets.

    Attributes:
        event_types: those that it receives; empty: every type.
        failures_in_row: attempts since the last one that it answered with 2xx.
        disabled_at: None while events are sent to it.
    """

    id: UUID
    app_name: str
    url: str
    event_types: tuple[str, ...]
    description: str
    failures_in_row: int
    disabled_at: datetime | None
    disabled_reason: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """A new endpoint with its secret, ``whsec_…``, which is returned only once."""

    endpoint: WebhookEndpoint
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """An event on its way to an endpoint.

    Attributes:
        event_id: the ``webhook-id`` that the receiver gets, the same in every attempt and in a replay.
        status: waiting (for its next attempt), parked (its endpoint has as many attempts at once as it may have),
            sending, delivered, failed (no further attempt), cancelled (the endpoint was disabled).
        next_attempt_at: None once it is over.
        response_status: the status of the last attempt; None if there was no response.
        error_code: why the last attempt failed.
    """

    id: UUID
    endpoint_id: UUID
    event_id: UUID
    event_type: str
    event_at: datetime
    status: DeliveryStatus
    attempts: int
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    response_status: int | None
    error_code: str | None
    ended_at: datetime | None
    created_at: datetime


class WebhookService:
    """Adds and removes endpoints, rotates their secrets, and lists, repeats and tests deliveries."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def add(
        self, app_name: str, url: str, *, event_types: Collection[str] = (), description: str = ""
    ) -> NewWebhook:
        """Add an endpoint; it receives what happens from now on.

        Args:
            url: https, or http for an address that the sender is allowed to reach in a private network.
            event_types: of `EVENT_TYPES`; empty: every type, including those of later versions.

        Raises:
            InvalidInputError: an argument is out of its bounds; nothing was stored.
        """
        check_app(app_name)
        check_url(url)
        check_names(description=description)
        if len(description) > DESCRIPTION_LENGTH_MAX:
            raise InvalidInputError(f"a description must have at most {DESCRIPTION_LENGTH_MAX} characters")
        unknown = sorted(set(event_types) - set(EVENT_TYPES))
        if unknown:
            raise InvalidInputError(f"there is no event type {unknown[0]!r:.80}; there are {', '.join(EVENT_TYPES)}")
        chosen = [each for each in EVENT_TYPES if each in event_types]
        secret = secrets.token_bytes(SECRET_BYTES)
        row = await _STATEMENTS.fetchrow(self._pool, "add_endpoint", app_name, url, chosen, description, secret)
        return NewWebhook(endpoint=_endpoint(row), secret=secret_text(secret))

    async def get(self, endpoint_id: UUID, *, app_name: str | None = None) -> WebhookEndpoint:
        """Return an endpoint, of an app or of any.

        Raises:
            WebhookNotFoundError: there is no such endpoint.
        """
        check_optional_app_name(app_name)
        return _found(await _STATEMENTS.fetchrow(self._pool, "get_endpoint", endpoint_id, app_name), endpoint_id)

    async def rotate(self, app_name: str, endpoint_id: UUID, *, overlap: timedelta = OVERLAP) -> str:
        """Give an endpoint a new secret, and return it; it is returned only once.

        Args:
            overlap: how long former secrets sign beside it, so that the receiver can change over; up to 30 days.

        Raises:
            WebhookNotFoundError: there is no such endpoint.
            InvalidInputError: `overlap` is out of its bounds.
        """
        check_app_name(app_name)
        if not timedelta(0) <= overlap <= OVERLAP_MAX:
            raise InvalidInputError(f"overlap must be from 0 to {OVERLAP_MAX.days} days, not {overlap}")
        secret = secrets.token_bytes(SECRET_BYTES)
        signing = await _STATEMENTS.fetchval(
            self._pool, "rotate_secret", app_name, endpoint_id, secret, overlap.total_seconds()
        )
        if signing is None:
            raise _not_found(endpoint_id)
        return secret_text(secret)

    async def disable(self, app_name: str, endpoint_id: UUID, *, reason: str = "by hand") -> WebhookEndpoint:
        """Send nothing more to an endpoint; deliveries that wait are cancelled. Its events are still stored.

        Raises:
            WebhookNotFoundError: there is no such endpoint.
        """
        check_app_name(app_name)
        check_names(reason=reason)
        row = await _STATEMENTS.fetchrow(self._pool, "disable_endpoint", endpoint_id, app_name, reason[:255])
        return _found(row, endpoint_id)

    async def enable(self, app_name: str, endpoint_id: UUID) -> WebhookEndpoint:
        """Send to an endpoint again; `replay` sends it what happened in between.

        Raises:
            WebhookNotFoundError: there is no such endpoint.
        """
        check_app_name(app_name)
        return _found(await _STATEMENTS.fetchrow(self._pool, "enable_endpoint", endpoint_id, app_name), endpoint_id)

    async def remove(self, app_name: str, endpoint_id: UUID) -> None:
        """Remove an endpoint, its secrets and its deliveries.

        Raises:
            WebhookNotFoundError: there is no such endpoint.
        """
        check_app_name(app_name)
        if not await _STATEMENTS.fetchval(self._pool, "remove_endpoint", app_name, endpoint_id):
            raise _not_found(endpoint_id)

    async def deliveries(
        self,
        app_name: str,
        endpoint_id: UUID | None = None,
        *,
        status: DeliveryStatus | None = None,
        event_id: UUID | None = None,
        limit: int = 100,
        before: UUID | None = None,
    ) -> list[WebhookDelivery]:
        """List deliveries, the newest first.

        Args:
            before: the id of the last delivery of the previous page.

        Raises:
            InvalidInputError: limit is not 1 to 1,000.
        """
        check_app_name(app_name)
        check_limit(limit, LIST_LENGTH_MAX)
        rows = await _STATEMENTS.fetch(
            self._pool, "list_deliveries", app_name, endpoint_id, status, event_id, limit, before
        )
        return [_delivery(row) for row in rows]

    async def delivery(self, app_name: str, delivery_id: UUID) -> WebhookDelivery:
        """Return a delivery.

        Raises:
            WebhookNotFoundError: there is none, or its event was erased or pruned.
        """
        check_app_name(app_name)
        row = await _STATEMENTS.fetchrow(self._pool, "get_delivery", app_name, delivery_id)
        if row is None:
            raise WebhookNotFoundError(f"there is no webhook delivery {delivery_id}")
        return _delivery(row)

    async def replay(
        self,
        app_name: str,
        endpoint_id: UUID,
        *,
        event_id: UUID | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> int:
        """Send stored events to an endpoint again, under their former ids: one, or those of a range; return how many.

        Args:
            since, until: aware times; `until` is excluded, and now by default.

        Raises:
            WebhookNotFoundError: there is no such endpoint or event.
            InvalidInputError: neither or both of an event and `since` are given, a time has no zone, the range has more
                than 1,000 events, or the endpoint is disabled; nothing was sent.
        """
        check_app_name(app_name)
        if (event_id is None) == (since is None):
            raise InvalidInputError("name an event to replay, or the time since when; not both")
        until = until or datetime.now(UTC) + timedelta(days=1)
        if until.tzinfo is None or (since is not None and since.tzinfo is None):
            raise InvalidInputError("a range of time needs times with a zone")
        count: int = await _STATEMENTS.fetchval(
            self._pool, "replay_events", app_name, endpoint_id, event_id, since, until, REPLAY_MAX
        )
        return count

    async def ping(self, app_name: str, endpoint_id: UUID) -> UUID:
        """Send a test event (``webhook.ping``) to an endpoint, and return the id of its delivery.

        Raises:
            WebhookNotFoundError: there is no such endpoint.
            InvalidInputError: the endpoint is disabled.
        """
        check_app_name(app_name)
        delivery_id: UUID = await _STATEMENTS.fetchval(self._pool, "ping_endpoint", app_name, endpoint_id)
        return delivery_id

    async def list(
        self, app_name: str | None = None, *, limit: int = 100, after: UUID | None = None
    ) -> list[WebhookEndpoint]:
        """List the endpoints of an app, or all, the oldest first.

        Raises:
            InvalidInputError: limit is not 1 to 1,000.
        """
        check_limit(limit, LIST_LENGTH_MAX)
        check_optional_app_name(app_name)
        rows = await _STATEMENTS.fetch(self._pool, "list_endpoints", app_name, limit, after)
        return [_endpoint(row) for row in rows]


def secret_text(secret: bytes) -> str:
    """Return a secret as receivers configure it."""
    return SECRET_PREFIX + base64.b64encode(secret).decode()


def check_url(url: str) -> str:
    """Return the URL of an endpoint.

    Raises:
        InvalidInputError: it is not an absolute http or https URL, or has a user, a password or a fragment.
    """
    problem = _problem_of(url)
    if problem is not None:
        # Not the URL itself: its query may hold a token.
        raise InvalidInputError(f"the URL of an endpoint {problem}; nothing was stored")
    return url


def _problem_of(url: str) -> str | None:
    if not isinstance(url, str) or not 1 <= len(url) <= URL_LENGTH_MAX:
        return f"is a text of 1 to {URL_LENGTH_MAX} characters"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "has only printable ASCII characters: encode the others"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "has a host and a port from 1 to 65535"
    if parts.scheme not in ("https", "http"):
        return "begins with https:// (or http:// for an address in a private network)"
    if not host or port == 0:
        return "has a host and a port from 1 to 65535"
    if "@" in parts.netloc:
        return "has no user and no password: deliveries are signed"
    if parts.fragment:
        return "has no fragment"
    return None


def _found(row: Any, endpoint_id: UUID) -> WebhookEndpoint:
    if row is None:
        raise _not_found(endpoint_id)
    return _endpoint(row)


def _not_found(endpoint_id: UUID) -> WebhookNotFoundError:
    return WebhookNotFoundError(f"there is no webhook endpoint {endpoint_id}: see `hippocampus webhooks list`")


def _endpoint(row: Any) -> WebhookEndpoint:
    fields = dict(row)
    return WebhookEndpoint(event_types=tuple(fields.pop("event_types")), **fields)


def _delivery(row: Any) -> WebhookDelivery:
    return WebhookDelivery(**dict(row))
