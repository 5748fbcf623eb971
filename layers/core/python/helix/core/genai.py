"""OpenTelemetry attribute names for agents and models: the part of the GenAI semantic conventions that Helix records.

Law: the names match the conventions; tests/unit/test_genai.py compares them with the published package. Attributes that
the conventions lack are named `helix.*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from helix.core.json import dumps
from helix.core.messages import AnyMessage, AssistantMessage, SystemMessage, ToolCallRequest, ToolResultMessage
from helix.core.usage import Usage

OPERATION, PROVIDER = "gen_ai.operation.name", "gen_ai.provider.name"
CHAT, INVOKE_AGENT, EXECUTE_TOOL = "chat", "invoke_agent", "execute_tool"
AGENT_NAME, CONVERSATION = "gen_ai.agent.name", "gen_ai.conversation.id"
REQUEST_MODEL, RESPONSE_MODEL = "gen_ai.request.model", "gen_ai.response.model"
MAX_TOKENS, TEMPERATURE = "gen_ai.request.max_tokens", "gen_ai.request.temperature"
FINISH_REASONS, FIRST_CHUNK = "gen_ai.response.finish_reasons", "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHE_READ, REASONING = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.reasoning.output_tokens"
CACHE_WRITE = "gen_ai.usage.cache_creation.input_tokens"
TOOL_NAME, TOOL_CALL, TOOL_TYPE = "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"
ERROR_TYPE = "error.type"

SESSION, RUN, STEP, ATTEMPT = "helix.session.id", "helix.run.id", "helix.step", "helix.attempt"
COST, RETRY = "helix.cost_usd", "helix.retry"

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "bedrock_converse": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The conventions' names of providers that litellm names differently."""
_FAMILIES = {
    ("gpt-", "chatgpt-", "o1", "o3", "o4"): "openai",
    ("claude-",): "anthropic",
    ("gemini-",): "gcp.gemini",
    ("command-",): "cohere",
}
"""The providers of model names without a provider prefix, by the start of the name."""


def provider_of(model: str) -> str:
    """Return the provider of a litellm model id, or `helix` for models without a provider, such as scripted models."""
    name, slash, _ = model.partition("/")
    if slash:
        return _PROVIDERS.get(name, name)
    return next((provider for heads, provider in _FAMILIES.items() if model.startswith(heads)), "helix")


def usage_attributes(usage: Usage) -> dict[str, int | float]:
    reported: dict[str, int | float] = {INPUT_TOKENS: usage.prompt_tokens, OUTPUT_TOKENS: usage.completion_tokens}
    if usage.cached_tokens:
        reported[CACHE_READ] = usage.cached_tokens
    if usage.written_tokens:
        reported[CACHE_WRITE] = usage.written_tokens
    if usage.reasoning_tokens:
        reported[REASONING] = usage.reasoning_tokens
    return {**reported, COST: usage.cost_usd}


# --- content, if it is recorded -------------------------------------------------------------------------------------


def input_content(messages: Sequence[AnyMessage]) -> dict[str, str]:
    """Return the conversation as it was sent to the model."""
    system = [_text(m.content) for m in messages if isinstance(m, SystemMessage)]
    reported = {INPUT_MESSAGES: dumps([_message(m) for m in messages if not isinstance(m, SystemMessage)])}
    return reported | ({INSTRUCTIONS: dumps(system)} if system else {})


def output_content(text: str | None, calls: Iterable[ToolCallRequest], finish_reason: str | None) -> dict[str, str]:
    parts = ([_text(text)] if text else []) + [_call(call) for call in calls]
    return {OUTPUT_MESSAGES: dumps([{"role": "assistant", "parts": parts, "finish_reason": finish_reason or ""}])}


def _message(message: AnyMessage) -> dict[str, Any]:
    parts: list[dict[str, Any]]
    match message:
        case AssistantMessage():
            parts = [_text(message.content)] if message.content else []
            parts += [_call(call) for call in message.tool_calls]
        case ToolResultMessage():
            parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}]
        case _:
            parts = [_text(message.content)]
    return {"role": message.role, "parts": parts}


def _text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def _call(call: ToolCallRequest) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
