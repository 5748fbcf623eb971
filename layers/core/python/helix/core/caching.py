"""When an answer may be answered again, and what makes two questions the same.

Law: the key of an answer is made of everything that changes it. What is not known to be without effect is part of it: a new
setting makes new keys, never a wrong answer.
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
    """EXACT: the very same question. SEMANTIC: the last user message may be worded otherwise, all before it and around it
    is the same; needs an embedding function. PREFIX and HYBRID are names of Teleon's that are refused."""

    EXACT = "exact"
    SEMANTIC = "semantic"
    PREFIX = "prefix"
    HYBRID = "hybrid"


class CacheEvictionPolicy(StrEnum):
    """Who goes where the cache is full: the least recently used, the least often used, the one that saves the least money
    (tokens, where no price is known), the one that expires first."""

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
    """Raises `InvalidInputError` for a strategy that answers wrongly."""
    if strategy in _REFUSED:
        raise InvalidInputError(
            f"cache strategy {strategy.value!r} is refused: {_REFUSED[strategy]}; use 'exact', or 'semantic' with an "
            "embedding function"
        )
    return strategy


class ResponseCacheConfig(Record):
    """Answers of an agent's model that may be given again, within one tenant (the session's user).

    ttl_s: seconds after which an answer is forgotten. strategy, threshold: how alike questions must be; with `semantic`,
    cosine similarity of at least `threshold`. sampled: also answers at a temperature that is not 0; a temperature that is
    not set counts as sampled, because providers sample by default. tool_calls: also answers that call tools: they then
    run again, with the same arguments.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ttl_s: float = Field(default=3600, gt=0, allow_inf_nan=False)
    strategy: CacheStrategy = CacheStrategy.EXACT
    threshold: float = Field(default=0.95, gt=0, le=1)
    sampled: bool = False
    tool_calls: bool = False

    _answers_rightly = field_validator("strategy")(check_strategy)


# Of a call's settings, those that change how it is made, not what is answered.
WITHOUT_EFFECT = frozenset(
    {"adapter", "max_retries", "timeout_s", "stall_timeout_s", "cache", "response_cache", "route", "fallbacks"}
)


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(dumps(_ordered(value)).encode()).hexdigest()


def as_sent(message: AnyMessage) -> JsonObject:
    """What the model is sent of a message: neither ids nor times of ours."""
    match message:
        case SystemMessage() | UserMessage():
            return {"role": message.role, "content": message.content}
        case AssistantMessage():
            return message.model_dump(mode="json", include={"role", "content", "tool_calls", "thinking"})
        case ToolResultMessage():
            return message.model_dump(mode="json", include={"role", "tool_call_id", "tool_name", "content", "success"})


def last_question(messages: Sequence[AnyMessage]) -> str | None:
    """The text of the last message where it is the user's: all that may be worded otherwise."""
    last = messages[-1] if messages else None
    return last.content if isinstance(last, UserMessage) else None


def is_sampled(temperature: float | None, options: JsonObject) -> bool:
    """`options` win, as they do in the call."""
    chosen = options.get("temperature", temperature)
    return chosen != 0 or options.get("n", 1) not in (None, 1)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _ordered(value[key]) for key in sorted(value, key=str)}
    return [_ordered(item) for item in value] if isinstance(value, list | tuple) else value
