"""A writer with the MCP server beside it, and the server in this process."""

from __future__ import annotations

from tests.support.writer_fixtures import app, client, rows, seen, session, user, writer, writer_dsn  # noqa: F401
