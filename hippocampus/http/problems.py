"""The memory's errors as problems; see `pulse.http.edge.problems`."""

from __future__ import annotations

from hippocampus import errors
from pulse.http.edge.problems import INVALID_REQUEST, NOT_FOUND, Kind, register

UNKNOWN_JOB_TYPE = Kind(
    "unknown-job-type", 422, "There is no such type of job", "Use one of the types that 'detail' lists."
)
JOB_NOT_FOUND = Kind("job-not-found", 404, "There is no such job", "Check the app, the user and the job's id.")
MEMORY_NOT_FOUND = Kind(
    "memory-not-found", 404, "There is no such memory", "Check the app, the user and the id or sequence number."
)
JOB_NOT_FAILED = Kind(
    "job-not-failed", 409, "The job has not failed", "Only a failed job can be retried; enqueue a new one instead."
)
REPLAY_OVERTAKEN = Kind(
    "replay-overtaken", 409, "A session changed during the replay", "Nothing was changed. Send the replay again."
)
INSTRUCTION_CONFLICT = Kind(
    "instruction-conflict", 409, "The instruction has changed", "Read it again, redo the change, and send it again."
)
CONTEXT_BUDGET = Kind(
    "context-budget", 422, "The system prompt is over the budget", "Raise max_tokens, or shorten the system prompt."
)
MODEL_UNAVAILABLE = Kind(
    "model-unavailable", 503, "The model is unavailable", "Try again later, or search by text only."
)
MODEL_REFUSED = Kind(
    "model-refused",
    502,
    "The model refused the call",
    "Give 'request_id' to the operator of this API; see its settings.",
)
CORPUS_ACCESS = Kind(
    "corpus-access", 403, "The corpus may only be read", "Have its owner name the caller among its writers."
)
CORPUS_EXISTS = Kind(
    "corpus-exists",
    409,
    "There is a corpus of this name",
    "Choose another name, or change the corpus without If-None-Match.",
)
UNREADABLE_DOCUMENT = Kind(
    "unreadable-document", 422, "The document cannot be read", "'detail' says why; nothing was stored."
)
LIBRARY_MISSING = Kind(
    "library-missing", 501, "A library is not installed", "Have the operator install the extra that 'detail' names."
)

register(
    (
        UNKNOWN_JOB_TYPE,
        JOB_NOT_FOUND,
        MEMORY_NOT_FOUND,
        JOB_NOT_FAILED,
        REPLAY_OVERTAKEN,
        INSTRUCTION_CONFLICT,
        CONTEXT_BUDGET,
        MODEL_UNAVAILABLE,
        MODEL_REFUSED,
        CORPUS_ACCESS,
        CORPUS_EXISTS,
        UNREADABLE_DOCUMENT,
        LIBRARY_MISSING,
    ),
    {
        errors.UnknownJobTypeError: UNKNOWN_JOB_TYPE,
        errors.JobNotFoundError: JOB_NOT_FOUND,
        errors.MemoryNotFoundError: MEMORY_NOT_FOUND,
        errors.JobNotFailedError: JOB_NOT_FAILED,
        errors.FactNotFoundError: NOT_FOUND,
        errors.ProposalNotFoundError: NOT_FOUND,
        errors.WebhookNotFoundError: NOT_FOUND,
        errors.CorpusNotFoundError: NOT_FOUND,
        errors.DocumentNotFoundError: NOT_FOUND,
        errors.CorpusAccessError: CORPUS_ACCESS,
        errors.CorpusExistsError: CORPUS_EXISTS,
        errors.UnreadableDocumentError: UNREADABLE_DOCUMENT,
        errors.MissingLibraryError: LIBRARY_MISSING,
        errors.InstructionConflictError: INSTRUCTION_CONFLICT,
        errors.ReplayOvertakenError: REPLAY_OVERTAKEN,
        errors.ContextBudgetError: CONTEXT_BUDGET,
        errors.EmbeddingDimensionError: INVALID_REQUEST,
        errors.TransientProviderError: MODEL_UNAVAILABLE,
        errors.ProviderError: MODEL_REFUSED,
    },
)
