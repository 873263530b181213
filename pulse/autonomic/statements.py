"""The statements of the autonomic layer."""

from __future__ import annotations

from pulse.autonomic.errors import BY_SQLSTATE
from pulse.postgres.statements import Statements

STATEMENTS = Statements("pulse.autonomic", "autonomic.sql", errors=BY_SQLSTATE)
