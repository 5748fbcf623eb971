"""The settings of an agent's model calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from helix.core.caching import ResponseCacheConfig
from helix.core.errors import DefinitionError
from helix.core.json import JsonObject
from helix.core.messages import Record
from helix.core.routes import Route
from helix.core.run_settings import unknown_setting
from helix.core.server_tools import ServerTool

_SET_BY_HELIX: Final = {
    "model": "give it as model",
    "messages": "they are the session's history, after system_prompt",
    "tools": "give your own as the agent's tools, and the provider's as server_tools",
    "tool_choice": "give tool_choice of LLMConfig",
    "stream": "leave it out; every answer is streamed",
    "stream_options": "leave it out; every answer is streamed, with its usage",
    "num_retries": "give max_retries of LLMConfig",
    "max_retries": "give max_retries of LLMConfig",
}
"""Options that an agent cannot set because Helix sets them for each call, with advice on the alternative."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
THINKING_TOKENS: Final = {"none": 0, "minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768}
"""The thinking budget in tokens for each effort, for models that take a token budget."""
LENGTHS: Final = {
    "low": "Keep your answers short: only what was asked for, in few sentences.",
    "high": "Answer at length: explain your reasons, and give details and examples.",
}
"""A prompt sentence for each verbosity, for models without such a setting. `medium` is the model's default."""


def forced_while_thinking(choice: str, model: str) -> str:
    """Return the problem of a forced tool choice for a model that thinks."""
    return f"{choice!r} forces a call, which {model!r} refuses while it thinks: set reasoning='none', or tool_choice='auto'"


class LLMConfig(Record):
    """The model settings of an agent."""

    model: str = Field(min_length=1)
    """A litellm id (`openai/gpt-4o-mini`, `anthropic/claude-sonnet-4-5`, ...). `model=Route(...)` chooses a model for
    each call: the route is stored as `route`, and `model` becomes its first model."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """The sampling temperature, from 0 to 2. None leaves it to the provider."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """The maximum number of tokens in an answer. None leaves it to the provider."""
    stop: list[str] = Field(default_factory=list)
    """Stop sequences: the model stops before producing any of them."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """The share of the probability from which the model samples, above 0 and at most 1. None leaves it to the
    provider."""
    tool_choice: str = Field(default="auto", min_length=1, max_length=128)
    """Whether the model must call a tool: `auto` leaves it to the model, `required` and the name of a tool force a call
    until the model has called one (`core.tool_choice`), and `none` forbids calls."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may call several tools. None leaves it to the provider."""
    provider_options: JsonObject = Field(default_factory=dict)
    """Options that are passed to the provider unchanged. Options that Helix sets itself are refused."""
    strict_output: bool | None = None
    """Whether the provider constrains the output to the agent's schema, as `Tool.strict` does for arguments. None: if the
    schema is closed and the model can."""
    max_retries: int = Field(default=3, ge=0, le=10)
    """The maximum number of retries after a retryable failure. The delays are random parts of 1, 2, 4 s,
    ..., in addition to the value of Retry-After."""
    fallbacks: list[str] = Field(default_factory=list)
    """Fallback models, tried in order after the model has failed permanently. The model is then tried last for a
    minute."""
    cache: Literal["auto", "1h"] | bool = "auto"
    """Whether requests use the provider's prompt cache. `auto`: if the model is known to have one, and the agent has
    tools or the session a second turn. `1h`: always, and entries last an hour where the model supports that. True:
    always. False: never, except that some providers always cache. The provider option `cache_control` replaces the
    marks that Claude gets."""
    reasoning: Effort | None = None
    """The reasoning effort, with the same meaning for every provider. None leaves it to the model."""
    verbosity: Literal["low", "medium", "high"] | None = None
    """The length of the answers, with the same meaning for every provider. None leaves it to the model."""
    api: Literal["responses", "chat"] | None = None
    """The OpenAI API to call, for OpenAI models. None means `responses` at OpenAI and Azure, but `chat` if a base URL
    names another server or if an option exists only in `chat`."""
    timeout_s: float = Field(default=600, gt=0)
    """The timeout of one attempt in seconds."""
    stall_timeout_s: float = Field(default=60, gt=0)
    """The maximum time between two chunks of a stream, in seconds."""
    server_tools: list[ServerTool] = Field(default_factory=list)
    """The provider's own tools: `WebSearch()`, `CodeExecution()`, `FileSearch(...)` and `RemoteMcp(...)`. The provider
    executes them while the model answers. A model of which the provider does not have one of them is refused."""
    route: Route | None = None
    """The route that chooses the model of each call. None if every call goes to `model`."""
    response_cache: ResponseCacheConfig | None = None
    """The settings of the response cache (`core.caching`), which reuses an earlier answer instead of calling the model.
    None turns it off."""
    adapter: Literal["auto", "native", "litellm"] = "auto"
    """The package that calls the model. `native` is the provider's own SDK (boto3 for `bedrock/`, openai, anthropic),
    `litellm` is litellm. `auto` uses the provider's SDK if it is installed and supports the model, otherwise
    litellm."""

    if not TYPE_CHECKING:  # type checkers know the settings

        def __init__(self, **settings: Any) -> None:
            if (problem := unknown_setting(settings, type(self).model_fields)) is not None:
                raise DefinitionError("LLMConfig", "settings", problem)
            super().__init__(**settings)
            if self.forces_calls and (thinking := self._thinking_claude()) is not None:
                raise DefinitionError("LLMConfig", "tool_choice", forced_while_thinking(self.tool_choice, thinking))

    @field_validator("provider_options")
    @classmethod
    def _check_options(cls, given: JsonObject) -> JsonObject:
        for name, advice in _SET_BY_HELIX.items():
            if name in given:
                raise ValueError(f"provider_options has {name!r}, which Helix sets for each call: {advice}")
        return given

    @model_validator(mode="before")
    @classmethod
    def _accept_route(cls, given: Any) -> Any:
        """Accept `model=Route(...)`, or `route` without `model`."""
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
    def forces_calls(self) -> bool:
        """Whether `tool_choice` forces a call."""
        return self.tool_choice not in ("auto", "none")

    def _thinking_claude(self) -> str | None:
        """Return the first model that is a Claude and is asked to think. None if there is none."""
        thinking = self.provider_options.get("thinking")
        asked = (
            thinking.get("type") != "disabled" if isinstance(thinking, dict) else self.reasoning not in (None, "none")
        )
        return next((model for model in self.models if "claude" in model.lower()), None) if asked else None

    @property
    def models(self) -> Sequence[str]:
        """All models that may be called, without duplicates: the route's models or `model`, then the fallbacks."""
        first = self.route.names if self.route is not None else [self.model]
        return list(dict.fromkeys([*first, *self.fallbacks]))
