"""One writer for all tests of the API, and an app for each test."""

from tests.support.writer_fixtures import app, client, rows, seen, session, user, writer, writer_dsn  # noqa: F401
