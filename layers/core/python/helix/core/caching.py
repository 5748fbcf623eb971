"""The rules of the response cache: which answers may be reused, and when two requests count as the same.

Law: the cache key covers everything that can change the answer. A setting is part of the key unless it is known to have
no effect, so a new setting causes cache misses rather than wrong answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, dumps
from helix.core.messages import AnyMessage, AssistantMessage, Record, SystemMessage, ToolResultMessage, UserMessage


class CacheStrategy(StrEnum):
    """The required similarity of two requests that share an answer. EXACT: identical. SEMANTIC: only the wording of the
    last user message may differ; requires an embedding function. PREFIX and HYBRID exist in Teleon and are refused here."""

    EXACT = "exact"
    SEMANTIC = "semantic"
    PREFIX = "prefix"
    HYBRID = "hybrid"


class CacheEvictionPolicy(StrEnum):
    """The eviction policy of a full cache. LRU evicts the least recently used answer, LFU the least frequently used.
    COST_BASED evicts the answer that saves the least money, or the fewest tokens if no price is known. TTL evicts the
    one that expires first."""

    LRU = "lru"
    LFU = "lfu"
    COST_BASED = "cost_based"
    TTL = "ttl"


_REFUSED = {
    CacheStrategy.PREFIX: "two conversations that begin alike may end with different questions: it would give one the "
    "other's answer",
    CacheStrategy.HYBRID: "it falls back to PREFIX, which answers another question",
}


def check_strategy(strategy: CacheStrategy) -> CacheStrategy:
    """Return the strategy. Raises `InvalidInputError` for a strategy that can return wrong answers."""
    if strategy in _REFUSED:
        raise InvalidInputError(
            f"cache strategy {strategy.value!r} is refused: {_REFUSED[strategy]}; use 'exact', or 'semantic' with an "
            "embedding function"
        )
    return strategy


class ResponseCacheConfig(Record):
    """The response cache settings of an agent. Answers are shared only within one tenant (the session's user)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ttl_s: float = Field(default=3600, gt=0, allow_inf_nan=False)
    """The lifetime of a cached answer in seconds."""
    strategy: CacheStrategy = CacheStrategy.EXACT
    """The required similarity of two requests that share an answer."""
    threshold: float = Field(default=0.95, gt=0, le=1)
    """The minimum cosine similarity of two requests for `semantic`. Other strategies ignore it."""
    sampled: bool = False
    """Whether to also cache answers at a temperature other than 0. An unset temperature counts as sampled, because
    providers sample by default."""
    tool_calls: bool = False
    """Whether to also cache answers that call tools. On a cache hit, the tools run again with the same arguments."""

    _answers_rightly = field_validator("strategy")(check_strategy)


# Settings that change how a call is made but not its answer. The request has the tool choice of its step.
WITHOUT_EFFECT = frozenset(
    {
        "adapter",
        "max_retries",
        "timeout_s",
        "stall_timeout_s",
        "cache",
        "response_cache",
        "route",
        "fallbacks",
        "tool_choice",
    }
)


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, regardless of key order."""
    return hashlib.sha256(dumps(_ordered(value)).encode()).hexdigest()


def sent_parts(message: AnyMessage) -> JsonObject:
    """Return the parts of a message that are sent to the model, without Helix's ids and timestamps. Files are part of
    it by their hash. A message without files has no such part, as in the keys of earlier releases."""
    match message:
        case SystemMessage():
            return {"role": message.role, "content": message.content}
        case UserMessage():
            return {"role": message.role, "content": message.content, **_files(message)}
        case AssistantMessage():
            served = {"server_blocks"} if message.server_blocks else set[str]()
            return message.model_dump(mode="json", include={"role", "content", "tool_calls", "thinking", *served})
        case ToolResultMessage():
            fields = {"role", "tool_call_id", "tool_name", "content", "success"}
            return {**message.model_dump(mode="json", include=fields), **_files(message)}


def _files(message: UserMessage | ToolResultMessage) -> JsonObject:
    return {"files": [file.model_dump(mode="json") for file in message.files]} if message.files else {}


def last_question(messages: Sequence[AnyMessage]) -> str | None:
    """Return the text of the last message if it is a user message without files. Only the wording of this part may
    differ between two requests."""
    last = messages[-1] if messages else None
    return last.content if isinstance(last, UserMessage) and not last.files else None


def is_sampled(temperature: float | None, options: JsonObject) -> bool:
    """Return whether the answer is sampled. `options` override `temperature`, as they do in the call."""
    chosen = options.get("temperature", temperature)
    return chosen != 0 or options.get("n", 1) not in (None, 1)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _ordered(value[key]) for key in sorted(value, key=str)}
    return [_ordered(item) for item in value] if isinstance(value, list | tuple) else value
