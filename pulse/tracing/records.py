"""A span that has ended, as both recorders hand it on and the table stores it, and the W3C form of its context."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pulse.redaction import mask_and_cut
from pulse.tracing import genai

#: Characters of one text in an attribute.
TEXT_MAX: Final = 4096
HIDDEN: Final = "[redacted]"
#: Attributes of one span, and elements of one list in it.
VALUES_MAX: Final = 128

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class TraceContext(NamedTuple):
    """Where a span is in its trace: what `traceparent` carries between processes."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The header of W3C's Trace Context."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


def parse_traceparent(text: object) -> TraceContext | None:
    """Return the context of a `traceparent`; None for anything that is not a valid one."""
    found = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    # Version 00 has exactly four fields; 255 is not a version. Only the lowest bit of the flags says 'sampled'.
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))


@dataclass(slots=True, kw_only=True)
class SpanRecord:
    """A span that has ended. Times are in nanoseconds since 1970, by the clock of its process."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start_ns: int
    end_ns: int
    service: str
    is_root: bool  # in its process
    error: str | None = None  # its type; None: it succeeded
    status_message: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    links: list[TraceContext] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Return what `store_spans` takes: JSON values that PostgreSQL can hold."""
        attributes = clean(self.attributes)
        owners = {name: attributes.pop(name, None) for name in genai.OWNERS}
        return {
            "trace_id": self.trace_id,
            "span_id": self.span_id,
            "parent_span_id": self.parent_span_id,
            "operation_name": clean(self.name)[:255],
            "span_kind": self.kind,
            "service_name": clean(self.service)[:255],
            "is_root": self.is_root,
            "app_name": _name(owners[genai.APP], 255),
            "user_id": _name(owners[genai.USER], 255),
            "session_id": _name(owners[genai.SESSION], 512),
            "run_id": _name(owners[genai.RUN], 512),
            "linked_trace_id": self.links[0].trace_id if self.links else None,
            "attributes": attributes,
            "events": [clean(event) for event in self.events[:VALUES_MAX]],
            "start_us": self.start_ns // 1000,
            "duration_ns": max(0, self.end_ns - self.start_ns),
            "status_code": "ok" if self.error is None else "error",
            "status_message": None if self.status_message is None else clean(self.status_message),
        }


def shown(attributes: Mapping[str, Any], *, content: bool) -> dict[str, Any]:
    """Return attributes as they are kept: what users, models and tools said only with `content`, without secrets."""
    return {
        name: _masked(value) if _is_content(name) else value
        for name, value in attributes.items()
        if content or not _is_content(name)
    }


def shown_message(message: str | None, *, content: bool) -> str | None:
    """Return the message of an error as it is kept: only with `content`, without secrets."""
    return mask_and_cut(message, TEXT_MAX, HIDDEN) if content and message is not None else None


def _is_content(name: str) -> bool:
    return name in genai.CONTENT or name.startswith(genai.CONTENT_PREFIX)


def _masked(value: Any) -> Any:
    return _cleaned(value, lambda text: mask_and_cut(text, TEXT_MAX, HIDDEN))


def clean(value: Any) -> Any:
    """Return a value as JSON that PostgreSQL can hold: bounded, without U+0000, lone surrogates, NaN and infinities."""
    return _cleaned(value, lambda text: text[:TEXT_MAX])


def _cleaned(value: Any, cut: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", cut(value))
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {_cleaned(str(name), cut): _cleaned(each, cut) for name, each in _first(value.items())}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [_cleaned(each, cut) for each in _first(value)]
    return _cleaned(repr(value), cut)


def _first(values: Iterable[Any]) -> Iterable[Any]:
    return (each for _, each in zip(range(VALUES_MAX), values, strict=False))


def _name(value: object, length_max: int) -> str | None:
    # A name that no row can have belongs to no user.
    return value if isinstance(value, str) and 0 < len(value) <= length_max else None
