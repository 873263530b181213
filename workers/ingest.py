"""Appending a conversation file to sessions, in bounded batches. Doing it again changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pulse.errors import SessionExistsError
from pulse.events import Event
from pulse.session_service import OpenSessionService
from workers.conversations import ConversationFile, SessionFile

BATCH_EVENTS_MAX = 200
BATCH_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What became of a file."""

    sessions: int
    events_new: int
    events_known: int  # stored by an earlier run
    jobs_enqueued: int  # by finalising


async def ingest(
    service: OpenSessionService,
    file: ConversationFile,
    *,
    app_name: str,
    user_id: str | None = None,
    finalize: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Ingested:
    """Append every session of a file, each event once.

    Args:
        user_id: whose sessions they become; None: whom the file names.
        finalize: end each session, so that everything in it is consolidated at once.
        on_progress: called with the number of events of each batch.

    Raises:
        PulseError: an event was refused; what was appended before it stays, and a later run goes on from there.
    """
    new = jobs = 0
    for session in file.sessions:
        user = user_id or session.user_id
        await _ensure_session(service, app_name, user, session, file.file_format)
        for batch in batches(session.events):
            outcome = await service.append(app_name, user, session.session_id, batch)
            new += len(outcome.new_events)
            if on_progress is not None:
                on_progress(len(batch))
        if finalize:
            jobs += len(await service.finalize_session(app_name, user, session.session_id))
    known = file.event_count - new
    return Ingested(sessions=len(file.sessions), events_new=new, events_known=known, jobs_enqueued=jobs)


async def _ensure_session(
    service: OpenSessionService, app_name: str, user_id: str, session: SessionFile, file_format: str
) -> None:
    metadata = {"ingested_from": file_format}
    try:
        await service.create_session(app_name, user_id, session_id=session.session_id, metadata=metadata)
    except SessionExistsError:
        return


def batches(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Cut events into batches that stay within both bounds; an event over the bytes is a batch of its own."""
    batch: list[Event] = []
    size_bytes = 0
    for event in events:
        event_bytes = len(json.dumps(event.content))
        if batch and (len(batch) == BATCH_EVENTS_MAX or size_bytes + event_bytes > BATCH_BYTES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append(event)
        size_bytes += event_bytes
    if batch:
        yield batch
