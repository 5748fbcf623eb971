"""Stop reasons, translated from the words of each provider.

Law: total functions. A word that a table does not have is `unknown`, which is not an error: the content decides what to
do. Some providers say "stop" for answers with calls too; the caller then knows whether there are calls.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.steps import StopReason

_OPENAI: Mapping[str, StopReason] = {
    "stop": StopReason.END_TURN,
    "length": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "content_filter": StopReason.CONTENT_FILTER,
    # Words of other servers for an answer that broke off: OpenRouter, vLLM and SGLang, DeepSeek.
    "error": StopReason.ERROR,
    "abort": StopReason.ERROR,
    "insufficient_system_resource": StopReason.ERROR,
}
_ANTHROPIC: Mapping[str, StopReason] = {
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSAL,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    # A paused server-side turn continues, so this is neither an error nor an end.
    "pause_turn": StopReason.UNKNOWN,
}
_BEDROCK: Mapping[str, StopReason] = {
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "guardrail_intervened": StopReason.CONTENT_FILTER,
    "content_filtered": StopReason.CONTENT_FILTER,
    "malformed_model_output": StopReason.ERROR,
    "malformed_tool_use": StopReason.ERROR,
}
_GEMINI: Mapping[str, StopReason] = {
    "STOP": StopReason.END_TURN,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "SAFETY": StopReason.CONTENT_FILTER,
    "RECITATION": StopReason.CONTENT_FILTER,
    "BLOCKLIST": StopReason.CONTENT_FILTER,
    "PROHIBITED_CONTENT": StopReason.CONTENT_FILTER,
    "SPII": StopReason.CONTENT_FILTER,
    "MALFORMED_FUNCTION_CALL": StopReason.ERROR,
}
_VERCEL: Mapping[str, StopReason] = {
    "stop": StopReason.END_TURN,
    "length": StopReason.MAX_TOKENS,
    "content-filter": StopReason.CONTENT_FILTER,
    "tool-calls": StopReason.TOOL_USE,
    "error": StopReason.ERROR,
}


def map_openai_finish_reason(reason: str | None, *, refusal: str | None = None) -> StopReason:
    """Translate the `finish_reason` of Chat Completions. A `refusal` text wins: OpenAI says "stop" beside it."""
    return StopReason.REFUSAL if refusal else _OPENAI.get(reason or "", StopReason.UNKNOWN)


def map_anthropic_stop_reason(reason: str | None) -> StopReason:
    """Translate the `stop_reason` of the Messages API."""
    return _ANTHROPIC.get(reason or "", StopReason.UNKNOWN)


def map_bedrock_stop_reason(reason: str | None) -> StopReason:
    """Translate the `stopReason` of Amazon Bedrock's Converse and ConverseStream."""
    return _BEDROCK.get(reason or "", StopReason.UNKNOWN)


def map_gemini_finish_reason(reason: str | None, *, has_tool_calls: bool = False) -> StopReason:
    """Translate the `finishReason` of generateContent. Gemini says STOP for tool calls too: `has_tool_calls` makes that
    `tool_use`."""
    if reason == "STOP" and has_tool_calls:
        return StopReason.TOOL_USE
    return _GEMINI.get(reason or "", StopReason.UNKNOWN)


def map_vercel_finish_reason(reason: str | None) -> StopReason:
    """Translate the `finishReason` of the Vercel AI SDK."""
    return _VERCEL.get(reason or "", StopReason.UNKNOWN)
