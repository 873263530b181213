"""Who may follow a stream: a caller with a key, on behalf of a user, or a caller with a ticket.

A browser's EventSource and WebSocket cannot set headers, so they send a ticket in the query. It works until it expires:
an EventSource that reconnects sends the same address, and its last frame's id in a header. A ticket that allows it also
runs agents, so that a page needs no key.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from pulse.api_keys import Role
from pulse.http.edge import problems
from pulse.http.edge.origins import may_follow
from pulse.http.edge.owner import Owner, asserted_owner
from pulse.http.edge.roles import check_role
from pulse.http.edge.services import service_of
from pulse.tickets import TicketService

LAST_EVENT_ID_LENGTH_MAX = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What every stream of a process has in common.

    Attributes:
        heartbeat_seconds: a stream without events sends a heartbeat this often.
    """

    heartbeat_seconds: float


@dataclass(frozen=True, slots=True)
class Access:
    """Whose streams may be followed, or runs started: all of a user's, or those of one session or one run."""

    owner: Owner
    session_id: str | None = None
    run_id: str | None = None

    def require_session(self, session_id: str) -> None:
        """Raise ProblemError if the ticket is for another session."""
        if self.session_id not in (None, session_id):
            raise problems.ProblemError(problems.WRONG_TICKET)

    def require_run(self, run_id: str | None) -> None:
        """Raise ProblemError if the ticket is for another run."""
        if self.run_id not in (None, run_id):
            raise problems.ProblemError(problems.WRONG_TICKET)


async def access_of(connection: HTTPConnection) -> Access:
    """Return what a connection may follow, by its ticket or its key.

    Raises:
        ProblemError: it names no user, its ticket is not valid, or it comes from a page of another site.
    """
    return await _access(connection, "read")


async def run_access_of(connection: HTTPConnection) -> Access:
    """Return where a connection may run agents, by its ticket or its key.

    Raises:
        ProblemError: as `access_of`, or its ticket only follows streams.
    """
    return await _access(connection, "append")


async def _access(connection: HTTPConnection, role: Role) -> Access:
    require_origin(connection)
    token = connection.query_params.get("ticket")
    if token is not None:
        ticket = await service_of(connection, TicketService).redeem(token)
        if ticket is None or (role != "read" and not ticket.may_run):
            raise problems.ProblemError(problems.WRONG_TICKET)
        return Access(Owner(ticket.app_name, ticket.user_id), ticket.session_id, ticket.run_id)
    query, headers = connection.query_params, connection.headers
    names = (query.get("app_name"), query.get("user_id"), headers.get("x-app-name"), headers.get("x-user-id"))
    check_role(connection, role)
    return Access(await asserted_owner(*names))


def require_origin(connection: HTTPConnection) -> None:
    """Allow connections from pages of this host and of the sites in the settings.

    Raises:
        ProblemError: the page belongs to another site.
    """
    if not may_follow(connection.scope):
        raise problems.ProblemError(problems.WRONG_ORIGIN)
