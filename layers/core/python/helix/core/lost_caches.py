"""Finds the steps whose prompt the provider's cache should have had, and the reason why it did not.

Law: only what a provider reported is expected: the tokens that the previous answer's request read from the cache or wrote
to it. So a provider without a cache never loses one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from helix.core.json import JsonObject
from helix.core.request_heads import HeadTool, RequestHead
from helix.core.usage import Usage
from helix.core.views import RECALL

LostCache = Literal["model", "tools", "system_prompt", "settings", "history", "expired", "provider"]
WORDS: Final[Mapping[str, str]] = {
    "model": "the model changed",
    "tools": "the tools changed",
    "system_prompt": "the system prompt changed",
    "settings": "the settings or the tool choice changed",
    "history": "the history that the model is shown changed",
    "expired": "its lifetime was over",
    "provider": "the provider did not have it",
}
"""The reasons in words."""
LEAST_TOKENS: Final = 2_000
LEAST_SHARE: Final = 0.05
"""A cache counts as lost if more than these tokens, and more than this share of the expected ones, were not read."""
_LIFETIMES_S: Final = {"5m": 300.0, "1h": 3_600.0, "24h": 86_400.0}
_NOT_IN_THE_PROMPT: Final = frozenset({"temperature", "max_output_tokens", "stop"})


def describe_loss(reason: str | None, usage: Usage) -> str:
    """Return a sentence about the cache that a call with this usage lost. Empty if it lost none."""
    why = "" if reason is None else WORDS.get(reason, reason)
    return f"lost {usage.lost_tokens:,} tokens of the provider's cache: {why}" if reason is not None else ""


def may_be_lost(now: Usage) -> bool:
    """Return whether a call with this usage may have lost a cache, whatever the call before it had."""
    return now.calls > 0 and (now.prompt_tokens - now.cached_tokens) // now.calls > LEAST_TOKENS


def lost_tokens(before: Usage, now: Usage) -> int:
    """Return the number of tokens that were expected from the cache and not read. 0 if the cache was not lost. `before`
    is the usage of the previous answer in the same history. The usage of several tries counts as their average."""
    if not before.calls or not now.calls:
        return 0
    held = (before.cached_tokens + before.written_tokens) // before.calls
    expected = min(held, now.prompt_tokens // now.calls)
    missing = expected - now.cached_tokens
    return missing if missing > max(LEAST_TOKENS, LEAST_SHARE * expected) else 0


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of a request that decide whether the provider's cache has its prompt."""

    model: str | None
    """The model that answered. None if it is not known."""
    head: RequestHead | None
    """The request head. None if it is not known: its parts then count as unchanged."""
    view: int
    """The session version in the key of the view, as in `AssistantRow.view`."""
    without_reasoning: bool
    """Whether the reasoning of earlier steps was omitted."""
    at: float
    """The time of the request, or of its answer (Unix seconds)."""


def find_reason(before: Asked, now: Asked) -> LostCache:
    """Return why the cache of the request `before` was lost at the request `now`, from what differs between them."""
    if before.model != now.model:
        return "model"
    old, new = before.head, now.head
    if old is not None and new is not None:
        if (_own_tools(old), old.output_schema) != (_own_tools(new), new.output_schema):
            return "tools"
        if old.settings.get("server_tools") != new.settings.get("server_tools"):
            return "tools"
        if old.system_prompt != new.system_prompt:
            return "system_prompt"
        if (old.tool_choice, _of_prompt(old.settings)) != (new.tool_choice, _of_prompt(new.settings)):
            return "settings"
    if (before.view, before.without_reasoning) != (now.view, now.without_reasoning):
        return "history"
    lifetime = _lifetime(old.settings if old is not None else {})
    return "expired" if now.at - before.at > lifetime else "provider"


def _own_tools(head: RequestHead) -> list[HeadTool]:
    """Return the tools without `recall`, which a changed view adds."""
    return [tool for tool in head.tools if tool.name != RECALL]


def _of_prompt(settings: JsonObject) -> JsonObject:
    return {name: value for name, value in settings.items() if name not in _NOT_IN_THE_PROMPT}


def _lifetime(settings: JsonObject) -> float:
    """Return the lifetime of the provider's cache in seconds, as far as the settings say it."""
    options = settings.get("provider_options")
    options = options if isinstance(options, dict) else {}
    mark = options.get("cache_control")
    named = (settings.get("cache"), mark.get("ttl") if isinstance(mark, dict) else None)
    asked = (
        _LIFETIMES_S.get(name) for name in (*named, options.get("prompt_cache_retention")) if isinstance(name, str)
    )
    return max((found for found in asked if found is not None), default=_LIFETIMES_S["5m"])
