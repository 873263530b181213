"""Tickets for clients that cannot send headers, valid until they expire. Only their hashes are stored.

A ticket works for any number of connections, so that a client which was disconnected can connect again.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

#: The time from the issue of a ticket to the last connection that it opens.
TICKET_SECONDS = 900.0
_STATEMENTS = Statements("pulse", "tickets.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a ticket allows: to follow a session, or (`run_id`) one run of it; with `may_run`, to run agents in it."""

    app_name: str
    user_id: str
    session_id: str
    run_id: str | None
    may_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedTicket:
    """A new ticket; its token is returned only once."""

    token: str
    expires_at: datetime


class TicketService:
    """Issues and redeems tickets."""

    def __init__(self, pool: Pool, *, seconds: float = TICKET_SECONDS) -> None:
        self._pool = pool
        self._seconds = seconds

    async def issue(self, ticket: Ticket) -> IssuedTicket:
        """Issue a ticket.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        token = secrets.token_urlsafe(32)
        expires = await _STATEMENTS.fetchval(
            self._pool,
            "issue_ticket",
            _hash(token),
            ticket.app_name,
            ticket.user_id,
            ticket.session_id,
            ticket.run_id,
            self._seconds,
            ticket.may_run,
        )
        return IssuedTicket(token=token, expires_at=expires)

    async def redeem(self, token: str) -> Ticket | None:
        """Return what a ticket allows; None if it is unknown or expired."""
        row = await _STATEMENTS.fetchrow(self._pool, "redeem_ticket", _hash(token))
        return None if row is None else Ticket(**row)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
