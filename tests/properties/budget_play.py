"""Concurrent runs that buy model calls. One store call at a time is allowed, in an order that a seed decides.

The engine's own functions run (bind, reserve, settle, return) on rows that only the run's worker writes. A worker may die
before or after any store call. Another worker then ends its run, as in a takeover, and may die as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any, TypeVar

import pytest

from helix import Agent, LLMConfig
from helix.core.budget import BudgetDefinition
from helix.core.delivery import Delivery
from helix.core.errors import ConditionFailedError
from helix.core.messages import SystemMessage
from helix.core.row_keys import run_sort
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow, StepClaim
from helix.core.status import EndStatus
from helix.core.usage import Usage
from helix.engine.context import make_context
from helix.engine.engine import Engine, Settings, Worst
from helix.engine.history import row_key, session_key
from helix.engine.money.bounds import bind
from helix.engine.money.reservations import Refused, Reserved, reserve, return_draws, settle
from helix.engine.placement import IN_FUNCTIONS
from helix.engine.writing import End, advance, at_version, end, session_put
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Key, Operation, Put, Row, StateStore, Table, Value, Watch
from helix.services import committing
from helix.services.hook_manager import HookManager
from helix.services.row_budgets import RowBudgets
from helix.services.segments import SegmentStreams
from helix.testing.clocks import SetClock

T = TypeVar("T")
WORKER = Agent(name="worker", system_prompt="Work.", llm_config=LLMConfig(model="priced"))
ASKED = LLMGenerateInput([SystemMessage(content="go")], [], LLMConfig(model="priced"), "s", "worker")


class Death(BaseException):
    """The worker has died."""


class Turns:
    """Allows one waiting store call at a time. `deaths` is the number of workers that may still die."""

    def __init__(self, rng: Random, deaths: int) -> None:
        self.rng, self.deaths = rng, deaths
        self.waiting: dict[int, asyncio.Future[str]] = {}
        self._changed = asyncio.Event()
        self._n = 0

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        self._n += 1
        gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting[self._n] = gate
        self._changed.set()
        fate = await gate
        if fate == "dies before":
            raise Death
        result = await work()
        if fate == "dies after":
            raise Death
        return result

    async def drive(self, tasks: set[asyncio.Task[None]], after: Callable[[], Awaitable[None]]) -> None:
        """Run until all tasks are done. `tasks` may grow, and `after` runs after each store call."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(committing, "LONGEST_PAUSE_S", 0.0)  # every task that waits for a turn has paused
            while alive := {task for task in tasks if not task.done()}:
                if len(self.waiting) < len(alive):
                    self._changed.clear()
                    changed = asyncio.ensure_future(self._changed.wait())
                    await asyncio.wait({changed, *alive}, return_when=asyncio.FIRST_COMPLETED)
                    changed.cancel()
                    continue
                await after()
                place = self.rng.choice(sorted(self.waiting))
                fate = "goes on"
                if self.deaths and self.rng.random() < 0.03:
                    self.deaths -= 1
                    fate = self.rng.choice(["dies before", "dies after"])
                self.waiting.pop(place).set_result(fate)
            await after()


class Gated:
    """A store whose every call waits for its turn."""

    def __init__(self, inner: StateStore, turns: Turns) -> None:
        self._inner, self._turns = inner, turns

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        return await self._turns.call(lambda: self._inner.get(keys))

    async def query(self, table: Table, partition: str, **bounds: Any) -> list[Row]:
        return await self._turns.call(lambda: self._inner.query(table, partition, **bounds))

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await self._turns.call(lambda: self._inner.transact(name, operations))

    async def purge(self, now: float) -> int:
        return await self._inner.purge(now)

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._inner.watch(table, partition)

    async def close(self) -> None:
        return None


class Play:
    """A play of `runs` with `calls` model calls each, limited by `definitions`. `paid` is what providers really billed, in
    tokens, by window. Workers are recorded by name: those that `called` a model, were `done` with all their calls, were
    `refused` a call, or `died`."""

    def __init__(
        self,
        store: StateStore,
        definitions: Sequence[BudgetDefinition],
        *,
        seed: int,
        worst: int,
        full: bool,
        deaths: int,
        shards: int = 1,
    ) -> None:
        self.shards = shards
        self.rng, self.worst, self.full = Random(seed), worst, full
        self.bare, self.definitions, self.clock = store, definitions, SetClock(1_800_000_000)
        self.turns = Turns(self.rng, deaths)
        self.engine = self._engine(Gated(store, self.turns))
        self.outside = RowBudgets(store, shards=shards)
        self.tasks: set[asyncio.Task[None]] = set()
        self.paid: dict[str, int] = {}
        self.called: set[str] = set()
        self.done: set[str] = set()
        self.refused: set[str] = set()
        self.died: set[str] = set()

    def _engine(self, store: Any) -> Engine:
        return Engine(
            store=store,
            streams=SegmentStreams(store),
            clock=self.clock,
            ids=None,  # type: ignore[arg-type]
            models=lambda agent: None,  # type: ignore[arg-type, return-value]
            agents=lambda name: WORKER,
            hooks=HookManager(None),
            budgets=RowBudgets(store, shards=self.shards),
            worst_case=lambda request: Worst(self.worst, self.worst),
            settings=Settings(),
            placement=IN_FUNCTIONS,
        )

    async def play(self, runs: int, calls: int) -> None:
        for definition in self.definitions:
            await self.outside.define(definition, self.clock.now())
        for n in range(runs):
            await self._begin(f"s{n}")
            self._spawn(self._worker(f"s{n}", calls), f"s{n}")
        await self.turns.drive(self.tasks, self.check)

    def _spawn(self, work: Any, name: str) -> None:
        async def worker() -> None:
            try:
                await work
            except Death:
                self.died.add(name)
                self._spawn(self._end_for(name), name)

        self.tasks.add(asyncio.ensure_future(worker()))

    async def _begin(self, name: str) -> None:
        session = SessionRow(
            session_id=name,
            agent_type="worker",
            stream_id=name,
            status="running",
            version=1,
            run_id=f"run-{name}",
            turn=1,
            user_id=f"user{len(name)}",
        )
        run = RunRow(
            run_id=session.run_id,
            session_id=name,
            turn=1,
            status="running",
            mode="execute",
            agent_type="worker",
            first_step=1,
        )
        puts = [Put(session_key(name), session.dump()), Put(row_key(name, run_sort(run.run_id)), run.dump())]
        await self.bare.transact("begin", puts)

    # --- workers --------------------------------------------------------------------------------------------------

    async def _worker(self, name: str, calls: int) -> None:
        for step in range(1, calls + 1):
            if not await self._step(name, step):
                return
        await self._finish(name, "completed")
        self.done.add(name)

    async def _step(self, name: str, step: int) -> bool:
        delivery = Delivery(name, self.clock.now() + 60)
        while True:
            seen = await self.engine.history.seen(name, f"run-{name}")
            if seen.session.status != "running":
                return False
            new = advance(seen.session, self.clock.now())
            context = make_context(self.engine, WORKER, seen.session, None, delivery)
            if not await bind(context, seen.session, new, seen.budgets):
                continue
            got = await reserve(self.engine, WORKER, new, ASKED, WORKER.on_budget)
            if isinstance(got, Refused):
                self.refused.add(name)
                await self._finish(name, "failed")
                return False
            if isinstance(got, Reserved):
                break
        new.claim = StepClaim(
            step=step,
            attempt=1,
            attempt_id=f"{name}.{step}",
            run_id=new.run_id,
            deadline=delivery.deadline,
            micros=got.micros,
            tokens=got.tokens,
        )
        if not await self._write("claim_step", [session_put(new, at_version(seen.session))]):
            return False
        self.called.add(name)
        used = self.worst if self.full else self.rng.randint(0, self.worst)
        for window in [
            block.budget for block in new.blocks if not block.closed
        ]:  # the provider has answered, so the call was billed
            self.paid[window] = self.paid.get(window, 0) + used
        after = advance(new, self.clock.now(), step=step)
        settle(self.engine, after, Usage(prompt_tokens=used, cost_micros=used, calls=1))
        return await self._write("stage", [session_put(after, at_version(new))])

    async def _write(self, name: str, operations: list[Operation]) -> bool:
        try:
            await self.engine.store.transact(name, operations)
            return True
        except ConditionFailedError:
            return False

    async def _finish(self, name: str, status: EndStatus) -> None:
        session = await self.engine.history.existing(name)
        if session.status == "running":
            new = advance(session, self.clock.now())
            new.status = status
            await self._write("end", [session_put(new, at_version(session)), end(new, End(status), self.clock.now())])
        run = await self.engine.history.run(name, f"run-{name}")
        await return_draws(self.engine, await self.engine.history.existing(name), run)

    async def _end_for(self, name: str) -> None:
        """End the run of a silent worker, as any process that finds it does."""
        await self._finish(name, "failed")

    # --- invariants -----------------------------------------------------------------------------------------------

    async def draws(self) -> dict[str, list[tuple[int, int | None]]]:
        """Return the draws by window: (amount, returned amount, or None while it is open)."""
        found: dict[str, list[tuple[int, int | None]]] = {}
        for name in {f"s{n}" for n in range(len(self.tasks))}:
            for row in await self.bare.query("control", f"run#run-{name}"):
                value = row.value
                returned = value["returned"] if value["state"] == "returned" else None
                found.setdefault(value["budget"], []).append((value["amount"], returned))
        return found

    async def check(self) -> None:
        """Check at every moment that no more than the limit was billed, and that the books are exact."""
        names = [definition.window(self.clock.now())[0] for definition in self.definitions]
        states = await self.outside.get(names)
        for name, state in zip(names, states, strict=True):
            if state is not None:
                assert state.remaining >= 0, f"{name}: {state.remaining} are left"
                assert self.paid.get(name, 0) <= state.limit, f"{name}: {self.paid[name]} were paid of {state.limit}"

    async def check_books(self) -> None:
        """Check that the limit equals the remaining amount plus what draws hold or kept."""
        draws = await self.draws()
        for definition in self.definitions:
            name, _ = definition.window(self.clock.now())
            (state,) = await self.outside.get([name])
            if state is not None:
                kept = sum(amount - (returned or 0) for amount, returned in draws.get(name, []))
                assert state.limit == state.remaining + kept, f"{name}: {state}, and {kept} drawn"

    async def check_rest(self) -> None:
        """Check at rest that all draws are closed, and that they kept what the runs spent or are assumed to have spent."""
        await self.check_books()
        draws = await self.draws()
        used: dict[str, int] = {}
        for n in range(len(self.tasks)):
            (value,) = await self.bare.get([row_key(f"s{n}", run_sort(f"run-s{n}"))])
            if value is None:
                continue
            run = RunRow.at(f"s{n}", run_sort(f"run-s{n}"), value)
            assert run.status != "running"
            for block in run.blocks:
                claim = run.claim
                held = (
                    0 if claim is None or block.closed else (claim.micros if block.unit == "micros" else claim.tokens)
                )
                used[block.budget] = used.get(block.budget, 0) + block.spent + block.assumed + held
        for name, found in draws.items():
            assert all(returned is not None for _, returned in found), f"{name}: a draw is open"
            kept = sum(amount - (returned or 0) for amount, returned in found)
            assert kept == used.get(name, 0) >= self.paid.get(name, 0), f"{name}: kept {kept}, used {used.get(name)}"
