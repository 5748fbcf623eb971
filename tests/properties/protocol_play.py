"""Two ways to run the verbs: a process with leases (`LocalExecutor`), and an execution that plays Step Functions.

Law of the execution: it keeps a phase and nothing else; every delivery may be repeated, doubled, late or killed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.properties.protocol_cast import WORST, Cast
from tests.properties.protocol_world import ACTOR, Actor, World

from helix.adapters.row_budgets import RowBudgets
from helix.adapters.segments import SegmentStreams
from helix.core.agents import AnyAgent
from helix.core.errors import CallerError, StoreError, WorkInProgressError
from helix.core.registry import AgentRegistry
from helix.core.rows import SessionRow
from helix.engine.announcing import announce_claim, announce_untold
from helix.engine.answers import Confirmation, answer
from helix.engine.call_model import call_model
from helix.engine.call_tool import call_tool, view_step
from helix.engine.claims import Claimed, ClaimInput, claim
from helix.engine.ends import finish_run
from helix.engine.engine import AppliedBudget, Delivery, Engine, Over, Settings, Tools
from helix.engine.hooks import HookManager
from helix.engine.run_stream import RunStream
from helix.engine.stops import watch_stops
from helix.engine.untold import read_untold
from helix.runtime.local import LocalExecutor

SETTINGS = Settings(lease_s=15, stop_poll_s=4, margin_s=1)
LAMBDA_S = 30.0
BUDGETS = (AppliedBudget("money", "micros"), AppliedBudget("tokens", "tokens"))


def budgets_of(session: SessionRow) -> list[AppliedBudget]:
    return list(BUDGETS)


class Process:
    """A process: one worker id, caches of its own, leases with heartbeats."""

    def __init__(self, world: World, cast: Cast, name: str) -> None:
        self.actor = world.actor(name)
        self.world = world
        self.executor = LocalExecutor(
            world.store,
            model=cast,
            registry=AgentRegistry(),
            budgets=budgets_of,
            clock=world.clock,
            ids=world.ids,
            settings=SETTINGS,
        )
        self.executor.engine.worst_case = lambda request: WORST
        for agent in cast.agents.values():
            self.executor.agents.know(agent)

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a caller's request; what it is refused with is its own business, other errors are defects."""
        self.world.spawn(self.actor, guarded(self.world, work))


async def guarded(world: World, work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except (CallerError, StoreError) as error:
        world.trace.append(f"  {getattr(ACTOR.get(), 'name', '?')} refused: {type(error).__name__} {error}")
    except Exception as error:
        world.violations.append(f"unexpected {type(error).__name__}: {error}")
        raise


@dataclass(eq=False)
class Delivered:
    payload: tuple[Any, ...]
    actor: Actor


@dataclass(eq=False)
class Execution:
    """`phase` is ("model", step), ("tools", step), ("finish",) or ("over",); `left` the calls not answered yet."""

    session_id: str
    run_id: str
    agent: AnyAgent
    phase: tuple[Any, ...]
    left: list[str] = field(default_factory=list)
    deliveries: list[Delivered] = field(default_factory=list)
    again: list[tuple[float, tuple[Any, ...]]] = field(default_factory=list)


class Cloud:
    """Executions by run id, and two warm workers that they run on."""

    def __init__(self, world: World, cast: Cast) -> None:
        self.world, self.cast = world, cast
        self.executions: dict[str, Execution] = {}
        self._engines = [self._engine() for _ in range(2)]
        self._n = 0

    def _engine(self) -> Engine:
        world, cast = self.world, self.cast
        engine = Engine(
            store=world.store,
            streams=SegmentStreams(world.store),
            clock=world.clock,
            ids=world.ids,
            models=lambda agent: cast,
            agents=lambda name: cast.agents[name],
            hooks=HookManager(None),
            budgets=RowBudgets(world.store),
            applied_budgets=budgets_of,
            settings=SETTINGS,
        )
        engine.worst_case = lambda request: WORST
        return engine

    def _invoke(self, name: str, work: Callable[[Engine, Delivery], Coroutine[Any, Any, Any]]) -> Actor:
        self._n += 1
        deadline = self.world.clock.now() + LAMBDA_S
        actor = self.world.actor(f"λ{self._n}.{name}", deadline)
        engine = self._engines[self._n % 2]
        self.world.spawn(actor, work(engine, Delivery(f"lambda{self._n}", deadline)))
        return actor

    # --- claims ---------------------------------------------------------------------------------------------------

    def claim(self, agent: AnyAgent, session_id: str, ask: ClaimInput) -> None:
        async def work(engine: Engine, delivery: Delivery) -> None:
            async def inner() -> None:
                await self._begin(engine, await claim(engine, agent, session_id, ask, delivery))

            await guarded(self.world, inner())

        self._invoke(ask.mode, work)

    def answer(self, agent: AnyAgent, session_id: str, confirmation: Confirmation) -> None:
        async def work(engine: Engine, delivery: Delivery) -> None:
            async def inner() -> None:
                answered = await answer(engine, agent, session_id, confirmation, delivery)
                if answered.claimed is not None:
                    await self._begin(engine, answered.claimed)

            await guarded(self.world, inner())

        self._invoke("answer", work)

    async def _begin(self, engine: Engine, claimed: Claimed) -> None:
        stream = RunStream(engine.streams, engine.clock, claimed.session, claimed.run.run_id, claimed.run.turn)
        announce_claim(stream, claimed)
        await stream.close()
        self.start(claimed.session.session_id, claimed.run.run_id, claimed.session.agent_type, claimed.run.first_step)

    def start(self, session_id: str, run_id: str, agent_type: str, step: int) -> None:
        """StartExecution, name = run id: a second start is harmless."""
        if run_id not in self.executions:
            self.executions[run_id] = Execution(session_id, run_id, self.cast.agents[agent_type], ("model", step))
            self._enter(self.executions[run_id])

    def sweep(self, session_id: str) -> None:
        """Start a claimed run whose claimer died before it did, and tell the stream what it may not have told."""

        async def work(engine: Engine, delivery: Delivery) -> None:
            async def inner() -> None:
                session = await engine.history.existing(session_id)
                run = await engine.history.run(session_id, session.run_id)
                stream = RunStream(engine.streams, engine.clock, session, run.run_id, run.turn)
                stream.put("run", mark="started", last=session.last)
                untold = await read_untold(engine, session_id, session.checkpoint)
                if untold is not None:
                    announce_untold(stream, untold)
                await stream.close()
                self.start(session_id, run.run_id, session.agent_type, run.first_step)

            await guarded(self.world, inner())

        self._invoke("sweep", work)

    # --- the state machine ----------------------------------------------------------------------------------------

    def _enter(self, execution: Execution) -> None:
        kind = execution.phase[0]
        payloads = [(*execution.phase, call) for call in execution.left] if kind == "tools" else [execution.phase]
        for payload in payloads if kind != "over" else ():
            execution.again.append((0.0, payload))

    def respond(self, execution: Execution, payload: tuple[Any, ...], outcome: Any) -> None:
        phase = execution.phase
        if payload[: len(phase)] != phase:
            return  # the answer of a delivery that its execution no longer waits for
        if phase[0] == "finish":
            execution.phase = ("over",)
        elif phase[0] == "tools":
            execution.left = [call for call in execution.left if call != payload[2]]
            if execution.left:
                return
            execution.phase = ("model", phase[1] + 1)
        elif isinstance(outcome, Over):
            execution.phase = ("finish",)
        else:
            assert isinstance(outcome, Tools)
            execution.left = list(outcome.calls)
            execution.phase = ("tools", outcome.step) if outcome.calls else ("model", outcome.step + 1)
        self._enter(execution)

    def wanted(self, execution: Execution, payload: tuple[Any, ...]) -> bool:
        same = payload[: len(execution.phase)] == execution.phase
        return same and (execution.phase[0] != "tools" or payload[2] in execution.left)

    def tick(self) -> None:
        """Repeat deliveries that died or were told to come later, and start what is due."""
        now = self.world.clock.now()
        for execution in list(self.executions.values()):
            for delivered in list(execution.deliveries):
                if not delivered.actor.busy():
                    execution.deliveries.remove(delivered)
                    still = any(d.payload == delivered.payload for d in execution.deliveries)
                    queued = any(payload == delivered.payload for _, payload in execution.again)
                    if self.wanted(execution, delivered.payload) and not still and not queued:
                        execution.again.append((now, delivered.payload))
            due = [item for item in execution.again if item[0] <= now]
            execution.again = [item for item in execution.again if item[0] > now]
            for _, payload in due:
                if self.wanted(execution, payload):
                    self.deliver(execution, payload)

    def deliver(self, execution: Execution, payload: tuple[Any, ...]) -> None:
        async def work(engine: Engine, delivery: Delivery) -> None:
            try:
                outcome = await self._handle(engine, execution, payload, delivery)
            except WorkInProgressError as held:
                execution.again.append((max(held.until, self.world.clock.now()) + 0.5, payload))
            except (StoreError, LookupError) as error:
                if not isinstance(error, (StoreError, CallerError)):
                    raise
                execution.again.append((self.world.clock.now() + 1, payload))
                if isinstance(error, CallerError):  # the session was deleted
                    execution.phase = ("over",)
            else:
                self.respond(execution, payload, outcome)

        name = f"{execution.run_id[4:10]}.{'.'.join(map(str, payload))}"
        execution.deliveries.append(Delivered(payload, self._invoke(name, work)))

    async def _handle(self, engine: Engine, execution: Execution, payload: tuple[Any, ...], delivery: Delivery) -> Any:
        sid, run_id, agent = execution.session_id, execution.run_id, execution.agent
        session = await engine.history.existing(sid)
        run = await engine.history.run(sid, run_id)
        stream = RunStream(engine.streams, engine.clock, session, run_id, run.turn)
        outcome: Any = None
        async with watch_stops(engine, session, run_id) as watch:
            if payload[0] == "model":
                outcome = await call_model(engine, agent, sid, run_id, payload[1], delivery, stream, watch)
            elif payload[0] == "tools":
                view = await view_step(engine, sid, run_id, payload[1])
                while view is not None:
                    outcome = await call_tool(engine, agent, view, payload[2], delivery, stream, watch)
                    view = await view_step(engine, sid, run_id, payload[1]) if outcome == "again" else None
            else:
                for other in await finish_run(engine, agent, sid, run_id, delivery, stream):
                    await self._begin(engine, other)
        await stream.close()
        return outcome
