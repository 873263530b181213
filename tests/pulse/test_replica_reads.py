"""Reads from a replica, where the server does not let its users see whose log it writes."""

from __future__ import annotations

from structlog.testing import capture_logs

from pulse import database
from pulse.postgres.bounded_pool import BoundedPool
from pulse.postgres.replica import ReplicaReads
from tests.support.plain_role import keep_identity, plain_user, without_identity


async def test_the_primary_is_read_where_its_identity_is_refused(dsn: str) -> None:
    """A managed server may revoke the function: no read fails for it, and the log says so once."""
    with without_identity(dsn) as theirs, capture_logs() as logged:
        async with await database.create_pool(theirs) as pool:
            reads = ReplicaReads(pool, lambda: database.create_pool(theirs, min_size=0))
            for _ in range(2):
                reads._not_before = 0.0
                assert [tuple(row) for row in await reads.fetch("SELECT 1")] == [(1,)]
            assert (reads.from_replica, reads.from_primary) == (0, 2)
            await reads.close()
    (line,) = [each for each in logged if each["event"] == "replica_refused"]
    assert "pg_control_system" in line["error"]


async def test_each_connection_is_asked_once_which_server_it_leads_to(dsn: str) -> None:
    """Reading it is a file's on the server, for each search and each look at the replica; a new connection may lead to
    another server. A server that stands for both is in no recovery, and so is never read."""
    with plain_user(dsn) as theirs, capture_logs() as logged:
        async with await database.create_pool(theirs, max_size=1) as pool:
            reads = ReplicaReads(pool, lambda: database.create_pool(theirs, max_size=1))

            async def read() -> list[str]:
                reads._not_before = 0.0
                assert [tuple(row) for row in await reads.fetch("SELECT 1")] == [(1,)]
                return [line["event"] for line in logged]

            assert await read() == []
            keep_identity(dsn)
            assert await read() == []
            assert isinstance(pool, BoundedPool)
            await pool.renew()
            assert await read() == ["replica_refused"]
            await reads.close()
