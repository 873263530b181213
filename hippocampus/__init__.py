"""The Hippocampus: memories, facts and insights extracted from sessions; searched, packed into context, decaying.

Every public name is imported from here, and loaded when it is first used. Two entry points need an extra and are
imported by themselves: `hippocampus.adk` (Google ADK) and `hippocampus.client` (the client of the HTTP API).
"""

# ruff: noqa: I001 - an import under its own name is public for type checkers; one module, one line

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hippocampus.answers import Answer as Answer, AnswerService as AnswerService, Citation as Citation
    from hippocampus.by_hand import Edit as Edit, GivenFact as GivenFact, MemoryEditor as MemoryEditor
    from hippocampus.consolidation_worker import MemoryConsolidationWorker as MemoryConsolidationWorker
    from hippocampus.context.templates import Template as Template
    from hippocampus.context.window import (
        ContextItem as ContextItem,
        ContextWindow as ContextWindow,
        LeftOut as LeftOut,
        SectionAccount as SectionAccount,
        format_items as format_items,
    )
    from hippocampus.context_assembler import ContextAssembler as ContextAssembler
    from hippocampus.engine import AddedMessages as AddedMessages, Hippocampus as Hippocampus
    from hippocampus.erasure.provenance import (
        Consequences as Consequences,
        Derived as Derived,
        Provenance as Provenance,
        SourceEvent as SourceEvent,
    )
    from hippocampus.erasure.service import (
        Erasure as Erasure,
        ErasureService as ErasureService,
        TablePreview as TablePreview,
    )
    from hippocampus.errors import (
        BlockedReplyError as BlockedReplyError,
        CallPostponedError as CallPostponedError,
        ContextBudgetError as ContextBudgetError,
        CorpusAccessError as CorpusAccessError,
        CorpusExistsError as CorpusExistsError,
        CorpusNotFoundError as CorpusNotFoundError,
        DocumentNotFoundError as DocumentNotFoundError,
        DocumentReplacedError as DocumentReplacedError,
        EmbeddingDimensionError as EmbeddingDimensionError,
        ErasureRunningError as ErasureRunningError,
        FactNotFoundError as FactNotFoundError,
        HippocampusError as HippocampusError,
        ImportFileError as ImportFileError,
        InstructionConflictError as InstructionConflictError,
        JobFencedError as JobFencedError,
        JobNotFailedError as JobNotFailedError,
        JobNotFoundError as JobNotFoundError,
        MalformedReplyError as MalformedReplyError,
        MemoryNotFoundError as MemoryNotFoundError,
        PermanentProviderError as PermanentProviderError,
        ProposalNotFoundError as ProposalNotFoundError,
        ProviderError as ProviderError,
        RateLimitedError as RateLimitedError,
        ReplayOvertakenError as ReplayOvertakenError,
        TransientProviderError as TransientProviderError,
        UnknownJobTypeError as UnknownJobTypeError,
        UnreadableDocumentError as UnreadableDocumentError,
        WatermarkMovedError as WatermarkMovedError,
        WebhookNotFoundError as WebhookNotFoundError,
    )
    from hippocampus.facts.ledger import FactLedger as FactLedger, KeyStyle as KeyStyle
    from hippocampus.instructions import InstructionStore as InstructionStore
    from hippocampus.knowledge.answers import (
        KnowledgeAnswer as KnowledgeAnswer,
        KnowledgeCitation as KnowledgeCitation,
    )
    from hippocampus.knowledge.chunking import Chunking as Chunking
    from hippocampus.knowledge.records import (
        AddedDocument as AddedDocument,
        Corpus as Corpus,
        Document as Document,
        DocumentText as DocumentText,
        Ingested as Ingested,
        KnowledgeHit as KnowledgeHit,
        KnowledgeResponse as KnowledgeResponse,
    )
    from hippocampus.knowledge.service import KnowledgeService as KnowledgeService
    from hippocampus.mind.executor import (
        AgentExecutor as AgentExecutor,
        Budget as Budget,
        ExecutionResult as ExecutionResult,
    )
    from hippocampus.providers.tool_calls import (
        ModelStep as ModelStep,
        ModelTurn as ModelTurn,
        ResultTurn as ResultTurn,
        ToolCall as ToolCall,
        ToolModel as ToolModel,
        ToolSpec as ToolSpec,
        Turn as Turn,
        UserTurn as UserTurn,
    )
    from hippocampus.memory_service import AddedSession as AddedSession, OpenMemoryService as OpenMemoryService
    from hippocampus.profile import Profile as Profile, ProfileLine as ProfileLine, read_profile as read_profile
    from hippocampus.providers.anthropic.provider import AnthropicGenerator as AnthropicGenerator
    from hippocampus.providers.http_client import HttpConnection as HttpConnection
    from hippocampus.providers.local.embedding import LocalEmbedder as LocalEmbedder
    from hippocampus.providers.openai.provider import (
        OpenAIEmbedder as OpenAIEmbedder,
        OpenAIGenerator as OpenAIGenerator,
    )
    from hippocampus.providers.protocols import Answerer as Answerer, Embedder as Embedder, Generator as Generator
    from hippocampus.records import (
        ConsolidationJob as ConsolidationJob,
        Fact as Fact,
        FactCandidate as FactCandidate,
        FactMerge as FactMerge,
        FactVersion as FactVersion,
        HistoryPosition as HistoryPosition,
        Instruction as Instruction,
        InstructionProposal as InstructionProposal,
        JobStatus as JobStatus,
        JobType as JobType,
        Memory as Memory,
        MemoryPosition as MemoryPosition,
    )
    from hippocampus.retention.advice import (
        PolicyComparison as PolicyComparison,
        RetentionExplanation as RetentionExplanation,
        Verdict as Verdict,
    )
    from hippocampus.providers.registry import Provider as Provider
    from hippocampus.retention.archive import ArchivedMemory as ArchivedMemory, MemoryArchive as MemoryArchive
    from hippocampus.retention.curves import days_above as days_above, score as score
    from hippocampus.retention.policies import (
        AppPolicy as AppPolicy,
        get_policy as get_policy,
        reset_policy as reset_policy,
        set_policy as set_policy,
    )
    from hippocampus.retention_manager import (
        Batch as Batch,
        Distribution as Distribution,
        MemoryRetentionManager as MemoryRetentionManager,
        MemoryStats as MemoryStats,
        WeakMemory as WeakMemory,
    )
    from hippocampus.rerank import (
        PromptReranker as PromptReranker,
        Reranker as Reranker,
        ScorerReranker as ScorerReranker,
    )
    from hippocampus.search import (
        MatchScores as MatchScores,
        MemorySearch as MemorySearch,
        SearchFilter as SearchFilter,
        SearchMemoryResponse as SearchMemoryResponse,
        SearchMemoryResult as SearchMemoryResult,
        SearchWeights as SearchWeights,
    )
    from hippocampus.transfer.given_memories import GivenMemories as GivenMemories, GivenMemory as GivenMemory
    from hippocampus.transfer.memory_file import (
        Imported as Imported,
        export_memory as export_memory,
        import_memory as import_memory,
    )
    from hippocampus.webhooks.service import (
        NewWebhook as NewWebhook,
        WebhookDelivery as WebhookDelivery,
        WebhookEndpoint as WebhookEndpoint,
        WebhookService as WebhookService,
    )

#: Every public name, and the module that defines it.
_PUBLIC: dict[str, str] = {
    "UnreadableDocumentError": "hippocampus.errors",
    "DocumentReplacedError": "hippocampus.errors",
    "DocumentNotFoundError": "hippocampus.errors",
    "CorpusNotFoundError": "hippocampus.errors",
    "CorpusAccessError": "hippocampus.errors",
    "CorpusExistsError": "hippocampus.errors",
    "KnowledgeService": "hippocampus.knowledge.service",
    "KnowledgeResponse": "hippocampus.knowledge.records",
    "KnowledgeHit": "hippocampus.knowledge.records",
    "KnowledgeCitation": "hippocampus.knowledge.answers",
    "KnowledgeAnswer": "hippocampus.knowledge.answers",
    "Ingested": "hippocampus.knowledge.records",
    "DocumentText": "hippocampus.knowledge.records",
    "Document": "hippocampus.knowledge.records",
    "Corpus": "hippocampus.knowledge.records",
    "Chunking": "hippocampus.knowledge.chunking",
    "AddedDocument": "hippocampus.knowledge.records",
    "AddedMessages": "hippocampus.engine",
    "AddedSession": "hippocampus.memory_service",
    "AgentExecutor": "hippocampus.mind.executor",
    "Budget": "hippocampus.mind.executor",
    "ExecutionResult": "hippocampus.mind.executor",
    "ModelStep": "hippocampus.providers.tool_calls",
    "ModelTurn": "hippocampus.providers.tool_calls",
    "ResultTurn": "hippocampus.providers.tool_calls",
    "ToolCall": "hippocampus.providers.tool_calls",
    "ToolModel": "hippocampus.providers.tool_calls",
    "ToolSpec": "hippocampus.providers.tool_calls",
    "Turn": "hippocampus.providers.tool_calls",
    "UserTurn": "hippocampus.providers.tool_calls",
    "Answer": "hippocampus.answers",
    "AnswerService": "hippocampus.answers",
    "Answerer": "hippocampus.providers.protocols",
    "AnthropicGenerator": "hippocampus.providers.anthropic.provider",
    "AppPolicy": "hippocampus.retention.policies",
    "ArchivedMemory": "hippocampus.retention.archive",
    "Batch": "hippocampus.retention_manager",
    "BlockedReplyError": "hippocampus.errors",
    "CallPostponedError": "hippocampus.errors",
    "Citation": "hippocampus.answers",
    "Consequences": "hippocampus.erasure.provenance",
    "ConsolidationJob": "hippocampus.records",
    "ContextAssembler": "hippocampus.context_assembler",
    "ContextBudgetError": "hippocampus.errors",
    "ContextItem": "hippocampus.context.window",
    "ContextWindow": "hippocampus.context.window",
    "Derived": "hippocampus.erasure.provenance",
    "Distribution": "hippocampus.retention_manager",
    "Edit": "hippocampus.by_hand",
    "Embedder": "hippocampus.providers.protocols",
    "EmbeddingDimensionError": "hippocampus.errors",
    "Erasure": "hippocampus.erasure.service",
    "ErasureRunningError": "hippocampus.errors",
    "ErasureService": "hippocampus.erasure.service",
    "Fact": "hippocampus.records",
    "FactCandidate": "hippocampus.records",
    "FactLedger": "hippocampus.facts.ledger",
    "FactMerge": "hippocampus.records",
    "FactNotFoundError": "hippocampus.errors",
    "FactVersion": "hippocampus.records",
    "Generator": "hippocampus.providers.protocols",
    "GivenFact": "hippocampus.by_hand",
    "GivenMemories": "hippocampus.transfer.given_memories",
    "GivenMemory": "hippocampus.transfer.given_memories",
    "Hippocampus": "hippocampus.engine",
    "HippocampusError": "hippocampus.errors",
    "HistoryPosition": "hippocampus.records",
    "HttpConnection": "hippocampus.providers.http_client",
    "ImportFileError": "hippocampus.errors",
    "Imported": "hippocampus.transfer.memory_file",
    "Instruction": "hippocampus.records",
    "InstructionConflictError": "hippocampus.errors",
    "InstructionProposal": "hippocampus.records",
    "InstructionStore": "hippocampus.instructions",
    "ItemStore": "hippocampus.store.service",
    "JobFencedError": "hippocampus.errors",
    "JobNotFailedError": "hippocampus.errors",
    "JobNotFoundError": "hippocampus.errors",
    "JobStatus": "hippocampus.records",
    "JobType": "hippocampus.records",
    "KeyStyle": "hippocampus.facts.ledger",
    "LeftOut": "hippocampus.context.window",
    "LocalEmbedder": "hippocampus.providers.local.embedding",
    "MalformedReplyError": "hippocampus.errors",
    "MatchScores": "hippocampus.search",
    "Memory": "hippocampus.records",
    "MemoryArchive": "hippocampus.retention.archive",
    "MemoryConsolidationWorker": "hippocampus.consolidation_worker",
    "MemoryEditor": "hippocampus.by_hand",
    "MemoryNotFoundError": "hippocampus.errors",
    "MemoryPosition": "hippocampus.records",
    "MemoryRetentionManager": "hippocampus.retention_manager",
    "MemorySearch": "hippocampus.search",
    "MemoryStats": "hippocampus.retention_manager",
    "NewWebhook": "hippocampus.webhooks.service",
    "OpenAIEmbedder": "hippocampus.providers.openai.provider",
    "OpenAIGenerator": "hippocampus.providers.openai.provider",
    "OpenMemoryService": "hippocampus.memory_service",
    "PermanentProviderError": "hippocampus.errors",
    "PolicyComparison": "hippocampus.retention.advice",
    "Profile": "hippocampus.profile",
    "ProfileLine": "hippocampus.profile",
    "PromptReranker": "hippocampus.rerank",
    "ProposalNotFoundError": "hippocampus.errors",
    "Provenance": "hippocampus.erasure.provenance",
    "Provider": "hippocampus.providers.registry",
    "ProviderError": "hippocampus.errors",
    "RateLimitedError": "hippocampus.errors",
    "ReplayOvertakenError": "hippocampus.errors",
    "Reranker": "hippocampus.rerank",
    "RetentionExplanation": "hippocampus.retention.advice",
    "ScorerReranker": "hippocampus.rerank",
    "SearchFilter": "hippocampus.search",
    "SearchMemoryResponse": "hippocampus.search",
    "SearchMemoryResult": "hippocampus.search",
    "SearchWeights": "hippocampus.search",
    "SectionAccount": "hippocampus.context.window",
    "SourceEvent": "hippocampus.erasure.provenance",
    "StoredItem": "hippocampus.store.service",
    "TablePreview": "hippocampus.erasure.service",
    "Template": "hippocampus.context.templates",
    "TransientProviderError": "hippocampus.errors",
    "UnknownJobTypeError": "hippocampus.errors",
    "Verdict": "hippocampus.retention.advice",
    "WatermarkMovedError": "hippocampus.errors",
    "WeakMemory": "hippocampus.retention_manager",
    "WebhookDelivery": "hippocampus.webhooks.service",
    "WebhookEndpoint": "hippocampus.webhooks.service",
    "WebhookNotFoundError": "hippocampus.errors",
    "WebhookService": "hippocampus.webhooks.service",
    "days_above": "hippocampus.retention.curves",
    "export_memory": "hippocampus.transfer.memory_file",
    "format_items": "hippocampus.context.window",
    "get_policy": "hippocampus.retention.policies",
    "import_memory": "hippocampus.transfer.memory_file",
    "read_profile": "hippocampus.profile",
    "reset_policy": "hippocampus.retention.policies",
    "score": "hippocampus.retention.curves",
    "set_policy": "hippocampus.retention.policies",
    "user_label": "hippocampus.store.service",
}

__all__ = sorted(_PUBLIC)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
