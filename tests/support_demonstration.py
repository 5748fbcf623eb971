"""A small library, agents that search it, and a run that drives the demonstration model over their tools."""

import inspect
import json
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic_core import to_json

from helix.adapters.models.demo import MAX_ANSWERS, DemonstrationModel
from helix.adapters.models.evidence import keywords, stem
from helix.adapters.models.playback import calls_in_order
from helix.core.agents import Agent
from helix.core.config import LLMConfig
from helix.core.context import create_tool_context
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.steps import TextStepResult, ToolCallsStepResult
from helix.core.tools import FINISH_TOOL_NAME, create_sub_agent_tool, tool
from helix.ports.model import LLMGenerateInput, ToolSpec

PAGES = {
    "storage/leases.md": "# Leases\n\nA lease names the worker that holds a step. A lease lapses after fifteen seconds "
    "without renewal. Then another worker may claim the step.",
    "cooking/soup.md": "# Soup\n\nA good soup simmers for two hours. Add the salt at the end of the cooking time.",
}


class Hit(BaseModel):
    path: str
    line: int
    snippet: str


@tool
def search_pages(query: str, limit: int = 5) -> list[Hit]:
    """Search the pages."""
    wanted = {stem(w) for w in query.split()}
    return [
        Hit(path=path, line=1, snippet=text[:60])
        for path, text in PAGES.items()
        if wanted & {stem(w) for w in keywords(text, 99)}
    ][:limit]


@tool
def read_page(path: str, start_line: int = 1) -> str:
    """Read a page."""
    return PAGES[path]


class Answer(BaseModel):
    summary: str
    sources: list[str]
    confidence: float = Field(ge=0, le=1)
    topics: list[str] = []


class Verdict(BaseModel):
    verdict: Literal["unsupported", "supported"]
    quote: str = Field(max_length=200)


def agent(**options: Any) -> Agent[Any, Any]:
    return Agent(**{"name": "a", "system_prompt": "p", "llm_config": LLMConfig(model="m"), **options})


class Run:
    """A run that drives the model over an agent's real tools, as an engine would."""

    def __init__(self, agent: Agent[Any, Any], model: DemonstrationModel | None = None) -> None:
        self.agent, self.model = agent, model or DemonstrationModel(delta_delay_s=0)
        self.messages: list[AnyMessage] = [SystemMessage(content="p")]
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []
        self.answers = 0

    async def ask(self, message: str) -> Any:
        self.messages.append(UserMessage(content=message))
        for _ in range(MAX_ANSWERS):
            result = await self.model.generate_step(self.request())
            self.answers += 1
            assert isinstance(result, (TextStepResult, ToolCallsStepResult))
            self.texts.append(result.content or "")
            if isinstance(result, TextStepResult):
                self.messages.append(AssistantMessage(content=result.content))
                return result.content
            calls = calls_in_order(result)
            requests = [ToolCallRequest(id=c.id, name=c.name, arguments=c.arguments) for c in calls]
            self.messages.append(AssistantMessage(content=result.content, tool_calls=requests))
            for call in calls:
                if call.name == FINISH_TOOL_NAME:
                    assert self.agent.finish_tool is not None
                    return self.agent.finish_tool.input_schema.model_validate(call.arguments)
                self.called.append((call.name, dict(call.arguments)))
                content, success = await self.execute(call.name, call.arguments)
                self.messages.append(
                    ToolResultMessage(tool_call_id=call.id, tool_name=call.name, content=content, success=success)
                )
        raise AssertionError(f"no end within {MAX_ANSWERS} answers: {self.called}")

    def request(self, **options: Any) -> LLMGenerateInput:
        tools = [*self.agent.tools, *([self.agent.finish_tool] if self.agent.finish_tool else [])]
        specs = [ToolSpec(t.name, t.description, t.parameters) for t in tools]
        config = LLMConfig(model="demonstration")
        options = {"messages": tuple(self.messages), "tools": specs, **options}
        return LLMGenerateInput(config=config, agent_id="ses_1", agent_type=self.agent.name, **options)

    async def execute(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        found = self.agent.find_tool(name)
        assert found is not None
        try:
            value: Any = found.input_schema.model_validate(arguments)
            if found.agent is not None:
                child = Run(found.agent)
                value = await child.ask(json.dumps(arguments))
            else:
                assert found.execute is not None
                value = found.execute(value, create_tool_context(agent_id="ses_1", agent_type="a"))
                value = await value if inspect.isawaitable(value) else value
        except Exception as error:
            return json.dumps({"error": str(error)}), False
        return value if isinstance(value, str) else to_json(value).decode(), True


CHECKER = agent(name="checker", tools=[search_pages], output_schema=Verdict)
LIBRARIAN = agent(tools=[search_pages, read_page, create_sub_agent_tool(CHECKER)], output_schema=Answer)
