"""A stage on which the deployed verbs run in one process. The test plays the platform, and delivers when it wants."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from helix import MemoryStateStore, ScriptedModel
from helix.adapters.system import SystemIds
from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery
from helix.core.measures import Measures
from helix.core.messages import ToolResultMessage
from helix.core.registry import AgentRegistry
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.engine import Engine, Settings
from helix.engine.placement import IN_FUNCTIONS
from helix.ports.launcher import ExecutionState, Part, execution_name
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.runtime import verbs
from helix.runtime.agent_models import Agents
from helix.runtime.launching import StepFunctionsExecutor
from helix.services.hook_manager import HookManager
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.testing.clocks import ShiftedClock

EVENTS: dict[str, type[BaseModel]] = {
    "call_model": verbs.CallModelEvent,
    "call_tool": verbs.CallToolEvent,
    "start_run": verbs.StartRunEvent,
    "finish_run": verbs.FinishRunEvent,
    "fail_run": verbs.FailRunEvent,
    "sweep": verbs.SweepEvent,
}
Json = dict[str, Any]


class Held:
    """A `Launcher` that starts nothing by itself. `starts` includes repeated ones, and the test sets `states`."""

    def __init__(self) -> None:
        self.starts: list[Part] = []
        self.states: dict[str, ExecutionState] = {}
        self.stopped: list[str] = []
        self.woken: list[str] = []

    async def start(self, part: Part) -> None:
        self.starts.append(part)
        self.states.setdefault(execution_name(part), "running")

    async def state(self, part: Part) -> ExecutionState:
        return self.states.get(execution_name(part), "none")

    async def stop(self, part: Part, reason: str) -> None:
        self.stopped.append(execution_name(part))

    async def wake(self, token: str) -> None:
        self.woken.append(token)


class Measured:
    """`Metrics` that are stored: `told` has (name, agent, value) in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str | None, float]] = []

    def record(self, measures: Measures) -> None:
        self.told += [(name, measures.agent, value) for name, value in measures.values.items()]

    def of(self, name: str) -> list[float]:
        return [value for told, _, value in self.told if told == name]


class Stage:
    """A stage. The engine uses `store` and `streams`. `script` may be a model, and `queue` are the options of
    `RowSlots`."""

    def __init__(
        self,
        script: Any,
        *agents: AnyAgent,
        store: StateStore | None = None,
        streams: StreamManager | None = None,
        queue: Mapping[str, Any] | None = None,
        clock: Any = None,
        **settings: Any,
    ) -> None:
        self.clock, self.held, self.measured = clock or ShiftedClock(), Held(), Measured()
        self.model = script if hasattr(script, "generate_step") else ScriptedModel(script, record=True)
        self.store = store or MemoryStateStore()
        self.slots = RowSlots(self.store, **(queue or {}))
        registry = AgentRegistry()
        for who in agents:
            registry.register(who)
        self.agents = Agents(registry, self.model)
        self.engine = Engine(
            store=self.store,
            streams=streams or SegmentStreams(self.store),
            clock=self.clock,
            ids=SystemIds(),
            models=self.agents.model_of,
            agents=self.agents.named,
            hooks=HookManager(None),
            budgets=RowBudgets(self.store),
            placement=IN_FUNCTIONS,
            launcher=self.held,
            slots=self.slots,
            metrics=self.measured,
            settings=Settings(**{"stop_poll_s": 0.01, **settings}),
        )
        self.executor = StepFunctionsExecutor(self.engine, self.agents)

    async def begin(self, who: AnyAgent) -> Json:
        """Claim a run. Return the event of its first `call_model`."""
        await self.executor.execute(who, "go")
        return event_of(self.held.starts[-1])

    async def end(self, event: Json) -> None:
        """Play the run to its end, effects included."""
        told = await self.follow(event)
        assert told["next"] == "finish"
        await self.deliver("finish_run", told)
        part = Part("agent", event["session_id"], event["run_id"], event["part"], event["step"])
        self.held.states[execution_name(part)] = "ended"

    async def deliver(self, verb: str, event: Json | None = None, *, left_s: float = 600.0) -> Any:
        delivery = Delivery(self.engine.ids.new("d"), self.clock.now() + left_s)
        parsed = EVENTS[verb].model_validate(event or {})
        return await getattr(verbs, verb)(
            SimpleNamespace(engine=self.engine, refresh_secrets=lambda: None), parsed, delivery
        )

    async def follow(self, event: Json) -> Json:
        """Deliver `call_model` and `call_tool` until another verb is next, and return its event."""
        told: Json = await self.deliver("call_model", event)
        while told["next"] in ("call_tool", "call_model"):
            if told["next"] == "call_tool":
                await self.deliver("call_tool", told)
            told = await self.deliver("call_model", told)
        return told

    async def session(self, event: Json) -> SessionRow:
        return await self.engine.history.existing(event["session_id"])

    async def run(self, event: Json) -> RunRow:
        return await self.engine.history.run(event["session_id"], event["run_id"])

    async def results(self, event: Json) -> list[tuple[str, bool]]:
        """Return (content, success) of the session's tool results, in history's order."""
        messages = await self.executor.sessions.load_conversation_messages(event["session_id"])
        return [(m.content, m.success) for m in messages if isinstance(m, ToolResultMessage)]


def event_of(part: Part) -> Json:
    place = {"session_id": part.session_id, "run_id": part.run_id, "part": part.part}
    return {**place, "step": part.step, "events": 0}
