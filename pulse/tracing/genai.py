"""Names of attributes: OpenTelemetry's conventions for generative AI, databases and HTTP, and our own.

They are literals: the package of the conventions marks every ``gen_ai.*`` constant as moved elsewhere.
"""

from __future__ import annotations

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
ERROR_TYPE: Final = "error.type"

#: What users and models said: only where content is asked for.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
CONTENT: Final = frozenset(
    {INPUT_MESSAGES, OUTPUT_MESSAGES, TOOL_ARGUMENTS, TOOL_RESULT, "gen_ai.system_instructions", "exception.message"}
)
#: Google ADK writes prompts, replies and arguments under this prefix.
CONTENT_PREFIX: Final = "gcp.vertex.agent."

#: Whose a span is: columns of the table. Spans below it inherit them.
APP: Final = "hippocampus.app"
USER: Final = "user.id"
SESSION: Final = "session.id"
RUN: Final = "hippocampus.run_id"
OWNERS: Final = (APP, USER, SESSION, RUN)

#: Langfuse reads these besides the conventions.
LANGFUSE_TYPE: Final = "langfuse.observation.type"
