"""One engine with manual deliveries, and a store in which things happen in between, for protocol scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from tests.properties.protocol_play import SETTINGS

from helix.adapters.memory import MemoryStateStore
from helix.adapters.models.scripted import ScriptedModel
from helix.core.agents import Agent, AnyAgent
from helix.core.budget import BudgetDefinition
from helix.core.config import LLMConfig
from helix.core.context import ToolContext
from helix.core.delivery import Delivery
from helix.core.entries import CallRow
from helix.core.periods import TokenPeriod
from helix.core.session_row import SessionRow
from helix.core.status import ClaimMode
from helix.core.tools import create_sub_agent_tool, tool
from helix.engine.calls.tool import call_tool, view_step
from helix.engine.claims.claim import Claimed, claim
from helix.engine.context import RunContext, make_context
from helix.engine.engine import Engine, Outcome
from helix.engine.placement import IN_FUNCTIONS, IN_PROCESS
from helix.engine.steps.buy import buy_step
from helix.ports.state_store import Operation
from helix.services.claim_input import ClaimInput
from helix.services.hook_manager import HookManager
from helix.services.row_budgets import RowBudgets
from helix.services.segments import SegmentStreams


class Answer(BaseModel):
    answer: str


@tool(on_unknown="retry", timeout_s=20)
async def free(ctx: ToolContext) -> str:
    """Does no harm."""
    return "free done"


@tool(require_approval=True)
async def gated(ctx: ToolContext) -> str:
    """Needs a person."""
    return "gated done"


CONFIG = LLMConfig(model="scripted")
HELPER: AnyAgent = Agent(name="helper", system_prompt="help", tools=[gated], output_schema=Answer, llm_config=CONFIG)
SOLO: AnyAgent = Agent(name="solo", system_prompt="work", tools=[free, gated], llm_config=CONFIG)
BOSS: AnyAgent = Agent(
    name="boss", system_prompt="lead", tools=[free, gated, create_sub_agent_tool(HELPER)], llm_config=CONFIG
)


class Clock:
    time = 1000.0

    def now(self) -> float:
        self.time += 0.001
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Ids:
    n = 0

    def new(self, prefix: str) -> str:
        self.n += 1
        return f"{prefix}_{self.n:026d}"


class Between(MemoryStateStore):
    """A store in which something happens between the reads and the writes of a verb: right before the transaction of that
    name."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Any] = {}

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        happens = self.before.pop(name, None)
        if happens is not None:
            await happens()
        await super().transact(name, operations)


class World:
    """A world in which Lambda-style deliveries of one engine are made by hand."""

    def __init__(self, script: Any) -> None:
        self.store, self.clock = Between(), Clock()
        model = ScriptedModel(script, by="position")
        agents = {agent.name: agent for agent in (SOLO, BOSS, HELPER)}
        self.engine = Engine(
            store=self.store,
            streams=SegmentStreams(self.store),
            clock=self.clock,
            ids=Ids(),
            models=lambda agent: model,
            agents=lambda name: agents[name],
            hooks=HookManager(None),
            budgets=RowBudgets(self.store),
            settings=SETTINGS,
            placement=IN_FUNCTIONS,
        )
        self.owners = 0

    def delivery(self, seconds: float = 30) -> Delivery:
        self.owners += 1
        return Delivery(f"lambda{self.owners}", self.clock.time + seconds)

    def worker(self) -> Delivery:
        self.owners += 1
        self.engine.placement = IN_PROCESS
        return Delivery(f"worker{self.owners}", self.clock.time + 3600)

    async def claim(
        self,
        agent: AnyAgent,
        mode: ClaimMode = "execute",
        message: str | None = None,
        *,
        delivery: Delivery | None = None,
    ) -> Claimed:
        return await claim(self.engine, agent, "s", ClaimInput(mode, message), delivery or self.delivery())

    async def context(self, agent: AnyAgent, run_id: str, delivery: Delivery | None = None) -> RunContext:
        run = make_context(self.engine, agent, await self.session(), None, delivery or self.delivery())
        run.run_id = run_id
        return run

    async def model(self, agent: AnyAgent, run_id: str, step: int, delivery: Delivery | None = None) -> Outcome:
        run = await self.context(agent, run_id, delivery)
        outcome = await buy_step(run, step)
        await run.stream.close()
        return outcome

    async def tool(
        self, agent: AnyAgent, run_id: str, step: int, call_id: str, delivery: Delivery | None = None
    ) -> str:
        run = await self.context(agent, run_id, delivery)
        view = await view_step(self.engine, "s", run_id, step)
        assert view is not None
        progress = await call_tool(run, view, call_id)
        await run.stream.close()
        return progress

    async def session(self, session_id: str = "s") -> SessionRow:
        return await self.engine.history.existing(session_id)

    async def row(self, call_id: str) -> CallRow:
        """Return the call's row in the open step."""
        rows = await self.engine.history.open_rows(await self.session())
        assert rows is not None
        return next(row for row in rows.calls if row is not None and row.call_id == call_id)

    async def call(self, place: int) -> CallRow:
        session = await self.session()
        rows = await self.engine.history.entries(
            "s", await self.engine.history.lineage("s", session.lineage), 0, session.count
        )
        row = rows[place]
        assert isinstance(row, CallRow)
        return row

    async def tool_ends(self) -> list[str]:
        messages = await self.engine.streams.read("s")
        chunks = [m.chunk for m in messages if m.chunk is not None]
        return [chunk["tool_call_id"] for chunk in chunks if chunk["type"] == "tool_end"]  # type: ignore[misc]

    async def remaining(self) -> int:
        (state,) = await self.engine.budgets.get([MONEY.window(0)[0]])
        return MONEY.limit if state is None else state.remaining


MONEY = BudgetDefinition(scope="global", period=TokenPeriod.TOTAL, unit="micros", limit=1000)


class Death(BaseException):
    """The process dies here."""


def kid(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "name": "subagent__helper", "arguments": {"message": "go"}}


def calls(*names: str) -> dict[str, Any]:
    return {"tool_calls": [{"id": f"call_{i}", "name": name, "arguments": {}} for i, name in enumerate(names)]}
