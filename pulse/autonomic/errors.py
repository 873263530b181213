"""The errors of the autonomic layer.

AutonomicError
├── PulseNotFoundError       no such scope, release, task or object, or nothing to roll back (also a LookupError)
├── ReleaseMovedError        another release was promoted or rolled back meanwhile; look again, then promote again
├── ReleaseRefusedError      the release has not passed its checks, which the message has
├── IllegalTransitionError   the task, or the release, cannot go there from where it is
├── WrittenOnceError         a row of the record was to be changed; nothing in it ever is
├── ObjectCorruptError       a stored object is not what its hash says; restore it from a backup
└── ArchiveDiffersError      a file does not have what the archive has; write it again
"""

from __future__ import annotations

from collections.abc import Mapping

from pulse.errors import BY_SQLSTATE as PULSE_BY_SQLSTATE
from pulse.errors import PulseError


class AutonomicError(PulseError):
    """Base of every error of the autonomic layer."""


class PulseNotFoundError(AutonomicError, LookupError):
    """There is no such scope, release, task or object. Nothing was changed."""


class ReleaseMovedError(AutonomicError):
    """The release in force is not the expected one. Nothing was changed."""


class ReleaseRefusedError(AutonomicError):
    """The release has not passed its checks. Nothing was changed."""


class IllegalTransitionError(AutonomicError):
    """The task or the release cannot go there. Nothing was changed."""


class WrittenOnceError(AutonomicError):
    """The record is append-only. Nothing was changed."""


class ObjectCorruptError(AutonomicError):
    """A stored object does not have the content of its hash."""


class ArchiveDiffersError(AutonomicError):
    """A file has another number of events than the table that it is to replace. Nothing was dropped."""


#: The error class of each SQLSTATE that the functions of the autonomic layer raise.
BY_SQLSTATE: Mapping[str, type[Exception]] = {
    **PULSE_BY_SQLSTATE,
    "HP080": WrittenOnceError,
    "HP081": PulseNotFoundError,
    "HP082": ReleaseMovedError,
    "HP083": IllegalTransitionError,
    "HP084": ReleaseRefusedError,
    "HP085": ArchiveDiffersError,
}
