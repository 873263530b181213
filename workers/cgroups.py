"""What a container may use of its machine's memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple


class MemoryFiles(NamedTuple):
    """The limit, what counts against it, and its parts."""

    limit: Path
    usage: Path
    parts: Path


_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")
MEMORY_FILES = (
    MemoryFiles(_V2 / "memory.max", _V2 / "memory.current", _V2 / "memory.stat"),
    MemoryFiles(_V1 / "memory.limit_in_bytes", _V1 / "memory.usage_in_bytes", _V1 / "memory.stat"),
)


def memory_bytes() -> int:
    """Return the machine's memory, or the container's limit if that is less."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for files in MEMORY_FILES:
        # Without a limit the file says so in a word.
        with contextlib.suppress(OSError, ValueError):
            found = min(found, int(files.limit.read_text()))
    return found
