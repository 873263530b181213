"""Transcripts of the Claude Agent SDK on Hippocampus. Needs the extra ``[claude-agent-sdk]``."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from hippocampus.erasure.service import EVENTS_MAX
from hippocampus.errors import BY_SQLSTATE
from hippocampus.integrations.extras import missing_library
from hippocampus.integrations.session_events import RECORD, record_event, session_key
from pulse.errors import ConcurrencyConflictError, InvalidInputError, SessionExistsError, SessionNotFoundError
from pulse.event_rows import check_event_id
from pulse.events import Event
from pulse.postgres.backoff import Backoff
from pulse.postgres.json_values import DELETED, decode_body, unescape
from pulse.postgres.statements import Statements
from pulse.session_service import BATCH_SIZE_MAX

try:
    from claude_agent_sdk import fold_session_summary
except ModuleNotFoundError as error:
    raise missing_library("claude-agent-sdk", error) from error

if TYPE_CHECKING:
    import claude_agent_sdk as sdk

    from hippocampus.engine import Hippocampus
    from pulse.session_key import SessionKey

__all__ = ["HippocampusSessionStore"]

#: The type of the events of entries that no participant said.
_ENTRY = "claude_entry"
#: The keys of the session's state that hold the SDK's summary of the transcript begin with this, one for each field.
_SUMMARY = "claude_agent_sdk:"
_ATTEMPTS_MAX = 50
_RETRY_SECONDS = 0.005
_RETRY_SECONDS_MAX = 0.5
#: What the command line writes as a user's message, and no user said: commands, their output, reminders, interruptions.
_NOT_SAID = re.compile(
    r"\s*(?:<(?:command-|local-command-|bash-|system-reminder|session-start-hook|ide_|task-notification|tick>|goal>)"
    r"|\[Request interrupted by user)"
)
_STATEMENTS = Statements("hippocampus.integrations", "claude_agent_sdk.sql", errors=BY_SQLSTATE)


class HippocampusSessionStore:
    """A `SessionStore` of the Claude Agent SDK: the transcripts of one user::

        async with Hippocampus(url, app="assistant") as memory:
            options = ClaudeAgentOptions(session_store=HippocampusSessionStore(memory, "ann"))
            async for message in query(prompt="I'm allergic to peanuts.", options=options): ...

    A transcript is the session ``claude/PROJECT/SESSION`` of the user, with the transcripts of its subagents. Entries
    come back as they were appended, each ``uuid`` once. What the user and Claude said in the main transcript are turns:
    found by the next search, and consolidated by workers.

    Raises, from every method:
        InvalidInputError: a key is out of its bounds, or an entry is not JSON; nothing was changed.
    """

    def __init__(self, memory: Hippocampus, user: str) -> None:
        """Read and write nothing yet.

        Args:
            memory: opened in the event loop that all calls come from.
            user: the sessions belong to this user of the memory's app.
        """
        self._memory = memory
        self._user = user
        session_key(memory.app, user, "any")

    async def append(self, key: sdk.SessionKey, entries: list[sdk.SessionStoreEntry]) -> None:
        """Append the entries that are not stored yet, a thousand in one transaction, and update the summary.

        Raises:
            ConcurrencyConflictError: other writers appended first each time.
            EventTooLargeError: an entry is over the app's limit.
        """
        subpath = _subpath(key)
        fresh: dict[str, sdk.SessionStoreEntry] = {}
        for entry in entries:
            fresh.setdefault(_event_id(entry, subpath), entry)
        items = list(fresh.items())
        for start in range(0, len(items), BATCH_SIZE_MAX):
            await self._append(key, subpath, dict(items[start : start + BATCH_SIZE_MAX]))

    async def load(self, key: sdk.SessionKey) -> list[sdk.SessionStoreEntry] | None:
        """Return the entries of a transcript in order; None if there are none."""
        names = (*self._session(key), _subpath(key), _ENTRY)
        rows = await _STATEMENTS.fetch(self._memory.pool, "load", *names)
        return [decode_body(row["actions"])[RECORD] for row in rows] or None

    async def list_sessions(self, project_key: str) -> list[sdk.SessionStoreListEntry]:
        """Return the main transcripts of a project, with the time of their last append in milliseconds."""
        return [{"session_id": each["session_id"], "mtime": each["mtime"]} for each in await self._listed(project_key)]

    async def list_session_summaries(self, project_key: str) -> list[sdk.SessionSummaryEntry]:
        """Return the SDK's summaries of a project's transcripts."""
        return await self._listed(project_key)

    async def delete(self, key: sdk.SessionKey) -> None:
        """Erase a transcript, the main one with its subagents', and everything that was extracted from it.

        Entries of a subagent that were erased are not stored again.
        """
        session, subpath = self._session(key), _subpath(key)
        try:
            if not subpath:
                await self._memory.erasure.erase_session(*session)
                return
            names = (*session, subpath, _ENTRY, EVENTS_MAX)
            while rows := await _STATEMENTS.fetch(self._memory.pool, "entries_of_subpath", *names):
                numbers = [row["sequence_num"] for row in rows]
                await self._memory.erasure.erase_events(*session, sequence_nums=numbers)
        except SessionNotFoundError:
            return

    async def list_subkeys(self, key: sdk.SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session."""
        rows = await _STATEMENTS.fetch(self._memory.pool, "list_subpaths", *self._session(key), _ENTRY)
        return [row["subpath"] for row in rows]

    async def _append(self, key: sdk.SessionKey, subpath: str, entries: dict[str, sdk.SessionStoreEntry]) -> None:
        """Append a batch by event id. The summary is folded and stored at one version of the session."""
        session = self._session(key)
        backoff = Backoff(_RETRY_SECONDS, _RETRY_SECONDS_MAX)
        for _ in range(_ATTEMPTS_MAX):
            row = await _STATEMENTS.fetchrow(self._memory.pool, "read_known", *session, list(entries))
            if row is None:
                with contextlib.suppress(SessionExistsError):
                    await self._memory.sessions.create_session(*session[:2], session_id=session.session_id)
                continue
            known = frozenset(row["known"])
            fresh = {event_id: entry for event_id, entry in entries.items() if event_id not in known}
            if not fresh:
                return
            deltas = [{}] * len(fresh) if subpath else _deltas(key, _summary(row["summary"]), list(fresh.values()))
            events = [
                _event(event_id, entry, subpath, delta)
                for (event_id, entry), delta in zip(fresh.items(), deltas, strict=True)
            ]
            try:
                await self._memory.sessions.append(*session, events, expected_version=row["version"])
            except (ConcurrencyConflictError, SessionNotFoundError):
                await backoff.wait()
            else:
                return
        raise ConcurrencyConflictError(
            f"session {session.session_id!r}: lost the race to other writers {_ATTEMPTS_MAX} times in a row;"
            " retry later"
        )

    async def _listed(self, project_key: str) -> list[sdk.SessionSummaryEntry]:
        start = f"claude/{quote(project_key, safe='')}/"
        names = (self._memory.app, self._user, start, _ENTRY)
        rows = await _STATEMENTS.fetch(self._memory.pool, "list_sessions", *names)
        return [
            {
                "session_id": unquote(row["session_id"].removeprefix(start)),
                "mtime": row["mtime"],
                "data": _summary(row["summary"]),
            }
            for row in rows
        ]

    def _session(self, key: Mapping[str, Any]) -> SessionKey:
        project, session = (quote(key[name], safe="") for name in ("project_key", "session_id"))
        if not project or not session:
            raise InvalidInputError("a key needs a project_key and a session_id that are not empty")
        return session_key(self._memory.app, self._user, f"claude/{project}/{session}")


def _subpath(key: Mapping[str, Any]) -> str:
    subpath: str = key.get("subpath", "")
    if subpath:
        check_event_id(subpath)
    return subpath


def _event_id(entry: Mapping[str, Any], subpath: str) -> str:
    own = entry.get("uuid")
    if not isinstance(own, str) or not own:
        return str(uuid.uuid4())
    return check_event_id(f"{subpath}#{own}" if subpath else own)


def _event(event_id: str, entry: Mapping[str, Any], subpath: str, delta: Mapping[str, Any]) -> Event:
    said_by, text = ("", "") if subpath else _said(entry)
    return record_event(
        dict(entry),
        _ENTRY,
        said_by=said_by or None,
        text=text,
        state_delta=delta,
        id=event_id,
        invocation_id=subpath,
        timestamp=_time(entry.get("timestamp")),
    )


def _said(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return who said an entry's words, and the words; blank if no participant did."""
    role, message = entry.get("type"), entry.get("message")
    marks = ("isMeta", "isCompactSummary", "isSidechain", "isApiErrorMessage", "isVisibleInTranscriptOnly")
    if role not in ("user", "assistant") or not isinstance(message, Mapping) or any(entry.get(mark) for mark in marks):
        return "", ""
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = (
        block.get("text")
        for block in (blocks if isinstance(blocks, list) else ())
        if isinstance(block, Mapping) and block.get("type") == "text"
    )
    said = [text for text in texts if isinstance(text, str) and not (role == "user" and _NOT_SAID.match(text))]
    return role, "\n".join(said)


def _time(timestamp: Any) -> float | None:
    try:
        moment = datetime.fromisoformat(timestamp)
    except (TypeError, ValueError):
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def _summary(stored: Any) -> dict[str, Any]:
    """Return the SDK's data of a transcript from the session's state."""
    state = unescape(stored) or {}
    return {key.removeprefix(_SUMMARY): value for key, value in state.items() if value is not DELETED}


def _deltas(key: sdk.SessionKey, data: dict[str, Any], entries: list[sdk.SessionStoreEntry]) -> list[dict[str, Any]]:
    """Return the fields of the summary that each entry changes.

    They are stored with the entry: if it is erased, the summary does not quote it any more.
    """
    deltas = []
    for entry in entries:
        previous: sdk.SessionSummaryEntry = {"session_id": key["session_id"], "mtime": 0, "data": data}
        folded = fold_session_summary(previous, key, [entry])["data"]
        changed = {name: value for name, value in folded.items() if name not in data or data[name] != value}
        gone = dict.fromkeys(data.keys() - folded.keys(), DELETED)
        deltas.append({f"{_SUMMARY}{name}": value for name, value in {**changed, **gone}.items()})
        data = folded
    return deltas
