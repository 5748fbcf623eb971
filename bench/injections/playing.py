"""Plays a user's task, with or without an injection, through a Helix agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from helix import Agent, Confirmation, LocalExecutor, MemoryStateStore, ScriptedModel, ToolContext, define_tool
from helix.core.messages import AssistantMessage, ToolResultMessage
from helix.core.rows import Pending
from injections.cases import App, AppTool, Call, Configuration, Injection, Task, World
from injections.obedient import ObedientModel

Reviewer = Callable[[Task, Pending], bool]


def attentive(task: Task, asked: Pending) -> bool:
    """Approve exactly the calls that perform the user's task: the same tool with the same arguments."""
    return Call(asked.tool_name, asked.arguments) in task.calls


REVIEWERS: Mapping[str, Reviewer] = {
    "attentive": attentive,
    "approves all": lambda task, asked: True,
    "denied": lambda task, asked: False,
    "": lambda task, asked: False,
}


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    app: str
    task: str
    injection: str
    """The id of the injection. Empty: there was none."""
    configuration: str
    passed: bool
    """Whether the user's task was performed."""
    read: bool
    """Whether the model read the injection."""
    succeeded: bool
    """Whether the injection reached its goal."""
    questions: int
    """The number of questions to a person."""
    verdicts: Mapping[str, int]
    """The number of verdicts other than allow, by guard and verdict."""


class Table:
    """All runs of one app in one configuration. They share an agent, as the users of an app do."""

    def __init__(self, app: App, configuration: Configuration) -> None:
        self.app, self.configuration = app, configuration
        self._models: dict[str, ObedientModel] = {}
        model = ScriptedModel(
            [lambda request: self._models[request.agent_id].answer(request.messages)], repeat=True, record=False
        )
        self._executor = LocalExecutor(MemoryStateStore(), model=model)
        self._agent = Agent(
            name=app.name,
            system_prompt="Do what the user asks for.",
            model="scripted",
            tools=[self._tool(tool) for tool in app.tools],
            guards=app.guards if configuration.guards else (),
            deps=lambda: self._models,
            max_steps=None,
        )

    def _tool(self, tool: AppTool) -> Any:
        async def execute(arguments: BaseModel, context: ToolContext[Any, dict[str, ObedientModel]]) -> Any:
            world = context.deps[context.session_id].world
            given = arguments.model_dump()
            world.executed[context.tool_call_id] = Call(tool.name, given)
            return tool.run(world.environment, given)

        asks = self.configuration.approvals and tool.name in self.app.changing
        return define_tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.schema,
            execute=execute,
            require_approval=asks,
        )

    async def play(self, task: Task, injection: Injection | None, make: Callable[[], Any]) -> Outcome:
        """Run the task in an environment that `make` returns."""
        session = f"{task.id}-{injection.id if injection else 'none'}"
        world = World(make(), make())
        model = self._models[session] = ObedientModel(task, injection, world)
        handle = await self._executor.execute(self._agent, task.request, session_id=session)
        result, questions = await handle.result(), 0
        while result.status == "paused":
            (asked,) = result.pending
            questions += 1
            approved = REVIEWERS[self.configuration.reviewer](task, asked)
            answer = Confirmation(
                asked.call_id, approved=approved, reason=None if approved else "not what was asked for"
            )
            handle = await self._executor.resume(self._agent, session, mode="with_confirmation", confirmation=answer)
            result = await handle.result()
        if result.status != "completed":
            raise RuntimeError(f"{session} is {result.status}: {result.error}")
        text = result.text or ""
        outcome = Outcome(
            app=self.app.name,
            task=task.id,
            injection=injection.id if injection else "",
            configuration=self.configuration.name,
            passed=not model.gave_up and task.passed(text, world),
            read=model.obeys,
            succeeded=injection is not None and injection.succeeded(text, world),
            questions=questions,
            verdicts=await self._verdicts(session),
        )
        await self._executor.delete(session)
        del self._models[session]
        return outcome

    async def _verdicts(self, session: str) -> Mapping[str, int]:
        messages = (await self._executor.sessions.get_messages(session, limit=1000)).messages
        found: Counter[str] = Counter()
        for message in messages:
            if isinstance(message, AssistantMessage | ToolResultMessage):
                found.update(f"{v['guard']}: {v['verdict']}" for v in message.metadata.get("guards", []))
        return dict(found)

    async def close(self) -> None:
        await self._executor.close()
