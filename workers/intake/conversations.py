"""A file of conversations, read into memory: for a caller that shows it, and refuses it if any part is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pulse.events import Event
from workers.intake import reader
from workers.intake.records import FileFormatError, Given, Item, LeftOut, Question, Rejected, SessionHead, Turn

#: Larger files are ingested as a stream.
FILE_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFile:
    """One session of a file."""

    session_id: str
    user_id: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFile:
    """The content of a file.

    Attributes:
        items_beside: memories of the file, and what is left out of it.
        queries: questions that its author added; may be empty.
    """

    file_format: str
    sessions: tuple[SessionFile, ...]
    queries: tuple[str, ...] = ()
    items_beside: tuple[Given | LeftOut, ...] = ()

    @property
    def event_count(self) -> int:
        """How many events all its sessions have."""
        return sum(len(session.events) for session in self.sessions)

    def items(self) -> Iterator[Item]:
        """Yield everything again."""
        yield from self.items_beside
        for session in self.sessions:
            yield SessionHead(session_id=session.session_id, user_id=session.user_id, line=1)
            for event in session.events:
                yield Turn(session_id=session.session_id, event=event, line=1)


def read(
    path: Path, *, user: str | None = None, day_first: bool | None = None, file_format: str | None = None
) -> ConversationFile:
    """Read a file in any of the formats; the options are those of `reader.read`.

    Args:
        user: the user of all sessions, whatever the file says.

    Raises:
        FileFormatError: it can't be read, is in an unknown format, has a record that can't be read, or no conversation.
    """
    reading = reader.read(path, day_first=day_first, file_format=file_format)
    if reading.source.size_bytes > FILE_BYTES_MAX:
        raise FileFormatError(
            f"{path} is over {FILE_BYTES_MAX >> 20} MB: use `hippocampus ingest`, which reads it as a stream."
        )
    heads: dict[str, SessionHead] = {}
    events: dict[str, list[Event]] = {}
    queries = []
    beside: list[Given | LeftOut] = []
    for item in reading.items:
        match item:
            case Rejected():
                raise FileFormatError(f"{path}, line {item.line}: {item.error}")
            case SessionHead():
                heads.setdefault(item.session_id, item)
            case Turn():
                events.setdefault(item.session_id, []).append(item.event)
            case Given() | LeftOut():
                beside.append(item)
            case Question():
                queries.append(item.text)
    sessions = tuple(
        SessionFile(session_id=name, user_id=user or heads[name].user_id or reading.name, events=tuple(turns))
        for name, turns in events.items()
    )
    if not sessions:
        raise FileFormatError(f"{path} ({reading.file_format}) has no conversation: `hippocampus ingest` takes it.")
    return ConversationFile(
        file_format=reading.file_format, sessions=sessions, queries=tuple(queries), items_beside=tuple(beside)
    )
