"""The provider for documents: the demonstration model answers requests of the Chat Completions API."""

from __future__ import annotations

import json
from typing import Any

from helix import DemonstrationModel, LLMConfig
from helix.adapters.models.playback import calls_in_order
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.steps import ToolCallsStepResult
from helix.ports.model import LLMGenerateInput, ToolSpec
from helix.testing.openai_server import ModelAnswer, ModelToolCall, ModelUsage


def heard(request: dict[str, Any]) -> LLMGenerateInput:
    """Convert a Chat Completions request to the input of the model port."""
    messages: list[AnyMessage] = []
    names: dict[str, str] = {}
    for said in request["messages"]:
        content = said.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        match said["role"]:
            case "system":
                messages.append(SystemMessage(content=text))
            case "user":
                messages.append(UserMessage(content=text))
            case "tool":
                success = not text.startswith('{"error"')
                call = said["tool_call_id"]
                messages.append(
                    ToolResultMessage(tool_call_id=call, tool_name=names[call], content=text, success=success)
                )
            case "assistant":
                calls = []
                for call in said.get("tool_calls") or []:
                    names[call["id"]] = call["function"]["name"]
                    arguments = json.loads(call["function"]["arguments"] or "{}")
                    calls.append(ToolCallRequest(id=call["id"], name=call["function"]["name"], arguments=arguments))
                messages.append(AssistantMessage(content=text, tool_calls=calls))
    tools = [t["function"] for t in request.get("tools") or []]
    choice = request.get("tool_choice") or "auto"
    return LLMGenerateInput(
        messages=messages,
        tools=[ToolSpec(t["name"], t.get("description", ""), t["parameters"]) for t in tools],
        config=LLMConfig(model="demonstration"),
        agent_id="",
        agent_type="",
        tool_choice=choice if isinstance(choice, str) else choice["function"]["name"],
    )


async def play(request: dict[str, Any]) -> ModelAnswer:
    result = await DemonstrationModel(delta_delay_s=0).generate_step(heard(request))
    calls = calls_in_order(result) if isinstance(result, ToolCallsStepResult) else []
    return ModelAnswer(
        text=getattr(result, "content", "") or "",
        tool_calls=[ModelToolCall(call.name, call.arguments, call.id) for call in calls],
        usage=ModelUsage(result.usage.prompt_tokens, result.usage.completion_tokens),
    )
