"""The rules of the response cache: which answers may be given again, and when two questions are the same.

Law: the key of an answer is made of everything that changes it. A setting is part of the key unless it is known to have
no effect, so a new setting makes new keys, never a wrong answer.
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
    """The similarity that two questions must have. EXACT: the very same question. SEMANTIC: the last user message may
    be worded otherwise, everything before and around it is the same; it needs an embedding function. PREFIX and HYBRID
    are names of Teleon's that are refused."""

    EXACT = "exact"
    SEMANTIC = "semantic"
    PREFIX = "prefix"
    HYBRID = "hybrid"


class CacheEvictionPolicy(StrEnum):
    """The eviction policy of a full cache. LRU: the least recently used goes first. LFU: the least often used.
    COST_BASED: the one that saves the least money, or the fewest tokens if no price is known. TTL: the one that expires
    first."""

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
    """Return the strategy. Raises `InvalidInputError` for one that gives wrong answers."""
    if strategy in _REFUSED:
        raise InvalidInputError(
            f"cache strategy {strategy.value!r} is refused: {_REFUSED[strategy]}; use 'exact', or 'semantic' with an "
            "embedding function"
        )
    return strategy


class ResponseCacheConfig(Record):
    """The settings by which answers of an agent's model are given again, within one tenant (the session's user)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ttl_s: float = Field(default=3600, gt=0, allow_inf_nan=False)
    """The seconds after which an answer expires."""
    strategy: CacheStrategy = CacheStrategy.EXACT
    """The similarity that two questions must have."""
    threshold: float = Field(default=0.95, gt=0, le=1)
    """The least cosine similarity of two questions, for `semantic`. Other strategies ignore it."""
    sampled: bool = False
    """Whether answers at a temperature other than 0 are cached too. A temperature that is not set counts as sampled,
    because providers sample by default."""
    tool_calls: bool = False
    """Whether answers that call tools are cached too. The tools then run again, with the same arguments."""

    _answers_rightly = field_validator("strategy")(check_strategy)


# The settings that change how a call is made, not what is answered.
WITHOUT_EFFECT = frozenset(
    {"adapter", "max_retries", "timeout_s", "stall_timeout_s", "cache", "response_cache", "route", "fallbacks"}
)


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value. The order of its keys has no effect."""
    return hashlib.sha256(dumps(_ordered(value)).encode()).hexdigest()


def as_sent(message: AnyMessage) -> JsonObject:
    """Return the parts of a message that the model is sent, without Helix's ids and times."""
    match message:
        case SystemMessage() | UserMessage():
            return {"role": message.role, "content": message.content}
        case AssistantMessage():
            return message.model_dump(mode="json", include={"role", "content", "tool_calls", "thinking"})
        case ToolResultMessage():
            return message.model_dump(mode="json", include={"role", "tool_call_id", "tool_name", "content", "success"})


def last_question(messages: Sequence[AnyMessage]) -> str | None:
    """Return the text of the last message if it is the user's. It is the only part that may be worded otherwise."""
    last = messages[-1] if messages else None
    return last.content if isinstance(last, UserMessage) else None


def is_sampled(temperature: float | None, options: JsonObject) -> bool:
    """Return whether the answer is sampled. `options` win over `temperature`, as they do in the call."""
    chosen = options.get("temperature", temperature)
    return chosen != 0 or options.get("n", 1) not in (None, 1)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _ordered(value[key]) for key in sorted(value, key=str)}
    return [_ordered(item) for item in value] if isinstance(value, list | tuple) else value
