"""The errors of the memory. The session engine has its own (`pulse.errors`).

HippocampusError
├── UnknownJobTypeError        no such job type; the message lists the types (also a ValueError)
├── JobFencedError             the job was given to another worker, which will do it; discard the result
├── JobNotFoundError           no such job (also a LookupError)
├── MemoryNotFoundError        no such memory, fact, event or erasure of this app and user (also a LookupError)
├── ErasureRunningError        the user is being erased; import when that has ended
├── ImportFileError            lines of a file cannot be imported; `lines` says which and why, nothing was changed
├── JobNotFailedError          only a failed job can be run again; enqueue a new one
├── FactNotFoundError          no such candidate or merge of this app and user (also a LookupError)
├── ProposalNotFoundError      no such undecided proposal of this app (also a LookupError)
├── ReplayOvertakenError       the session changed during the replay; nothing was changed, replay again
├── CorpusNotFoundError        no such corpus for this caller (also a LookupError)
├── DocumentNotFoundError      no such document in the corpus (also a LookupError)
├── CorpusAccessError          the caller may read the corpus, and not change it
├── CorpusExistsError          the owner has a corpus of this name; nothing was changed
├── DocumentReplacedError      the document was replaced or removed while it was ingested; nothing to do
├── UnreadableDocumentError    a document cannot be read; the message says why (also a ValueError)
├── InstructionConflictError   the instruction was changed since it was read; read it again, redo the change
├── WatermarkMovedError        another job consolidated this slice; nothing was written, run again
├── ContextBudgetError         the system prompt alone is over the window's budget; shorten it or raise max_tokens
├── EmbeddingDimensionError    a vector has the wrong number of dimensions (also a ValueError)
├── MissingLibraryError        a provider needs a library that is not installed; the message names the extra
└── ProviderError              a model could not answer
    ├── TransientProviderError     transport: try again later (5xx, timeout, connection, truncated body)
    │   └── RateLimitedError       429: try again after `retry_after_seconds`; `daily`: the day's quota is used up
    │       └── CallPostponedError     the local gate holds the call back: shared limit, or the provider is down
    └── PermanentProviderError     the same call will fail again (bad key, unknown model, bad request)
        ├── BlockedReplyError      the provider refused the content
        └── MalformedReplyError    the reply violates the schema, even after one repair attempt; `raw_reply` holds it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulse import errors as pulse_errors


class HippocampusError(Exception):
    """Base of every error of the memory."""


class UnknownJobTypeError(HippocampusError, ValueError):
    """No worker runs jobs of this type."""


class JobFencedError(HippocampusError):
    """Another worker runs the job. The result of this attempt must be discarded."""


class WatermarkMovedError(HippocampusError):
    """The thread's watermark is not where it was when the slice was read. Nothing was written."""


class WebhookNotFoundError(HippocampusError):
    """The app has no such webhook endpoint, or no such event."""


class CorpusNotFoundError(HippocampusError, LookupError):
    """The app has no such corpus, or none that the caller may read."""


class DocumentNotFoundError(HippocampusError, LookupError):
    """There is no such document in the corpora that the caller may read."""


class CorpusAccessError(HippocampusError):
    """The caller may read the corpus, and not change it. Nothing was changed."""


class CorpusExistsError(HippocampusError):
    """The corpus was to be created, and its owner has one of this name. Nothing was changed."""


class DocumentReplacedError(HippocampusError):
    """The version that was ingested is not the document's last one any more, or the document is gone."""


class UnreadableDocumentError(HippocampusError, ValueError):
    """A document cannot be read. Nothing was stored.

    Attributes:
        code: ``encrypted``, ``empty``, ``broken``, ``too_large``, ``timeout``, ``unsupported``.
    """

    def __init__(self, message: str, *, code: str = "broken") -> None:
        super().__init__(message)
        self.code = code


class JobNotFoundError(HippocampusError, LookupError):
    """There is no such job, or it belongs to another app."""


class MemoryNotFoundError(HippocampusError, LookupError):
    """There is no such memory, fact, event or erasure, or it belongs to another app or user."""


class ErasureRunningError(HippocampusError):
    """The user is being erased. Nothing was imported."""


class ImportFileError(HippocampusError, ValueError):
    """A file of memories cannot be imported. Nothing was changed.

    Attributes:
        lines: the number of each bad line, from 1, and what is wrong with it; at most 20.
    """

    def __init__(self, message: str, lines: Sequence[tuple[int, str]] = ()) -> None:
        shown = "".join(f"\n  line {number}: {what}" for number, what in lines)
        super().__init__(message + shown)
        self.lines = tuple(lines)


class JobNotFailedError(HippocampusError):
    """The job is pending, running or completed. Only a failed job can be run again."""


class FactNotFoundError(HippocampusError, LookupError):
    """There is no such candidate or merge, it belongs to another app or user, or it is decided already."""


class ProposalNotFoundError(HippocampusError, LookupError):
    """There is no such proposal, it belongs to another app, or it is decided already. Nothing was changed."""


class ReplayOvertakenError(HippocampusError):
    """What was extracted does not match what is stored now. Nothing was changed. Replay again."""


class InstructionConflictError(HippocampusError):
    """The instruction is not at the version that the change was made for. Nothing was changed."""


class EmbeddingDimensionError(HippocampusError, ValueError):
    """A vector has more dimensions than can be stored, or others than the stored vectors of its model."""


class ContextBudgetError(HippocampusError, ValueError):
    """The required parts of a context window exceed its budget. Shorten the system prompt, or raise max_tokens."""


class MissingLibraryError(HippocampusError, ValueError):
    """A provider needs a library that is not installed. The message says how to install it."""


class ProviderError(HippocampusError):
    """A model could not answer.

    Attributes:
        code: the HTTP status as text, or a word of the provider (``timeout``, ``connection``), for metrics.
        raw_reply: the reply of the provider, kept as evidence; None if there was none.
    """

    def __init__(self, message: str, *, code: str = "error", raw_reply: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.raw_reply = raw_reply


class TransientProviderError(ProviderError):
    """A fault of transport: the same call may succeed later.

    Attributes:
        retry_after_seconds: the wait that the provider requested; None if it requested none.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "error",
        raw_reply: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, code=code, raw_reply=raw_reply)
        self.retry_after_seconds = retry_after_seconds


class RateLimitedError(TransientProviderError):
    """The provider's quota is used up (429).

    Attributes:
        daily: the day's quota is used up: wait for hours, not for seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        raw_reply: str | None = None,
        retry_after_seconds: float | None = None,
        daily: bool = False,
    ) -> None:
        super().__init__(message, code="429", raw_reply=raw_reply, retry_after_seconds=retry_after_seconds)
        self.daily = daily


class CallPostponedError(RateLimitedError):
    """The local gate holds calls back: the shared limit is reached, or the provider is down.

    The job is not at fault: run it again after `retry_after_seconds`, without counting the attempt.

    Attributes:
        was_sent: the call was made and failed like others before it, so that the provider counts as down.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        retry_after_seconds: float,
        was_sent: bool = False,
        raw_reply: str | None = None,
    ) -> None:
        super().__init__(message, raw_reply=raw_reply, retry_after_seconds=retry_after_seconds)
        self.code = code
        self.was_sent = was_sent


class PermanentProviderError(ProviderError):
    """The same call will fail again."""


class BlockedReplyError(PermanentProviderError):
    """The provider refused to answer this content."""


class MalformedReplyError(PermanentProviderError):
    """The reply violates the schema, even after one repair attempt. `raw_reply` holds the whole last reply."""


#: The error class of each SQLSTATE that the SQL functions of the memory or of the session engine raise.
BY_SQLSTATE: Mapping[str, type[Exception]] = {
    **pulse_errors.BY_SQLSTATE,
    "HP010": JobFencedError,
    "HP011": WatermarkMovedError,
    "HP012": UnknownJobTypeError,
    "HP014": JobNotFoundError,
    "HP015": JobNotFailedError,
    "HP016": InstructionConflictError,
    "HP041": FactNotFoundError,
    "HP042": ProposalNotFoundError,
    "HP043": ReplayOvertakenError,
    "HP046": MemoryNotFoundError,
    "HP047": ErasureRunningError,
    "HP048": ImportFileError,
    "HP049": EmbeddingDimensionError,
    "HP070": WebhookNotFoundError,
    "HP100": CorpusNotFoundError,
    "HP101": DocumentNotFoundError,
    "HP102": CorpusAccessError,
    "HP103": DocumentReplacedError,
    "HP104": CorpusExistsError,
}
