"""Who may follow a stream: the holder of the key, in the name of a user, or the holder of a ticket.

A browser's EventSource and WebSocket send no headers of their choice, so they bring a ticket in the query. It is used
up by the connection that it opens; to come back, a client gets another one and names its last frame in ``offset``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from pulse.http.edge import problems
from pulse.http.edge.owner import Owner, asserted_owner
from pulse.http.edge.roles import check_role
from pulse.tickets import TicketService

LAST_EVENT_ID_LENGTH_MAX = 8000


@dataclass(frozen=True, slots=True)
class Access:
    """Whose streams may be followed: all of a user's, or those of one session or one run."""

    owner: Owner
    session_id: str | None = None
    run_id: str | None = None

    def require_session(self, session_id: str) -> None:
        """Raise ProblemError where the ticket is another session's."""
        if self.session_id not in (None, session_id):
            raise problems.ProblemError(problems.WRONG_TICKET)

    def require_run(self, run_id: str | None) -> None:
        """Raise ProblemError where the ticket is for one run, and this is not it."""
        if self.run_id not in (None, run_id):
            raise problems.ProblemError(problems.WRONG_TICKET)


async def access_of(connection: HTTPConnection) -> Access:
    """Return what a connection may follow; a ticket is used up by it.

    Raises:
        ProblemError: it names nobody, its ticket is no good, or it comes from another site's page.
    """
    require_origin(connection.headers, connection.app.state.stream_origins)
    token = connection.query_params.get("ticket")
    if token is not None:
        tickets: TicketService = connection.app.state.tickets
        ticket = await tickets.redeem(token)
        if ticket is None:
            raise problems.ProblemError(problems.WRONG_TICKET)
        return Access(Owner(ticket.app_name, ticket.user_id), ticket.session_id, ticket.run_id)
    query, headers = connection.query_params, connection.headers
    given = (query.get("app_name"), query.get("user_id"), headers.get("x-app-name"), headers.get("x-user-id"))
    check_role(connection, "read")
    return Access(asserted_owner(*given))


def require_origin(headers: Mapping[str, str], allowed: Iterable[str]) -> None:
    """Let pages of this host follow, and those of the sites that are allowed.

    Raises:
        ProblemError: the page is another site's.
    """
    origin = headers.get("origin")
    if origin is None or origin in allowed:
        return
    if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        raise problems.ProblemError(problems.WRONG_ORIGIN)
