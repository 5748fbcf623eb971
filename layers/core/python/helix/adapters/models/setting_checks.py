"""Settings that a model refuses: `tool_choice`, `parallel_tool_calls` and `top_p`.

Law: a setting that is known to be refused is named before any call is paid for. A model that is not known is never
refused. Rules: https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools#forcing-tool-use and the
references of the providers' interfaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from helix.adapters.models.catalog import entry_of
from helix.adapters.models.effort import claude_options, openai_effort
from helix.adapters.models.openai_api import REASONING, name_of
from helix.adapters.models.providers import provider_of
from helix.adapters.models.reasoning import is_claude
from helix.adapters.models.turns import thinks_first
from helix.core.config import LLMConfig, forced_while_thinking

_O_SERIES: Final = re.compile(r"^o\d")
_ONE_OF_BOTH: Final = re.compile(r"claude-(opus-4-[1-9]\b|(sonnet|haiku)-4-5|(opus|sonnet|haiku)-([5-9]|4-[6-9]\b))")
"""A pattern for the Claude models that accept `temperature` or `top_p`, but not both."""
LEAST_TOP_P: Final = 0.95
"""The smallest `top_p` that Claude accepts while it thinks."""


def refused_setting(model: str, config: LLMConfig) -> str | None:
    """Return which setting of `config` the model refuses, and what to do. None if none is known to be refused."""
    entry = entry_of(model)
    checks = _of_claude(model, config, entry) if is_claude(model) else _of_others(model, config, entry)
    return next(checks, None)


def _of_claude(model: str, config: LLMConfig, entry: Mapping[str, Any]) -> Iterator[str]:
    options = {**claude_options(config.reasoning, entry, config.max_output_tokens), **config.provider_options}
    thinks = thinks_first(options) or bool(entry.get("thinking_always_on"))
    if config.forces_calls and thinks:
        yield f"tool_choice: {forced_while_thinking(config.tool_choice, model)}"
    if config.forces_calls and entry.get("supports_forced_tool_use") is False:
        yield f"tool_choice: {model!r} cannot be forced to call a tool: leave it out"
    if config.top_p is None:
        return
    if entry.get("supports_sampling_params") is False:
        yield f"top_p: {model!r} does not accept top_p: leave it out"
    if thinks and config.top_p < LEAST_TOP_P:
        yield f"top_p: {model!r} accepts only {LEAST_TOP_P} to 1 while thinking is enabled, not {config.top_p:g}"
    if config.temperature is not None and _ONE_OF_BOTH.search(model):
        yield f"top_p: {model!r} accepts temperature or top_p, but not both: remove one"


def _of_others(model: str, config: LLMConfig, entry: Mapping[str, Any]) -> Iterator[str]:
    provider, name = provider_of(model), name_of(model)
    if provider in ("openai", "azure"):
        if config.parallel_tool_calls is not None and _O_SERIES.match(name):
            yield f"parallel_tool_calls: {model!r} does not support this setting: leave it out"
        if config.top_p is not None and REASONING.match(name) and _effort(config, entry) != "none":
            yield f"top_p: {model!r} does not accept top_p while it reasons: leave it out, or set reasoning='none'"
    if provider != "bedrock" or name.partition("/")[2].startswith("arn:"):
        return
    if config.forces_calls and "nova" not in model and entry.get("supports_tool_choice") is False:
        yield f"tool_choice: {model!r} cannot be forced to call a tool: leave it out"
    if config.tool_choice == "none":
        yield f"tool_choice: at Amazon Bedrock only Claude takes 'none', not {model!r}: give the agent no tools"
    if config.parallel_tool_calls is False:
        yield f"parallel_tool_calls: at Amazon Bedrock only Claude has it, not {model!r}: leave it out"


def _effort(config: LLMConfig, entry: Mapping[str, Any]) -> str | None:
    asked = config.provider_options.get("reasoning_effort") or config.reasoning
    default = entry.get("default_reasoning_effort")
    return openai_effort(str(asked), entry) if asked is not None else None if default is None else str(default)
