"""The response to a client whose bytes are not valid HTTP: a problem, as everywhere."""

from __future__ import annotations

import uuid

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pulse.http.edge import problems


class ProblemProtocol(H11Protocol):
    """uvicorn's protocol, with a problem in place of its plain text."""

    def send_400_response(self, msg: str) -> None:
        """Answer with a problem and close the connection."""
        request_id = uuid.uuid4().hex
        response = problems.render(problems.BAD_REQUEST, request_id, f"{msg} {problems.BAD_REQUEST.advice}")
        headers = [*response.raw_headers, (b"x-request-id", request_id.encode()), (b"connection", b"close")]
        parts = (
            h11.Response(status_code=response.status_code, headers=headers, reason=b"Bad Request"),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        )
        for each in parts:
            self.transport.write(self.conn.send(each) or b"")
        self.transport.close()
