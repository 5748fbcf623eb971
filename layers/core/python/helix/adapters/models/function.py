"""The model of a function agent, which is not a real model: it turns the user's message into a single call of the
function.

Law: pure. The same messages produce the same answer in every process, so a resumed run repeats its decision.
"""

from __future__ import annotations

from helix.adapters.models.playback import notify
from helix.core.agents import AnyAgent
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.functions import plan_function_call
from helix.core.json import loads
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, UserMessage
from helix.core.steps import (
    AnyStepResult,
    ErrorStepResult,
    ParsedToolCall,
    StopReason,
    TextStepResult,
    ToolCallsStepResult,
)
from helix.ports.catalog import ModelCatalog
from helix.ports.model import BaseAdapter, LLMGenerateInput

MODEL = "function"


class FunctionModel(BaseAdapter):
    """The adapter of one function agent. It costs nothing and uses no tokens."""

    def __init__(self, agent: AnyAgent) -> None:
        if agent.function is None:
            raise DefinitionError(f"agent {agent.name!r}", "function", "FunctionModel plays function agents only")
        self._agent, self._function = agent, agent.function

    def unsupported(self, request: LLMGenerateInput, catalog: ModelCatalog | None) -> str | None:
        return None  # a program accepts all files, and reads none

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        result = self._answer(request.lasting[-1], sum(isinstance(m, AssistantMessage) for m in request.messages))
        if isinstance(result, ToolCallsStepResult):
            await notify(request.callbacks.on_tool_call, result.tool_calls[0])
        return result

    def _answer(self, last: AnyMessage, answers_before: int) -> AnyStepResult:
        match last:
            case ToolResultMessage(success=False):
                return _failed(_error_text(last.content), "function_failed")
            case UserMessage():
                try:
                    arguments = plan_function_call(self._agent, last.content)
                except InvalidInputError as error:
                    return _failed(str(error), "invalid_input")
                # Call ids are unique in a session, and a session may hold many runs.
                call = ParsedToolCall(id=f"call_{answers_before}", name=self._function.name, arguments=arguments)
                return ToolCallsStepResult(tool_calls=[call], model=MODEL, stop_reason=StopReason.TOOL_USE)
            case _:
                return TextStepResult(content=last.content or "", model=MODEL, stop_reason=StopReason.END_TURN)


def _failed(error: str, code: str) -> ErrorStepResult:
    return ErrorStepResult(error=error, code=code, model=MODEL, stop_reason=StopReason.ERROR)


def _error_text(content: str) -> str:
    """Return the message of a failed result `{"error": message}`. Any other content is returned unchanged."""
    try:
        value = loads(content)
    except ValueError:
        return content
    return str(value["error"]) if isinstance(value, dict) and "error" in value else content
