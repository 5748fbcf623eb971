"""How a model is to be called."""

from __future__ import annotations

from pydantic import Field

from helix.core.json import JsonObject
from helix.core.messages import Record


class LLMConfig(Record):
    """Model settings of an agent.

    `model` is a litellm id (`openai/gpt-4o-mini`, `anthropic/claude-sonnet-4-5`, ...). `fallbacks` are tried in order
    when the model fails for good. `max_retries` counts repeats of a retryable failure (waits 1, 2, 4 s, or what
    Retry-After says). `timeout_s` bounds one attempt; `stall_timeout_s` the silence between two chunks of a stream.
    `cache` marks the stable prefix for the provider's prompt cache. `provider_options` are passed through untouched.
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
    timeout_s: float = Field(default=600, gt=0)
    stall_timeout_s: float = Field(default=60, gt=0)
