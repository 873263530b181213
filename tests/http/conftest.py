"""One writer for the tests of the API, and an app of its own for each of them."""

from tests.support.writer_fixtures import app, client, rows, seen, session, user, writer, writer_dsn  # noqa: F401
