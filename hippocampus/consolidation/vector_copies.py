"""What searches read of the vectors: copies of those that are older than the copies' tables, and the HNSW indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import structlog

from hippocampus.consolidation.statements import STATEMENTS

if TYPE_CHECKING:
    from pulse.database import Pool

_log = structlog.get_logger(__name__)

#: Vectors copied in one transaction, which locks their rows against changes.
BATCH_ROWS = 200
#: Vectors in one scope from which their model has an index.
INDEXED_ROWS = 5_000


async def copy_vectors(pool: Pool) -> int:
    """Copy the vectors that were stored before the copies' tables were there, in batches; return how many.

    A row that is locked is left for the next call.
    """
    total = 0
    while count := int(await STATEMENTS.fetchval(pool, "fill_vectors", BATCH_ROWS)):
        total += count
    return total


async def update_vector_indexes(pool: Pool, *, rows: int = INDEXED_ROWS) -> int:
    """Create the indexes of models of which one scope has more than `rows` vectors, and drop those of no model.

    Vectors can be read and written meanwhile. An index that was left half-built is built again.

    Returns:
        How many were created and dropped.
    """
    changes = await STATEMENTS.fetch(pool, "vector_index_changes", rows)
    for change in changes:
        with STATEMENTS.translating():
            try:
                await pool.execute(change["statement"])
            except asyncpg.InsufficientPrivilegeError:
                # A role with the least privileges: the tables' owner runs `hippocampus migrate`, or the statement.
                _log.warning("vector_index_refused", statement=change["statement"])
                return 0
        _log.info("vector_index_changed", statement=change["statement"])
    return len(changes)
