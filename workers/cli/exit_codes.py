"""Exit codes of the command line, other than 0."""

from __future__ import annotations

#: A named thing does not exist, a change was refused, or a job failed.
FAILED = 1
#: Wrong usage or configuration: nothing was attempted.
USAGE = 2
INTERRUPTED = 130
