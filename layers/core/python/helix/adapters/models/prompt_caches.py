"""The provider's prompt cache: whether a request uses it, where the marks for Claude and Nova go, and OpenAI's key.

Law: a request has at most four marks, all with one lifetime: after the tools, after the system prompt, where the
previous request of the session ended, and where this one ends. Providers refuse a fifth mark, and a mark that lasts
longer than an earlier one. They look for an entry at a mark and the 19 blocks before it. A step with 12 calls has 24
blocks, so the entry of the previous request is only found by a mark at its very end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from helix.core.messages import AssistantMessage
from helix.core.tools import FINISH_TOOL_NAME
from helix.ports.model import LLMGenerateInput

_MARKED_BY_LITELLM = "cache_control_injection_points"
"""litellm's option with which it sets marks itself."""


def cache_mark(request: LLMGenerateInput, *, supported: bool) -> dict[str, Any] | None:
    """Return the mark after a part that the provider should cache, or None if the request does not use the cache.
    `supported`: whether the model is known to have a cache, which `auto` requires. The option `cache_control` is used
    for every mark."""
    config = request.config
    given = config.provider_options.get("cache_control")
    mark = dict(given) if isinstance(given, Mapping) else None
    if config.cache == "auto":
        asked = mark is not None or pays_off(request)
        used = supported and asked and _MARKED_BY_LITELLM not in config.provider_options
    else:
        used = bool(config.cache)
    if not used:
        return None
    mark = mark or {"type": "ephemeral"}
    return {**mark, "ttl": "1h"} if config.cache == "1h" else mark


def pays_off(request: LLMGenerateInput) -> bool:
    """Return whether a later request will probably begin like this one. Writing to the cache costs more than not using
    it, so a question without tools is cached from its second turn on."""
    has_tools = any(tool.name != FINISH_TOOL_NAME for tool in request.tools)
    return has_tools or any(isinstance(message, AssistantMessage) for message in request.messages)


def cache_key(request: LLMGenerateInput) -> str | None:
    """Return the key with which OpenAI sends the requests of a session and of its copies to the same cache. None if
    the request does not use the cache. The key is a hash, because ids of sessions may name people."""
    first, cache = request.origin_id or request.agent_id, request.config.cache
    if not first or not (pays_off(request) if cache == "auto" else cache):
        return None
    return hashlib.sha256(f"helix session {first}".encode()).hexdigest()[:32]


def previous_end(roles: Sequence[str]) -> int | None:
    """Return the index of the message or turn at which the previous request ended: the one before the last answer. None
    if there was no request."""
    answered = max((index for index, role in enumerate(roles) if role == "assistant"), default=0)
    return next((index for index in range(answered - 1, -1, -1) if roles[index] != "assistant"), None)


def moving_ends(turns: Sequence[Mapping[str, Any]], passing: int) -> list[tuple[list[dict[str, Any]], int]]:
    """Return the two ends in these turns, as (the blocks of the turn, how many of them precede the mark). `passing`:
    see `LLMGenerateInput.passing`; each such message is one block."""
    found: list[tuple[list[dict[str, Any]], int]] = []
    if (index := previous_end([turn["role"] for turn in turns])) is not None:
        found.append((turns[index]["content"], len(turns[index]["content"])))
    for turn in reversed(turns):
        if passing < len(blocks := turn["content"]):
            end = (blocks, len(blocks) - passing)
            return [end] if found and found[0][0] is blocks else [*found, end]
        passing -= len(blocks)
    return found
