"""The reasoning from earlier steps, which is sent only to the model that produced it.

Law: a model receives only its own reasoning. Providers sign or encrypt it, and refuse another model's reasoning. The
stored message names its model. Reasoning from an unknown model is sent, because most sessions use only one model. If a
provider refuses reasoning anyway, the step is requested once more without any. Its answer records that
(`without_reasoning`), and all older reasoning is omitted from later steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helix.core.config import LLMConfig
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, UserMessage
from helix.core.server_tools import with_known_blocks
from helix.ports.model import LLMGenerateInput

WITHOUT_REASONING = "without_reasoning"
_SIGNED_ID = "__thought__"
"""The marker in a call's id. litellm puts Gemini's signature after it."""


def request_for(request: LLMGenerateInput, model: str, *, without: bool = False) -> LLMGenerateInput:
    """Return the request with only the reasoning that `model` accepts. `without`: omit all reasoning.

    If Claude thinks, a turn of calls that it continues must begin with its own thinking. If that thinking is omitted,
    Claude is told not to think in this step.
    """
    first = _find_last_refusal(request.messages)
    messages: list[AnyMessage] = []
    renamed: dict[str, str] = {}
    begins, interrupted = True, False
    for index, message in enumerate(request.messages):
        match message:
            case UserMessage():
                begins, interrupted = True, False
            case AssistantMessage():
                if without or index < first or message.metadata.get("model") not in (None, model):
                    message = _without_reasoning(message, renamed)
                    interrupted = interrupted or begins
                if message.server_blocks:
                    last = index == len(request.messages) - 1
                    message = with_known_blocks(message, request.config.server_tools, last=last)
                begins = False
            case ToolResultMessage() if message.tool_call_id in renamed:
                message = message.model_copy(update={"tool_call_id": renamed[message.tool_call_id]})
        messages.append(message)
    config = _disable_thinking(request.config) if interrupted and is_claude(model) else request.config
    return replace(request, messages=messages, config=config)


def is_claude(model: str, provider: str = "") -> bool:
    """Return whether the model is one of Anthropic's, on any provider. They have signed thinking and cache marks.
    `provider` is litellm's name."""
    return provider == "anthropic" or model.startswith("anthropic/") or "claude" in model.lower()


def _find_last_refusal(messages: Sequence[AnyMessage]) -> int:
    """Return the index of the newest answer that was given without the reasoning before it."""
    refused = (
        index
        for index, message in enumerate(messages)
        if isinstance(message, AssistantMessage) and message.metadata.get(WITHOUT_REASONING)
    )
    return max(refused, default=0)


def _without_reasoning(message: AssistantMessage, renamed: dict[str, str]) -> AssistantMessage:
    """Return the message without reasoning. `renamed` receives the ids whose signature was removed."""
    calls = []
    for call in message.tool_calls:
        plain, mark, _ = call.id.partition(_SIGNED_ID)
        if mark:
            renamed[call.id] = plain
            call = call.model_copy(update={"id": plain})
        calls.append(call)
    plain_citations = [citation.model_copy(update={"raw": {}}) for citation in message.citations]
    return message.model_copy(
        update={"thinking": [], "tool_calls": calls, "server_blocks": [], "citations": plain_citations}
    )


def _disable_thinking(config: LLMConfig) -> LLMConfig:
    options = {name: value for name, value in config.provider_options.items() if name not in _ASKS_TO_THINK}
    return config.model_copy(update={"provider_options": options, "reasoning": None})


_ASKS_TO_THINK = frozenset({"thinking", "reasoning_effort"})
