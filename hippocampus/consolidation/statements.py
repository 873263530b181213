"""The statements of this package, for each module that runs one."""

from __future__ import annotations

from hippocampus.errors import BY_SQLSTATE
from pulse.postgres.statements import Statements

STATEMENTS = Statements("hippocampus.consolidation", "consolidation.sql", errors=BY_SQLSTATE)
