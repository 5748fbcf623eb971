"""Two ways to run the verbs: a process (`LocalExecutor`), and an execution that plays Step Functions.

Law of the execution: it keeps only a phase. Every delivery may be repeated, doubled, late or killed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from tests.properties.protocol_cast import WORST, Cast
from tests.properties.protocol_world import ACTOR, Actor, World

from helix.core.delivery import Delivery, Position
from helix.core.errors import CallerError, StoreError, WorkInProgressError
from helix.core.registry import AgentRegistry
from helix.engine.claims.liveness import delivery_owner, expire_claims
from helix.engine.engine import Engine, Settings
from helix.engine.placement import IN_FUNCTIONS, Placement
from helix.engine.verbs import (
    Move,
    deliver_call,
    deliver_child,
    deliver_end,
    deliver_failure,
    deliver_model,
)
from helix.ports.launcher import ExecutionState, Part, execution_name
from helix.runtime.agent_models import Agents
from helix.runtime.launching import StepFunctionsExecutor
from helix.runtime.local import LocalExecutor
from helix.services.hook_manager import HookManager
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.sessions.sweep import sweep

SETTINGS = Settings(claim_s=15, stop_poll_s=4, roll_over_events=140, step_time_s=5)
MARGIN_S = SETTINGS.margin_s
LAMBDA_S, QUEUE_S = 45.0, 90.0
LAMBDA = "λ"
"""The prefixes of the names of deliveries."""


class Process:
    """A process with its own worker id, caches and clock."""

    def __init__(self, world: World, cast: Cast, name: str, skew: float = 0.0) -> None:
        self.actor = world.actor(name)
        self.actor.skew = skew
        self.world = world
        self.executor = LocalExecutor(
            world.store,
            model=cast,
            registry=AgentRegistry(),
            clock=world.clock,
            ids=world.ids,
            settings=replace(SETTINGS, calls_at_once=world.calls_at_once),
        )
        self.actor.holds = self.executor._delivery().owner
        self.executor.engine.worst_case = lambda request: WORST
        for agent in cast.agents.values():
            self.executor.agents.know(agent)

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a caller's request. A refusal is the caller's affair, and any other error is a defect."""
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
    """An execution. `phase` is ("model", step), ("tools", step), ("finish",) or ("over",). `left` are the unanswered calls,
    each with its verb. `tokens` are the task tokens for which the calls of sub-agents wait."""

    name: str
    part: Part
    phase: tuple[Any, ...]
    events: int = 0
    left: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    deliveries: list[Delivered] = field(default_factory=list)
    again: list[tuple[float, tuple[Any, ...]]] = field(default_factory=list)

    @property
    def session_id(self) -> str:
        return self.part.session_id

    @property
    def run_id(self) -> str:
        return self.part.run_id


class Cloud:
    """Executions by name, the launcher that starts them, and two warm workers for them. `slots` is the number of runs that
    may execute at once, and None means no limit."""

    def __init__(self, world: World, cast: Cast, slots: int | None = None) -> None:
        self.world, self.cast, self.slots = world, cast, slots
        self.executions: dict[str, Execution] = {}
        self._engines = [self._engine() for _ in range(2)]
        self.skews = [0.0, 0.0]
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
            placement=IN_FUNCTIONS,
            launcher=self,
            slots=RowSlots(world.store, account_limit=self.slots, queue_timeout_s=QUEUE_S) if self.slots else None,
            settings=SETTINGS,
        )
        engine.worst_case = lambda request: WORST
        return engine

    def plays(self, placement: Placement, steps: int | None) -> None:
        for engine in self._engines:
            engine.placement, engine.settings = placement, replace(engine.settings, steps_per_invocation=steps)

    def holds(self, calls_at_once: int) -> None:
        for engine in self._engines:
            engine.settings = replace(engine.settings, calls_at_once=calls_at_once)

    def _invoke(self, name: str, work: Callable[[Engine, Delivery], Coroutine[Any, Any, Any]]) -> Actor:
        self._n += 1
        deadline = self.world.clock.time + LAMBDA_S
        actor = self.world.actor(f"{LAMBDA}{self._n}.{name}", deadline)
        actor.owner, actor.skew = f"lambda{self._n}", self.skews[self._n % 2]
        engine = self._engines[self._n % 2]
        delivery = Delivery(delivery_owner(actor.owner, "1"), deadline + actor.skew)
        actor.holds = delivery.owner
        self.world.spawn(actor, work(engine, delivery))
        return actor

    def expire(self, session_id: str, dead: Actor) -> None:
        """Expire the claims of this worker, as a supervisor that knows of its death."""
        assert dead.dead and dead.owner is not None
        worker = dead.owner
        self._invoke("expire", lambda engine, _: guarded(self.world, expire_claims(engine, session_id, worker)))

    # --- the launcher ---------------------------------------------------------------------------------------------

    async def start(self, part: Part) -> None:
        fate = await self.world.gate("write", "start_execution")
        if fate == "lost":
            raise StoreError("the start was lost")
        name = execution_name(part)
        if name not in self.executions:
            self.executions[name] = Execution(name, part, ("model", part.step))
            self._enter(self.executions[name])
        elif self.executions[name].part != part:
            self.world.violations.append(f"{name} was started as {self.executions[name].part} and again as {part}")
        if fate == "unanswered":
            raise StoreError("the start was not answered")

    async def state(self, part: Part) -> ExecutionState:
        execution = self.executions.get(execution_name(part))
        if execution is None:
            return "none"
        return "ended" if execution.phase == ("over",) else "running"

    async def stop(self, part: Part, reason: str) -> None:
        execution = self.executions.get(execution_name(part))
        if execution is not None:
            execution.phase, execution.again = ("over",), []

    async def wake(self, token: str) -> None:
        fate = await self.world.gate("write", "send_task_success")
        if fate == "lost":
            raise StoreError("the wake-up was lost")
        for execution in self.executions.values():
            for call_id, waits in execution.tokens.items():
                if waits == token and execution.phase[0] == "tools" and call_id in execution.left:
                    self._answered(execution, call_id)
                    break
        if fate == "unanswered":
            raise StoreError("the wake-up was not answered")

    # --- requests -------------------------------------------------------------------------------------------------

    def do(self, name: str, ask: Callable[[StepFunctionsExecutor], Coroutine[Any, Any, Any]]) -> None:
        """Handle a caller's request in its own function."""

        async def work(engine: Engine, delivery: Delivery) -> None:
            agents = Agents(AgentRegistry(), self.cast)
            for agent in self.cast.agents.values():
                agents.know(agent)
            await guarded(self.world, ask(StepFunctionsExecutor(engine, agents)))

        self._invoke(name, work)

    def sweep(self) -> None:
        self._invoke("sweep", lambda engine, delivery: guarded(self.world, sweep(engine, delivery)))

    def kill(self, execution: Execution, told: bool) -> None:
        """End the execution from outside. Its status event may be lost."""
        execution.phase, execution.again = ("over",), []
        if told:
            self.fail(execution)

    def fail(self, execution: Execution) -> None:
        part = execution.part
        position = Position(part.session_id, part.run_id, part.part, 0)
        self._invoke(
            "fail_run",
            lambda engine, delivery: guarded(
                self.world,
                deliver_failure(engine, position, "ABORTED", delivery),
            ),
        )

    # --- the state machine ----------------------------------------------------------------------------------------

    def _enter(self, execution: Execution) -> None:
        if execution.phase[0] == "tools":
            payloads = [self._payload(execution, call_id) for call_id in execution.left]
        else:
            payloads = [execution.phase] if execution.phase != ("over",) else []
        execution.again.extend((0.0, payload) for payload in payloads)

    def _payload(self, execution: Execution, call_id: str) -> tuple[Any, ...]:
        step, kind = execution.phase[1], execution.left[call_id]
        if kind == "call_tool":
            return ("tools", step, call_id)
        self._n += 1
        execution.tokens[call_id] = f"token{self._n}"  # each attempt has its own
        return ("child", step, call_id, execution.tokens[call_id])

    def _answered(self, execution: Execution, call_id: str) -> None:
        execution.left.pop(call_id, None)
        execution.tokens.pop(call_id, None)
        if not execution.left:
            execution.phase = ("model", execution.phase[1] + 1)
            self._enter(execution)

    def respond(self, execution: Execution, payload: tuple[Any, ...], outcome: Any) -> None:
        if not self.wanted(execution, payload):
            return  # the answer of a delivery for which its execution no longer waits
        if payload[0] == "finish":
            execution.phase = ("over",)
        elif payload[0] == "tools":
            self._answered(execution, payload[2])
        elif payload[0] == "model":
            assert isinstance(outcome, Move)
            execution.events = outcome.events
            if outcome.kind != "on":
                execution.phase = ("finish",) if outcome.kind == "over" else ("over",)
            else:
                execution.left = {call.call_id: call.kind for call in outcome.calls}
                execution.phase = ("tools", outcome.step - 1) if outcome.calls else ("model", outcome.step)
            self._enter(execution)

    def wanted(self, execution: Execution, payload: tuple[Any, ...]) -> bool:
        if payload[0] not in ("tools", "child"):
            return payload == execution.phase
        if execution.phase[:2] != ("tools", payload[1]) or payload[2] not in execution.left:
            return False
        return payload[0] == "tools" or execution.tokens.get(payload[2]) == payload[3]

    def tick(self) -> None:
        """Repeat deliveries that died or were asked to retry later, and start those that have come due."""
        now = self.world.clock.time
        for execution in list(self.executions.values()):
            for delivered in list(execution.deliveries):
                if not delivered.actor.busy():
                    execution.deliveries.remove(delivered)
                    if delivered.actor.dead:
                        self._later(execution, delivered.payload, now)
            due = [item for item in execution.again if item[0] <= now]
            execution.again = [item for item in execution.again if item[0] > now]
            for _, payload in due:
                if self.wanted(execution, payload):
                    self.deliver(execution, payload)

    def _later(self, execution: Execution, payload: tuple[Any, ...], when: float) -> None:
        """Retry a task, unless another delivery of it is under way."""
        still = any(d.payload == payload and d.actor.busy() for d in execution.deliveries)
        queued = any(other == payload for _, other in execution.again)
        if self.wanted(execution, payload) and not still and not queued:
            retried = self._payload(execution, payload[2]) if payload[0] == "child" else payload
            execution.again.append((when, retried))

    def deliver(self, execution: Execution, payload: tuple[Any, ...]) -> None:
        async def work(engine: Engine, delivery: Delivery) -> None:
            try:
                outcome = await self._handle(engine, execution, payload, delivery)
            except WorkInProgressError as held:
                wait = max(0.0, held.until - self.world.clock.now())
                self._retry(execution, payload, self.world.clock.time + wait + 0.5)
            except StoreError:
                self._retry(execution, payload, self.world.clock.time + 1)
            except CallerError:  # the session was deleted during its work
                execution.phase = ("over",)
            else:
                self.respond(execution, payload, outcome)

        name = f"{execution.name[4:10]}.{'.'.join(map(str, payload))}"
        execution.deliveries.append(Delivered(payload, self._invoke(name, work)))

    def _retry(self, execution: Execution, payload: tuple[Any, ...], when: float) -> None:
        if self.wanted(execution, payload):
            retried = self._payload(execution, payload[2]) if payload[0] == "child" else payload
            execution.again.append((when, retried))

    async def _handle(self, engine: Engine, execution: Execution, payload: tuple[Any, ...], delivery: Delivery) -> Any:
        part = execution.part
        step = payload[1] if len(payload) > 1 else 0
        position = Position(part.session_id, part.run_id, part.part, step, execution.events)
        match payload[0]:
            case "model":
                return await deliver_model(engine, position, delivery)
            case "tools":
                return await deliver_call(engine, position, payload[2], delivery)
            case "child":
                return await deliver_child(engine, position, payload[2], payload[3], delivery)
            case _:
                return await deliver_end(engine, part.session_id, part.run_id, delivery)
