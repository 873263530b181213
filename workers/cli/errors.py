"""What an error of a command means to its user. Imported only once a command has failed."""

from __future__ import annotations

import asyncpg

from hippocampus.errors import HippocampusError, ProviderError
from pulse.errors import DatabaseUnreachableError, PulseError, SchemaError
from workers.cli.exit_codes import FAILED, USAGE
from workers.embedded.binaries import EmbeddedServerError
from workers.failures import DATABASE_FAULTS
from workers.pools import UnknownPoolError
from workers.settings import SettingsError

#: Caused by the configuration, not by the request.
_CONFIGURATION_ERRORS = (
    SettingsError,
    UnknownPoolError,
    EmbeddedServerError,
    DatabaseUnreachableError,
    SchemaError,
)


def explain(error: Exception) -> tuple[str, int] | None:
    """Return the sentence and the exit code for an error, or None for one that is a defect of this program."""
    match error:
        case _ if isinstance(error, _CONFIGURATION_ERRORS):
            return str(error), USAGE
        case ProviderError():
            return f"{str(error).rstrip('.')}: `hippocampus doctor` says what to do.", FAILED
        case PulseError() | HippocampusError() | TimeoutError():
            return str(error), FAILED
        case asyncpg.InsufficientPrivilegeError():
            return f"PostgreSQL refuses ({error.args[0]}): `hippocampus doctor` names the missing grant.", USAGE
        case asyncpg.DataError():
            return f"{_first_line(error)}: the value is out of the range of the database.", FAILED
        case OSError() if error.filename is not None:
            return f"{error.filename} cannot be used: {error.strerror}.", FAILED
        case _ if isinstance(error, DATABASE_FAULTS):
            return f"{_first_line(error)}: check that PostgreSQL runs (`hippocampus doctor`), then try again.", FAILED
        case UnicodeError():
            return f"The text is not valid UTF-8 ({error}): convert it, as with `iconv -t UTF-8`.", FAILED
        case _:
            return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
