"""The table `traces`: how spans get there, from a thread with its own loop and one connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from pulse import database
from pulse.postgres.statements import Statements
from pulse.tracing.batches import Batches
from pulse.tracing.records import SpanRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult

    from pulse.database import Connection

STATEMENTS: Final = Statements("pulse.tracing", "tracing.sql")
#: The time limits for sending one batch, and for closing the connection.
SEND_SECONDS_MAX: Final = 2.0
CLOSE_SECONDS_MAX: Final = 2.5


class TableSink:
    """Writes batches of spans to `traces`, in the one thread that uses it."""

    def __init__(self, dsn: str, schema: str | None) -> None:
        self._dsn = dsn
        self._schema = schema
        self._loop = asyncio.new_event_loop()
        self._connection: Connection | None = None

    def send(self, batch: list[SpanRecord]) -> int:
        """Store a batch; return how many spans PostgreSQL refuses. See `Sink.send`."""
        return self._loop.run_until_complete(self._send([record.row() for record in batch]))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.terminate()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _send(self, rows: list[dict[str, Any]]) -> int:
        try:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await database.connect(self._dsn, schema=self._schema)
                return await self._store(self._connection, rows)
        except BaseException:
            # What it is in the middle of is not known: the next batch opens another.
            if self._connection is not None:
                self._connection.terminate()
                self._connection = None
            raise

    async def _store(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> int:
        """Store rows; where PostgreSQL refuses a value, halve them until only the row with it is left out."""
        try:
            await STATEMENTS.execute(connection, "store_spans", json.dumps(rows))
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError):
            if len(rows) == 1:
                return 1
            middle = len(rows) // 2
            return await self._store(connection, rows[:middle]) + await self._store(connection, rows[middle:])
        return 0


class PostgresSpanExporter:
    """Stores spans in `traces`: an exporter of OpenTelemetry's SDK, for a provider of one's own as well.

    ``provider.add_span_processor(SimpleSpanProcessor(PostgresSpanExporter(dsn)))``: it has a queue and a thread of its
    own, so a batch processor in front adds nothing. `export` never blocks and never fails.
    """

    def __init__(self, dsn: str, *, schema: str | None = None, content: bool = False) -> None:
        """`content`: keep the attributes that hold what users and models said."""
        self.batches = Batches("postgres", lambda: TableSink(dsn, schema))
        self._content = content

    @property
    def dropped(self) -> int:
        """How many spans were dropped since the start."""
        return self.batches.dropped

    def put(self, record: SpanRecord) -> None:
        """Queue one span."""
        self.batches.put(record)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Queue spans of the SDK."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        from pulse.tracing.sdk import record_of

        for span in spans:
            self.put(record_of(span, content=self._content))
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until what is queued is stored."""
        return self.batches.flush(timeout_millis / 1000)

    def shutdown(self) -> None:
        """Store what is queued, for at most `CLOSE_SECONDS_MAX`."""
        self.batches.stop()
        self.batches.join(CLOSE_SECONDS_MAX)
