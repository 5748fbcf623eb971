"""How to call a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from helix.core.caching import ResponseCacheConfig
from helix.core.json import JsonObject
from helix.core.messages import Record
from helix.core.routes import Route

_SET_BY_HELIX: Final = {
    "model": "give it as model",
    "messages": "they are the session's history, after system_prompt",
    "tools": "give them as the agent's tools",
    "tool_choice": "leave it out; the model chooses, and an agent with an output schema is asked for its output at the end",
    "stream": "leave it out; every answer is streamed",
    "stream_options": "leave it out; every answer is streamed, with its usage",
    "num_retries": "give max_retries of LLMConfig",
    "max_retries": "give max_retries of LLMConfig",
}
"""Options that a call cannot leave to the agent, with what to do instead."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
THINKING_TOKENS: Final = {"none": 0, "minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768}
"""Effort -> tokens of thinking, of models whose thinking has a budget."""
LENGTHS: Final = {
    "low": "Keep your answers short: only what was asked for, in few sentences.",
    "high": "Answer at length: explain your reasons, and give details and examples.",
}
"""Verbosity -> a sentence for models that have no such setting. A medium length is what a model does by itself."""


class LLMConfig(Record):
    """Model settings of an agent.

    `model` is a litellm id (`openai/gpt-4o-mini`, `anthropic/claude-sonnet-4-5`, ...). `fallbacks` are tried in order
    when the model fails for good. `max_retries` counts repeats of a retryable failure (waits 1, 2, 4 s, or what
    Retry-After says). `timeout_s` bounds one attempt; `stall_timeout_s` the silence between two chunks of a stream.
    `cache` marks the stable prefix for the provider's prompt cache; the option `cache_control` says for how long.
    `provider_options` are passed through untouched; those that Helix sets for each call are refused.
    `reasoning` is how much the model thinks before it answers, `verbosity` how long its answers are; both mean the same for
    every provider, and None leaves it to the model.
    `api`: of OpenAI's models, which of OpenAI's two interfaces is asked. None: `responses` at OpenAI and Azure, `chat`
    where a base URL names another server, or where an option has no other place.
    `adapter`: `native` calls the model through its provider's own package (boto3 for `bedrock/`, openai, anthropic),
    `litellm` through litellm; `auto` takes the first where it is installed and serves the model, else litellm.

    `model=Route(...)` chooses the model of each call: it is kept as `route`, and `model` is then the route's first.
    `response_cache` lets answers be given again without asking the model, see `core.caching`.
    """

    model: str = Field(min_length=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_output_tokens: int | None = Field(default=None, ge=1)
    stop: list[str] = Field(default_factory=list)
    provider_options: JsonObject = Field(default_factory=dict)
    strict_output: bool = False
    max_retries: int = Field(default=3, ge=0, le=10)
    fallbacks: list[str] = Field(default_factory=list)
    cache: bool = False
    reasoning: Effort | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    api: Literal["responses", "chat"] | None = None
    timeout_s: float = Field(default=600, gt=0)
    stall_timeout_s: float = Field(default=60, gt=0)
    route: Route | None = None
    response_cache: ResponseCacheConfig | None = None
    adapter: Literal["auto", "native", "litellm"] = "auto"

    @field_validator("provider_options")
    @classmethod
    def _leaves_the_call_to_helix(cls, given: JsonObject) -> JsonObject:
        for name, advice in _SET_BY_HELIX.items():
            if name in given:
                raise ValueError(f"provider_options has {name!r}, which Helix sets for each call: {advice}")
        return given

    @model_validator(mode="before")
    @classmethod
    def _routed(cls, given: Any) -> Any:
        """`model=Route(...)`, or a route alone."""
        if not isinstance(given, dict):
            return given
        if isinstance(model := given.get("model"), Route):
            if given.get("route") not in (None, model):
                raise ValueError("model and route name two routes: give one of them")
            return {**given, "model": model.names[0], "route": model}
        if isinstance(route := given.get("route"), Route) and model is None:
            return {**given, "model": route.names[0]}
        return given

    @property
    def models(self) -> Sequence[str]:
        """All that may be called, each once: the route's, or the model, then the fallbacks."""
        first = self.route.names if self.route is not None else [self.model]
        return list(dict.fromkeys([*first, *self.fallbacks]))
