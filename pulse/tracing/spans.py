"""What traced code holds: a span that runs. When tracing is off it is `NO_SPAN`, one object that does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Final, Protocol


class Span(Protocol):
    """A span that runs, entered by `with`; an exception that leaves the block is its error. No method ever raises."""

    @property
    def is_recording(self) -> bool:
        """Whether it keeps what it is given: False when tracing is off, and once it has ended."""

    @property
    def traceparent(self) -> str | None:
        """Its context as W3C's header, for another process; None when tracing is off."""

    def rename(self, name: str) -> None:
        """Give it another name, of an operation that is known only now."""

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute. Content (`pulse.tracing.genai.CONTENT`) is dropped unless the manager keeps it."""

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set several; None is left out."""

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Note a moment."""

    def add_link(self, traceparent: object) -> None:
        """Link the span of another trace that caused this one; anything but a valid header is ignored."""

    def fail(self, error: BaseException | str) -> None:
        """Mark it as failed, by an exception or the name of an error."""

    def end(self) -> None:
        """End it, where no block does."""

    def within(self) -> AbstractContextManager[object]:
        """Return a block in which it is current, and which does not end it."""

    def __enter__(self) -> Span: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class _NoSpan:
    """What is given when tracing is off."""

    __slots__ = ()
    is_recording = False
    traceparent = None

    def rename(self, name: str) -> None:
        """Do nothing."""

    def set_attribute(self, name: str, value: Any) -> None:
        """Do nothing."""

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Do nothing."""

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Do nothing."""

    def add_link(self, traceparent: object) -> None:
        """Do nothing."""

    def fail(self, error: BaseException | str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def within(self) -> AbstractContextManager[object]:
        """Do nothing."""
        return nullcontext()

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


NO_SPAN: Final = _NoSpan()


def error_name(error: BaseException | str) -> str:
    """Return the value of ``error.type``: never a message, which may quote what a user said."""
    return error if isinstance(error, str) else type(error).__name__
