"""Log lines: JSON, one object a line, with the job's ids bound. They never contain conversation text or a key.

An exception's message may contain either (a driver quotes the value that it refuses), so a line holds the exception's
class and where it was raised, and not its message. A job's row keeps the whole error.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

FRAMES_MAX = 12
#: Different errors that are counted separately.
ERRORS_COUNTED_MAX = 100

_EVENT = re.compile(r"[a-z][a-z0-9_]{0,63}")
_errors: Counter[str] = Counter()

# Libraries that write arguments, addresses or results at lower levels.
_QUIET_LOGGERS = (
    "procrastinate",
    "httpx",
    "httpcore",
    "google_genai",
    "psycopg",
    "asyncio",
    "uvicorn.access",
    "uvicorn.error",
)


def configure(level: str = "info", log_format: str = "json") -> None:
    """Send structlog's and every library's lines to standard error, in one format."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_exception,
        count_error,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    last = structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_take_exception, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    handler.addFilter(_drop_arguments)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    # `workers.queue.fenced_jobs` logs every failed attempt already.
    logging.getLogger("procrastinate.worker").addFilter(_is_not_outcome)


def name_exception(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Replace an exception with its class and its frames."""
    given = event.pop("exc_info", None)
    if given is True:
        given = sys.exc_info()
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
        event["error_type"] = type(error).__name__
        event["frames"] = [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in frames]
    return event


def count_error(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Count an error by its event and class. Names are static; a library's own text counts under its logger's name."""
    if event.get("level") in ("error", "critical"):
        name = str(event.get("event", ""))
        if not _EVENT.fullmatch(name):
            name = f"library_{event.get('logger', 'unknown')}"
        key = f"{name}:{event.get('error_type', '')}"[:200]
        _errors[key if key in _errors or len(_errors) < ERRORS_COUNTED_MAX else "others:"] += 1
    return event


def error_counts() -> dict[str, int]:
    """Return how often this process logged each error, as 'worker_not_drained:TimeoutError', since it began."""
    return dict(_errors)


def _take_exception(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Pass a library's exception on to `name_exception`."""
    record = event.get("_record")
    if isinstance(record, logging.LogRecord) and record.exc_info:
        event["exc_info"] = record.exc_info
        record.exc_info = None
        record.exc_text = None
    return event


def _drop_arguments(record: logging.LogRecord) -> bool:
    """Keep a library's message template, without the values."""
    if isinstance(record.msg, str):
        record.args = None
    return True


def _is_not_outcome(record: logging.LogRecord) -> bool:
    return getattr(record, "action", None) not in ("job_error", "job_error_retry", "job_aborted", "job_aborted_retry")
