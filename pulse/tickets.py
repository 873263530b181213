"""Tickets: short-lived, for one use, for clients that can send no headers. Only their hashes are stored."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg

from pulse.postgres.statements import load_queries, translate

if TYPE_CHECKING:
    from pulse.database import Pool

#: From its making to the connection that it opens.
TICKET_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a ticket allows: to follow a session of a user, or one run of it."""

    app_name: str
    user_id: str
    session_id: str
    run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedTicket:
    """A ticket as its holder gets it, once."""

    token: str
    expires_at: datetime


class TicketService:
    """Issues and redeems tickets."""

    def __init__(self, pool: Pool, *, seconds: float = TICKET_SECONDS) -> None:
        self._pool = pool
        self._seconds = seconds
        self._queries = load_queries("pulse", "streams.sql")

    async def issue(self, ticket: Ticket) -> IssuedTicket:
        """Make a ticket.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        token = secrets.token_urlsafe(32)
        try:
            expires = await self._pool.fetchval(
                self._queries["issue_ticket"],
                _hash(token),
                ticket.app_name,
                ticket.user_id,
                ticket.session_id,
                ticket.run_id,
                self._seconds,
            )
        except asyncpg.PostgresError as error:
            raise translate(error) from error
        return IssuedTicket(token=token, expires_at=expires)

    async def redeem(self, token: str) -> Ticket | None:
        """Use a ticket up and return what it allows; None where it is unknown, used or too old."""
        row = await self._pool.fetchrow(self._queries["redeem_ticket"], _hash(token))
        return None if row is None else Ticket(**row)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
