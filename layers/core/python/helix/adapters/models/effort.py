"""The effort and verbosity of a model (`LLMConfig.reasoning`, `verbosity`), in each provider's terms.

Law: an effort means the same for every provider. If a model lacks that effort, the nearest one that it supports is
used. A model that does not reason gets none. The same settings in `provider_options` override it. A model that is not
in the catalog is treated like its provider's newest models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from helix.adapters.models.openai_api import takes_verbosity
from helix.core.config import LENGTHS, THINKING_TOKENS, Effort
from helix.core.messages import SystemMessage
from helix.ports.model import LLMGenerateInput

_LEAST_THINKING = 1024
"""The smallest thinking budget that Anthropic accepts, in tokens."""


def with_verbosity(request: LLMGenerateInput, model: str) -> LLMGenerateInput:
    """Return the request. If the model has no setting for the length of its answers, the system prompt gets a sentence
    about it."""
    words = LENGTHS.get(request.config.verbosity or "")
    if words is None or takes_verbosity(model):
        return request
    said = [m.content for m in request.messages if isinstance(m, SystemMessage)]
    others = [m for m in request.messages if not isinstance(m, SystemMessage)]
    return replace(request, messages=[SystemMessage(content="\n\n".join([*said, words])), *others])


def openai_effort(effort: str, entry: Mapping[str, Any]) -> str:
    """Return the value of `reasoning.effort`."""
    nearest = {"none": ("none", "minimal"), "minimal": ("minimal",), "xhigh": ("xhigh",)}
    if not entry or effort not in nearest:
        return effort
    has = (word for word in nearest[effort] if entry.get(f"supports_{word}_reasoning_effort"))
    return next(has, "high" if effort == "xhigh" else "low")


def claude_options(effort: Effort | None, entry: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """Return `thinking` and `output_config` of Claude's models, at Anthropic and at Bedrock. `limit`: the token limit
    of the whole answer. A thinking budget leaves some of these tokens for the text."""
    if effort is None or not entry.get("supports_reasoning", not entry):
        return {}
    if effort == "none" and not entry.get("thinking_always_on"):
        return {"thinking": {"type": "disabled"}}
    if entry.get("supports_adaptive_thinking", not entry):
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": _claude_effort(effort, entry)}}
    budget = THINKING_TOKENS[effort]
    if limit is not None:
        budget = min(budget, limit // 2)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _LEAST_THINKING else {}


def bedrock_options(effort: Effort | None, name: str, entry: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """Return the model's own request fields, which are sent in addition to those of Converse."""
    low = name.lower()
    if "claude" in low:
        return claude_options(effort, entry, limit)
    if effort is None:
        return {}
    if "nova-2" in low:
        on = {"type": "enabled", "maxReasoningEffort": _one_of_three(effort)}
        return {"reasoningConfig": {"type": "disabled"} if effort == "none" else on}
    return {"reasoning_effort": _one_of_three(effort)} if "gpt-oss" in low else {}


def litellm_effort(effort: Effort, claude: bool, provider: str) -> str:
    """Return `reasoning_effort` for litellm, which translates it."""
    return effort if claude or provider in ("openai", "azure") or effort != "xhigh" else "high"


def _claude_effort(effort: Effort, entry: Mapping[str, Any]) -> str:
    if effort == "xhigh":
        return "xhigh" if not entry or entry.get("supports_xhigh_reasoning_effort") else "high"
    return "low" if effort in ("none", "minimal") else effort


def _one_of_three(effort: Effort) -> str:
    """Return the effort for models that have only low, medium and high."""
    return {"none": "low", "minimal": "low", "xhigh": "high"}.get(effort, effort)
