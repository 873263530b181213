"""The errors that the session engine raises.

    PulseError
    ├── InvalidInputError          an argument is invalid; fix the one that the message names (also a ValueError)
    │   ├── ArtifactTooLargeError  the file is over the policy's limit; raise it, or store the file elsewhere
    │   ├── SecretRefusedError     the text holds a secret, and the app's policy refuses secrets; remove it
    │   ├── EventTooLargeError     the event is over the policy's limit; store the payload elsewhere, append a reference
    │   ├── StreamTooLongError     an open message is over the carrier's limit; end it and start another
    │   └── StateTooLargeError     the merged state would be over the policy's limit; remove keys or split it
    ├── SessionNotFoundError       no such session for this app and user (also a LookupError)
    ├── SessionExistsError         create_session with an id that is taken
    ├── ConcurrencyConflictError   the session changed since it was read; read it again, recompute, append again
    ├── RedactionChangedError      the app's policy on secrets changed during the call; call again
    ├── StreamLostError            an open message's text so far is lost to its watchers; append the whole message
    ├── EventConflictError         the event id is taken by an event with other content; use a new id
    ├── RunNotFoundError           no such run for this app and user (also a LookupError)
    ├── ApiKeyNotFoundError        no key with this id (also a LookupError)
    ├── ToolNotFoundError          no tool of this name in the app (also a LookupError)
    ├── HistoryChangedError        the client's conversation is not the session's; reload it, or start another thread
    ├── InterruptOpenError         the last run waits for answers; send them with the next one
    ├── RunActiveError             another run of the session is active; wait for its end or cancel it, then start again
    ├── RunConflictError           the run id is taken by another session; use a new id
    ├── RunEndedError              the run has ended, perhaps by another process; stop working on it
    ├── RunPrunedError             the run's events were deleted; there is nothing to stream
    ├── StreamsClosedError         this process is stopping; reconnect with the id of the last frame
    ├── RunFencedError             another process owns the run; stop working on it
    ├── AppMovingError             the app is being moved to another cell; retry in a moment
    ├── WrongCellError             the app is served by another cell; the message names it
    ├── DatabaseUnreachableError   no server, no such database, wrong password (also a ConnectionError)
    └── SchemaError                the schema is missing, older or newer; the message names the command to run

The database raises SQLSTATEs of class ``HP``; `BY_SQLSTATE` maps each to one class. No message is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping


class PulseError(Exception):
    """Base of every error of the session engine."""


class InvalidInputError(PulseError, ValueError):
    """An argument is invalid. Nothing was changed. Fix what the message names and call again."""


class EventTooLargeError(InvalidInputError):
    """The event's content and actions are over ``max_event_bytes``. Nothing was changed."""


class SecretRefusedError(InvalidInputError):
    """The text holds a secret, and the app's policy refuses secrets. Nothing was stored. Remove it and call again."""


class ArtifactTooLargeError(InvalidInputError):
    """The file is over ``max_artifact_bytes`` of the app's policy. Nothing was stored."""


class StateTooLargeError(InvalidInputError):
    """The state after the delta would be over ``max_state_bytes``. Nothing was changed."""


class StreamTooLongError(InvalidInputError):
    """An open message would be over its carrier's limit. End it and start another."""


class SessionNotFoundError(PulseError, LookupError):
    """There is no such session for this app and this user. Create it first, or check the three names."""


class SessionExistsError(PulseError):
    """A session with this id exists already for this app and user. Get it, or choose another id."""


class ConcurrencyConflictError(PulseError):
    """Another writer appended first. Read the session again, recompute the change, append again."""


class EventConflictError(PulseError):
    """The event id belongs to a stored event with other content. Use a new id."""


class RedactionChangedError(PulseError):
    """The app's policy on secrets is another than the caller applied. Nothing was stored. Call again."""


class StreamLostError(PulseError):
    """The text so far of an open message is lost to its watchers. Append the message when it is complete."""


class RunNotFoundError(PulseError, LookupError):
    """There is no such run for this app and this user, or its session was deleted. Start it first."""


class RunConflictError(PulseError):
    """The run id belongs to another session of the app. Use a new id."""


class RunActiveError(PulseError):
    """Another run of the session is active. Wait for its end, or cancel it, then start again. Nothing was started."""


class ApiKeyNotFoundError(PulseError, LookupError):
    """There is no key with this id. List the keys to find it."""


class ToolNotFoundError(PulseError, LookupError):
    """The app has no tool of this name. List the tools to find it."""


class HistoryChangedError(PulseError):
    """The client changed a stored message, or left out later ones. Nothing was changed.

    Reload the conversation and send a new message; or send the conversation under a new thread id, as a branch.
    """


class InterruptOpenError(PulseError):
    """The session's last run ended with interrupts. Answer each with the next run. Nothing was changed."""


class RunEndedError(PulseError):
    """The run was ended, by its owner or because its lease expired. Stop working on it. Nothing was changed."""


class RunFencedError(PulseError):
    """Another process executes the run. Stop working on it. Nothing was changed."""


class RunPrunedError(PulseError):
    """The events of the run were deleted. Read the conversation instead."""


class StreamsClosedError(PulseError):
    """This process is stopping. Reconnect with the id of the last frame that you received."""


class DatabaseUnreachableError(PulseError, ConnectionError):
    """PostgreSQL could not be reached. Check that it runs, and check DATABASE_URL; then retry."""


class PoolerError(PulseError):
    """A connection that needs a session of its own leads through a pooler in transaction mode. The message says what
    to set."""


class AppMovingError(PulseError):
    """The app is being moved to another cell. Nothing was changed. Retry in a moment: the other cell then serves it."""


class WrongCellError(PulseError):
    """The app is served by another cell. Nothing was changed. The message names the cell: call that one."""


class SchemaError(PulseError):
    """The database's schema is missing, older or newer than this program. The message names the command."""


#: The error class of each SQLSTATE that the session engine's SQL functions raise.
BY_SQLSTATE: Mapping[str, type[PulseError]] = {
    "HP001": SessionNotFoundError,
    "HP002": ConcurrencyConflictError,
    "HP003": EventConflictError,
    "HP004": StateTooLargeError,
    "HP005": EventTooLargeError,
    "HP006": SessionExistsError,
    "HP007": InvalidInputError,
    "HP038": ArtifactTooLargeError,
    "HP020": RunNotFoundError,
    "HP021": RunConflictError,
    "HP022": RunEndedError,
    "HP023": RunFencedError,
    "HP030": StreamLostError,
    "HP031": StreamTooLongError,
    "HP060": RunActiveError,
    "HP096": RedactionChangedError,
    "HP091": AppMovingError,
    "HP092": WrongCellError,
}
