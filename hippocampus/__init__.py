"""The Hippocampus: memories, facts and insights extracted from sessions; searched, packed into context, decaying.

Every public name is imported from here, and loaded when it is first used. Two entry points need an extra and are
imported by themselves: `hippocampus.adk` (Google ADK) and `hippocampus.client` (the client of the HTTP API).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hippocampus.answers import Answer, AnswerService, Citation
    from hippocampus.by_hand import Edit, GivenFact, MemoryEditor
    from hippocampus.consolidation.replay import MemoryReplay
    from hippocampus.consolidation_worker import MemoryConsolidationWorker
    from hippocampus.context.templates import Template
    from hippocampus.context.window import ContextItem, ContextWindow, LeftOut, SectionAccount, format_items
    from hippocampus.context_assembler import ContextAssembler
    from hippocampus.engine import AddedMessages, Hippocampus
    from hippocampus.erasure.provenance import Consequences, Derived, Provenance, SourceEvent
    from hippocampus.erasure.service import Erasure, ErasureService, TablePreview
    from hippocampus.errors import (
        BlockedReplyError,
        CallPostponedError,
        ContextBudgetError,
        CorpusAccessError,
        CorpusExistsError,
        CorpusNotFoundError,
        DocumentNotFoundError,
        DocumentReplacedError,
        EmbeddingDimensionError,
        ErasureRunningError,
        FactNotFoundError,
        HippocampusError,
        ImportFileError,
        InstructionConflictError,
        JobFencedError,
        JobNotFailedError,
        JobNotFoundError,
        MalformedReplyError,
        MemoryNotFoundError,
        PermanentProviderError,
        ProposalNotFoundError,
        ProviderError,
        RateLimitedError,
        ReplayOvertakenError,
        TransientProviderError,
        UnknownJobTypeError,
        UnreadableDocumentError,
        WatermarkMovedError,
        WebhookNotFoundError,
    )
    from hippocampus.facts.ledger import FactLedger, KeyStyle
    from hippocampus.instructions import InstructionStore
    from hippocampus.knowledge.answers import KnowledgeAnswer, KnowledgeCitation
    from hippocampus.knowledge.chunking import Chunking
    from hippocampus.knowledge.records import (
        AddedDocument,
        Corpus,
        Document,
        DocumentText,
        Ingested,
        KnowledgeHit,
        KnowledgeResponse,
    )
    from hippocampus.knowledge.service import KnowledgeService
    from hippocampus.memory_service import AddedSession, OpenMemoryService
    from hippocampus.mind.executor import AgentExecutor, Budget, ExecutionResult
    from hippocampus.profile import Profile, ProfileLine, read_profile
    from hippocampus.providers.anthropic.provider import AnthropicGenerator
    from hippocampus.providers.gemini.client import GeminiConnection
    from hippocampus.providers.gemini.provider import GeminiEmbedder, GeminiGenerator, GeminiTokenCounter
    from hippocampus.providers.generation import StructuredGenerator
    from hippocampus.providers.http_client import HttpConnection
    from hippocampus.providers.local.embedding import LocalEmbedder
    from hippocampus.providers.openai.provider import OpenAIEmbedder, OpenAIGenerator
    from hippocampus.providers.protocols import Answerer, Checkable, Embedder, Generator, ModelReranker, Reranker
    from hippocampus.providers.registry import ModelConfig, Provider
    from hippocampus.providers.tool_calls import (
        ModelStep,
        ModelTurn,
        ResultTurn,
        ToolCall,
        ToolModel,
        ToolSpec,
        Turn,
        UserTurn,
    )
    from hippocampus.providers.vectors import ChunkedEmbedder
    from hippocampus.records import (
        ConsolidationJob,
        ConversationSlice,
        ExtractedFact,
        Fact,
        FactCandidate,
        FactMerge,
        FactVersion,
        HistoryPosition,
        Instruction,
        InstructionProposal,
        JobStatus,
        JobType,
        Memory,
        MemoryPosition,
    )
    from hippocampus.rerank import PromptReranker, ScorerReranker
    from hippocampus.retention.advice import PolicyComparison, RetentionExplanation, Verdict
    from hippocampus.retention.archive import ArchivedMemory, MemoryArchive
    from hippocampus.retention.curves import days_above, score
    from hippocampus.retention.policies import AppPolicy, get_policy, reset_policy, set_policy
    from hippocampus.retention_manager import Batch, Distribution, MemoryRetentionManager, MemoryStats, WeakMemory
    from hippocampus.search import (
        MatchScores,
        MemorySearch,
        SearchFilter,
        SearchMemoryResponse,
        SearchMemoryResult,
        SearchWeights,
        cue_arguments,
    )
    from hippocampus.store.service import ItemStore, StoredItem, user_label
    from hippocampus.transfer.given_memories import GivenMemories, GivenMemory
    from hippocampus.transfer.memory_file import Imported, export_memory, import_memory
    from hippocampus.webhooks.service import NewWebhook, WebhookDelivery, WebhookEndpoint, WebhookService

__all__ = [
    "AddedDocument",
    "AddedMessages",
    "AddedSession",
    "AgentExecutor",
    "Answer",
    "AnswerService",
    "Answerer",
    "AnthropicGenerator",
    "AppPolicy",
    "ArchivedMemory",
    "Batch",
    "BlockedReplyError",
    "Budget",
    "CallPostponedError",
    "Checkable",
    "ChunkedEmbedder",
    "Chunking",
    "Citation",
    "Consequences",
    "ConsolidationJob",
    "ContextAssembler",
    "ContextBudgetError",
    "ContextItem",
    "ContextWindow",
    "ConversationSlice",
    "Corpus",
    "CorpusAccessError",
    "CorpusExistsError",
    "CorpusNotFoundError",
    "Derived",
    "Distribution",
    "Document",
    "DocumentNotFoundError",
    "DocumentReplacedError",
    "DocumentText",
    "Edit",
    "Embedder",
    "EmbeddingDimensionError",
    "Erasure",
    "ErasureRunningError",
    "ErasureService",
    "ExecutionResult",
    "ExtractedFact",
    "Fact",
    "FactCandidate",
    "FactLedger",
    "FactMerge",
    "FactNotFoundError",
    "FactVersion",
    "GeminiConnection",
    "GeminiEmbedder",
    "GeminiGenerator",
    "GeminiTokenCounter",
    "Generator",
    "GivenFact",
    "GivenMemories",
    "GivenMemory",
    "Hippocampus",
    "HippocampusError",
    "HistoryPosition",
    "HttpConnection",
    "ImportFileError",
    "Imported",
    "Ingested",
    "Instruction",
    "InstructionConflictError",
    "InstructionProposal",
    "InstructionStore",
    "ItemStore",
    "JobFencedError",
    "JobNotFailedError",
    "JobNotFoundError",
    "JobStatus",
    "JobType",
    "KeyStyle",
    "KnowledgeAnswer",
    "KnowledgeCitation",
    "KnowledgeHit",
    "KnowledgeResponse",
    "KnowledgeService",
    "LeftOut",
    "LocalEmbedder",
    "MalformedReplyError",
    "MatchScores",
    "Memory",
    "MemoryArchive",
    "MemoryConsolidationWorker",
    "MemoryEditor",
    "MemoryNotFoundError",
    "MemoryPosition",
    "MemoryReplay",
    "MemoryRetentionManager",
    "MemorySearch",
    "MemoryStats",
    "ModelConfig",
    "ModelReranker",
    "ModelStep",
    "ModelTurn",
    "NewWebhook",
    "OpenAIEmbedder",
    "OpenAIGenerator",
    "OpenMemoryService",
    "PermanentProviderError",
    "PolicyComparison",
    "Profile",
    "ProfileLine",
    "PromptReranker",
    "ProposalNotFoundError",
    "Provenance",
    "Provider",
    "ProviderError",
    "RateLimitedError",
    "ReplayOvertakenError",
    "Reranker",
    "ResultTurn",
    "RetentionExplanation",
    "ScorerReranker",
    "SearchFilter",
    "SearchMemoryResponse",
    "SearchMemoryResult",
    "SearchWeights",
    "SectionAccount",
    "SourceEvent",
    "StoredItem",
    "StructuredGenerator",
    "TablePreview",
    "Template",
    "ToolCall",
    "ToolModel",
    "ToolSpec",
    "TransientProviderError",
    "Turn",
    "UnknownJobTypeError",
    "UnreadableDocumentError",
    "UserTurn",
    "Verdict",
    "WatermarkMovedError",
    "WeakMemory",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookNotFoundError",
    "WebhookService",
    "cue_arguments",
    "days_above",
    "export_memory",
    "format_items",
    "get_policy",
    "import_memory",
    "read_profile",
    "reset_policy",
    "score",
    "set_policy",
    "user_label",
]

#: The module of each public name.
_PUBLIC: dict[str, str] = {
    name: module
    for module, names in {
        "hippocampus.answers": "Answer AnswerService Citation",
        "hippocampus.by_hand": "Edit GivenFact MemoryEditor",
        "hippocampus.consolidation.replay": "MemoryReplay",
        "hippocampus.consolidation_worker": "MemoryConsolidationWorker",
        "hippocampus.context.templates": "Template",
        "hippocampus.context.window": "ContextItem ContextWindow LeftOut SectionAccount format_items",
        "hippocampus.context_assembler": "ContextAssembler",
        "hippocampus.engine": "AddedMessages Hippocampus",
        "hippocampus.erasure.provenance": "Consequences Derived Provenance SourceEvent",
        "hippocampus.erasure.service": "Erasure ErasureService TablePreview",
        "hippocampus.errors": (
            "BlockedReplyError CallPostponedError ContextBudgetError CorpusAccessError CorpusExistsError "
            "CorpusNotFoundError DocumentNotFoundError DocumentReplacedError EmbeddingDimensionError "
            "ErasureRunningError FactNotFoundError HippocampusError ImportFileError InstructionConflictError "
            "JobFencedError JobNotFailedError JobNotFoundError MalformedReplyError MemoryNotFoundError "
            "PermanentProviderError ProposalNotFoundError ProviderError RateLimitedError ReplayOvertakenError "
            "TransientProviderError UnknownJobTypeError UnreadableDocumentError WatermarkMovedError "
            "WebhookNotFoundError"
        ),
        "hippocampus.facts.ledger": "FactLedger KeyStyle",
        "hippocampus.instructions": "InstructionStore",
        "hippocampus.knowledge.answers": "KnowledgeAnswer KnowledgeCitation",
        "hippocampus.knowledge.chunking": "Chunking",
        "hippocampus.knowledge.records": (
            "AddedDocument Corpus Document DocumentText Ingested KnowledgeHit KnowledgeResponse"
        ),
        "hippocampus.knowledge.service": "KnowledgeService",
        "hippocampus.memory_service": "AddedSession OpenMemoryService",
        "hippocampus.mind.executor": "AgentExecutor Budget ExecutionResult",
        "hippocampus.profile": "Profile ProfileLine read_profile",
        "hippocampus.providers.anthropic.provider": "AnthropicGenerator",
        "hippocampus.providers.gemini.client": "GeminiConnection",
        "hippocampus.providers.gemini.provider": "GeminiEmbedder GeminiGenerator GeminiTokenCounter",
        "hippocampus.providers.generation": "StructuredGenerator",
        "hippocampus.providers.http_client": "HttpConnection",
        "hippocampus.providers.local.embedding": "LocalEmbedder",
        "hippocampus.providers.openai.provider": "OpenAIEmbedder OpenAIGenerator",
        "hippocampus.providers.protocols": "Answerer Checkable Embedder Generator ModelReranker Reranker",
        "hippocampus.providers.registry": "ModelConfig Provider",
        "hippocampus.providers.tool_calls": "ModelStep ModelTurn ResultTurn ToolCall ToolModel ToolSpec Turn UserTurn",
        "hippocampus.providers.vectors": "ChunkedEmbedder",
        "hippocampus.records": (
            "ConsolidationJob ConversationSlice ExtractedFact Fact FactCandidate FactMerge FactVersion "
            "HistoryPosition Instruction InstructionProposal JobStatus JobType Memory MemoryPosition"
        ),
        "hippocampus.rerank": "PromptReranker ScorerReranker",
        "hippocampus.retention.advice": "PolicyComparison RetentionExplanation Verdict",
        "hippocampus.retention.archive": "ArchivedMemory MemoryArchive",
        "hippocampus.retention.curves": "days_above score",
        "hippocampus.retention.policies": "AppPolicy get_policy reset_policy set_policy",
        "hippocampus.retention_manager": "Batch Distribution MemoryRetentionManager MemoryStats WeakMemory",
        "hippocampus.search": (
            "MatchScores MemorySearch SearchFilter SearchMemoryResponse SearchMemoryResult SearchWeights cue_arguments"
        ),
        "hippocampus.store.service": "ItemStore StoredItem user_label",
        "hippocampus.transfer.given_memories": "GivenMemories GivenMemory",
        "hippocampus.transfer.memory_file": "Imported export_memory import_memory",
        "hippocampus.webhooks.service": "NewWebhook WebhookDelivery WebhookEndpoint WebhookService",
    }.items()
    for name in names.split()
}


if not TYPE_CHECKING:  # a type checker takes the names from the imports above, and reports any other

    def __getattr__(name: str) -> object:
        module = _PUBLIC.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(module), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
