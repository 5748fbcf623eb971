"""Maps each provider's stop reasons to those of Helix.

Law: the functions never fail. A value that is not in the table maps to `unknown`, which is not an error: the content of
the answer then decides. Some providers also report "stop" for answers with tool calls; the caller knows whether there
are calls.
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
    # Values of other servers for an answer that was cut off: OpenRouter, vLLM and SGLang, DeepSeek.
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
    """Map the `finish_reason` of Chat Completions. A `refusal` text takes precedence, because OpenAI then reports
    "stop"."""
    return StopReason.REFUSAL if refusal else _OPENAI.get(reason or "", StopReason.UNKNOWN)


def map_anthropic_stop_reason(reason: str | None) -> StopReason:
    """Map the `stop_reason` of the Messages API."""
    return _ANTHROPIC.get(reason or "", StopReason.UNKNOWN)


def map_bedrock_stop_reason(reason: str | None) -> StopReason:
    """Map the `stopReason` of Amazon Bedrock's Converse and ConverseStream."""
    return _BEDROCK.get(reason or "", StopReason.UNKNOWN)


def map_gemini_finish_reason(reason: str | None, *, has_tool_calls: bool = False) -> StopReason:
    """Map the `finishReason` of generateContent. Gemini also reports STOP for tool calls; with `has_tool_calls` it
    becomes `tool_use`."""
    if reason == "STOP" and has_tool_calls:
        return StopReason.TOOL_USE
    return _GEMINI.get(reason or "", StopReason.UNKNOWN)


def map_vercel_finish_reason(reason: str | None) -> StopReason:
    """Map the `finishReason` of the Vercel AI SDK."""
    return _VERCEL.get(reason or "", StopReason.UNKNOWN)
