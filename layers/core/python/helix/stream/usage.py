"""Formats usage for events that end a run."""

from __future__ import annotations

from helix.core.json import JsonObject
from helix.core.usage import Usage


def usage_fields(usage: Usage) -> JsonObject:
    """Return the token counts under the field names of the AI SDK and AG-UI. Empty if no tokens were used."""
    if not usage.total_tokens:
        return {}
    parts = {"reasoningTokens": usage.reasoning_tokens, "cachedInputTokens": usage.cached_tokens}
    return {
        "inputTokens": usage.prompt_tokens,
        "outputTokens": usage.completion_tokens,
        "totalTokens": usage.total_tokens,
        **{name: tokens for name, tokens in parts.items() if tokens},
    }
