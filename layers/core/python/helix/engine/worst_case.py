"""The most that a model call can use, and the request that keeps to it.

Law: never less than the provider can bill for one attempt, as far as the request decides it. A token of a prompt is at
least one byte, in every tokenizer that works on bytes or falls back to them, so its bytes bound it; what providers add to
messages and tools is allowed for. The answer is bounded because the request says so. Of a model and its fallbacks the
dearest counts, and an unknown price is taken at the configured ceiling. What a provider looks up by itself (its own search
tools in `provider_options`) is not in the request: it is settled in full, beyond the reservation if need be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from helix.core.config import LLMConfig
from helix.core.json import dumps
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage
from helix.engine.engine import Engine, Worst
from helix.ports.model import LLMGenerateInput, ToolSpec

PER_MESSAGE = 32
PER_TOOL = 64
WITH_TOOLS = 1024
"""Tokens that providers add: roles and separators, a tool's frame, and the instructions on how to call tools."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_FIXED = frozenset({*_LIMITS, "n", "thinking", "reasoning", "reasoning_effort"})
"""Provider options that say how long the answer is, or what it must have room for: it is not made shorter then."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """`prompt` and `output` in tokens, prices in micro-dollars per token. `shrinks`: a shorter answer may be asked for."""

    prompt: int
    output: int
    input_micros: float
    output_micros: float
    shrinks: bool = False

    @property
    def worst(self) -> Worst:
        return Worst(
            self.prompt + self.output, ceil(self.prompt * self.input_micros + self.output * self.output_micros)
        )

    def output_within(self, *, tokens: int | None, micros: int | None) -> int:
        """How long an answer there is room for."""
        found = [self.output]
        if tokens is not None:
            found.append(tokens - self.prompt)
        if micros is not None and self.output_micros > 0:
            found.append(int((micros - self.prompt * self.input_micros) / self.output_micros))
        elif micros is not None and self.prompt * self.input_micros > micros:
            return 0
        return max(0, min(found))


def bounded(engine: Engine, request: LLMGenerateInput) -> tuple[LLMGenerateInput, Estimate]:
    """The request with a limit to its answer, and the most that one attempt at it can use."""
    config, catalog = request.config, engine.catalog
    infos = [catalog.info(model) for model in models_of(config)] if catalog is not None else []
    ceiling = float(engine.settings.worst_case_micros_per_token)
    inputs = [_micros(info.worst_input_usd, info.input_usd, ceiling) for info in infos] or [ceiling]
    outputs = [_micros(info.worst_output_usd, info.output_usd, ceiling) for info in infos] or [ceiling]
    known = [info.max_output_tokens for info in infos if info.max_output_tokens is not None]
    options = config.provider_options
    limit = _option(options, _LIMITS) or config.max_output_tokens
    if limit is None:
        limit = min([engine.settings.default_output_tokens + _thinking(options), *known])
        config = config.model_copy(update={"max_output_tokens": limit})
        request = replace(request, config=config)
    copies = max(1, _option(options, ("n",)) or 1)
    prompt = prompt_tokens(request.messages, request.tools)
    estimate = Estimate(prompt, limit * copies, max(inputs), max(outputs), shrinks=not _FIXED & options.keys())
    return request, estimate


def shorter(request: LLMGenerateInput, estimate: Estimate, output: int) -> tuple[LLMGenerateInput, Estimate]:
    """The same for an answer of at most `output` tokens."""
    config = request.config.model_copy(update={"max_output_tokens": output})
    return replace(request, config=config), replace(estimate, output=output)


def models_of(config: LLMConfig) -> Sequence[str]:
    """What an adapter may call for this request: its route has chosen already."""
    return [config.model, *config.fallbacks]


def prompt_tokens(messages: Sequence[AnyMessage], tools: Sequence[ToolSpec]) -> int:
    """An upper bound of the prompt's tokens: its bytes."""
    total = sum(_message_bytes(message) + PER_MESSAGE for message in messages)
    total += sum(_bytes(t.name) + _bytes(t.description) + _bytes(dumps(t.parameters)) + PER_TOOL for t in tools)
    return total + (WITH_TOOLS if tools else 0)


def _message_bytes(message: AnyMessage) -> int:
    total = _bytes(message.content or "")
    match message:
        case AssistantMessage():
            for call in message.tool_calls:
                total += _bytes(call.id) + _bytes(call.name) + _bytes(dumps(call.arguments)) + PER_MESSAGE
            for block in message.thinking:
                total += sum(_bytes(text or "") for text in (block.text, block.signature, block.redacted))
        case ToolResultMessage():
            total += _bytes(message.tool_call_id) + _bytes(message.tool_name)
        case _:
            pass
    return total


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _micros(worst: float | None, price: float | None, ceiling: float) -> float:
    dollars = worst if worst is not None else price
    return ceiling if dollars is None else dollars * 1_000_000


def _option(options: dict[str, Any], names: Sequence[str]) -> int | None:
    found = [value for name in names if isinstance(value := options.get(name), int) and value > 0]
    return max(found, default=None)


def _thinking(options: dict[str, Any]) -> int:
    """What a model may think beside its answer, where the answer's limit must exceed it."""
    thinking = options.get("thinking")
    return _option(thinking, ("budget_tokens",)) or 0 if isinstance(thinking, dict) else 0
