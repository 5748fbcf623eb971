"""The machine: every verb, every accident, in any order. Its rules only choose; `World` makes it happen."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.properties.protocol_cast import Cast
from tests.properties.protocol_checks import Checks
from tests.properties.protocol_play import Cloud, Process
from tests.properties.protocol_watch import Watcher
from tests.properties.protocol_world import Actor, Fate, InlineExecutor, World

from helix.adapters.memory import MemoryStateStore
from helix.adapters.row_budgets import RowBudgets
from helix.adapters.sqlite import SQLiteStateStore
from helix.core.rows import CallRow, RunRow, SessionRow
from helix.engine.answers import Confirmation
from helix.engine.claims import ClaimInput
from helix.engine.ends import sweep_session
from helix.engine.money import return_draws
from helix.ports.state_store import StateStore

SOLO_PLANS = ["text", "free>text", "free+once>text", "care>text", "gated>text", "gated+gated+once>text", "form+free>text"]
SOLO_PLANS += ["free>free>text", "boom", "free>boom", "fatal+free>text", "done+free", "free+unknown>text"]
BOSS_PLANS = [*SOLO_PLANS, "kid>text", "kidgate>text", "kidgate+gated>text", "kid+kidform>text", "kidtext+free>text", "kid+once"]
SESSIONS = {"a": "solo", "b": "boss"}
SMALL = st.integers(0, 5)
THEN = st.sampled_from([0, 0, 1, 7, 40, 150])
FATES: list[Fate] = ["lost", "unanswered", "die_before", "die_after"]
LIMIT = 6000


class ProtocolMachine(RuleBasedStateMachine):
    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.world = World(self._store())
        self.cast = Cast(self.world, lambda start: self.watcher.started(start))
        self.watcher = Watcher(self.world, self.cast)
        self.checks = Checks(self.world, self.cast, self.watcher)
        self.processes = [Process(self.world, self.cast, name) for name in ("P0", "P1")]
        self.cloud = Cloud(self.world, self.cast)
        self.agents = dict(SESSIONS)
        self.copies = 0
        self.sick = False
        self.log = Listener(self.world)
        logging.getLogger("helix").addHandler(self.log)
        self.level = logging.getLogger("helix").level
        logging.getLogger("helix").propagate = False

    def _store(self) -> StateStore:
        if self.kind == "memory":
            return MemoryStateStore()
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder = tempfile.TemporaryDirectory(dir=base)
        store = SQLiteStateStore(Path(self.folder.name) / "helix.db", synchronous="NORMAL")
        store._thread.shutdown()
        store._thread = InlineExecutor()  # type: ignore[assignment]
        return store

    # --- helpers --------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self.world.trace.append(f"{self.world.clock.now() - 1_000_000:.1f} {text}")

    def after(self, then: int = 0) -> None:
        """Let everybody go on for `then` calls, then judge."""
        self._everybody(then)
        self.cloud.tick()
        try:
            self.checks.always()
        except AssertionError:
            self.sick = True
            raise

    def process(self, n: int) -> Process:
        return self.processes[n % 2]

    def target(self, n: int) -> str:
        names = sorted(self.agents)
        return names[n % len(names)]

    def agent(self, session_id: str) -> Any:
        return self.cast.agents[self.agents[session_id]]

    def plan(self, session_id: str, n: int) -> str:
        plans = SOLO_PLANS if self.agents[session_id] == "solo" else BOSS_PLANS
        return plans[n % len(plans)]

    def live(self) -> list[Actor]:
        return [a for a in self.world.actors if not a.dead and a.busy()]

    def sessions(self) -> list[SessionRow]:
        return list(self.watcher.view.sessions())

    # --- verbs ----------------------------------------------------------------------------------------------------

    @initialize(money=st.sampled_from([10_000, 10_000, 10_000, 30]), tokens=st.sampled_from([100_000, 100_000, 300]))
    def budgets(self, money: int, tokens: int) -> None:
        budgets = RowBudgets(self.world.store)
        self.world.loop.run_until_complete(budgets.set_limit("money", "micros", money))
        self.world.loop.run_until_complete(budgets.set_limit("tokens", "tokens", tokens))

    @rule(p=SMALL, s=SMALL, plan=st.integers(0, 30), then=THEN)
    def execute(self, p: int, s: int, plan: int, then: int = 0) -> None:
        sid = self.target(s)
        self.say(f"execute {sid} {self.plan(sid, plan)} by P{p % 2}")
        process = self.process(p)
        process.do(process.executor.execute(self.agent(sid), self.plan(sid, plan), session_id=sid))
        self.after(then)

    @rule(plan=st.integers(0, 30), then=THEN)
    def execute_in_the_cloud(self, plan: int, then: int = 0) -> None:
        self.say(f"cloud execute a {self.plan('a', plan)}")
        self.cloud.claim(self.cast.solo, "a", ClaimInput("execute", self.plan("a", plan)))
        self.after(then)

    @rule(p=SMALL, s=SMALL, mode=st.sampled_from(["continue", "continue", "with_message"]), plan=st.integers(0, 30), then=THEN)
    def resume(self, p: int, s: int, mode: str, plan: int, then: int = 0) -> None:
        sid = self.target(s)
        message = self.plan(sid, plan) if mode == "with_message" else None
        self.say(f"resume {sid} {mode} {message} by {p}")
        if p < 4 or self.agents[sid] != "solo":
            process = self.process(p)
            process.do(process.executor.resume(self.agent(sid), sid, message=message))
        else:
            self.cloud.claim(self.agent(sid), sid, ClaimInput(mode, message))
        self.after(then)

    @rule(p=SMALL, s=SMALL, start=st.booleans(), plan=st.none() | st.integers(0, 30), then=THEN)
    def retry(self, p: int, s: int, start: bool, plan: int | None, then: int = 0) -> None:
        sid = self.target(s)
        message = None if plan is None else self.plan(sid, plan)
        self.say(f"retry {sid} from_start={start} {message} by {p}")
        if p < 4 or self.agents[sid] != "solo":
            process, mode = self.process(p), "from_start" if start else "from_checkpoint"
            process.do(process.executor.retry(self.agent(sid), sid, mode=mode, message=message))  # type: ignore[arg-type]
        else:
            self.cloud.claim(self.agent(sid), sid, ClaimInput("from_start" if start else "retry", message))
        self.after(then)

    @rule(p=SMALL, s=SMALL, n=st.integers(0, 30), message=st.none() | st.integers(0, 30), then=THEN)
    def rewind(self, p: int, s: int, n: int, message: int | None, then: int = 0) -> None:
        sid = self.target(s)
        points = sorted(ident for owner, ident in self.watcher.remembered if owner == sid)
        if not points:
            return
        point = points[n % len(points)]
        plan = None if message is None else self.plan(sid, message)
        self.say(f"rewind {sid} to {point} {plan} by {p}")
        if p < 4 or self.agents[sid] != "solo":
            process = self.process(p)
            mode: Any = "from_checkpoint"
            process.do(process.executor.resume(self.agent(sid), sid, mode=mode, checkpoint_id=point, message=plan))
        else:
            self.cloud.claim(self.agent(sid), sid, ClaimInput("from_checkpoint", plan, checkpoint_id=point))
        self.after(then)

    @rule(p=SMALL, n=SMALL, verdict=st.sampled_from(["approve", "approve", "deny", "data"]), twice=st.booleans(), old=st.booleans(), then=THEN)
    def answer(self, p: int, n: int, verdict: str, twice: bool, old: bool, then: int = 0) -> None:
        """Any call that waits (or, now and then, one that was answered long ago)."""
        asked: list[tuple[str, str]] = []
        for key, value in sorted(self.world.mirror.items()):
            if key.table == "sessions" and value.get("kind") == "call":
                row = CallRow.model_validate(value)
                if row.state == "asked" or (old and row.by == "answer"):
                    asked.append((self._root(key.partition), row.call_id))
        if not asked:
            return
        sid, call_id = asked[n % len(asked)]
        if sid not in self.agents:
            return
        data = {"x": n} if verdict == "data" else None
        confirmation = Confirmation(call_id, verdict == "approve" or (verdict == "data" and n % 2 == 0), data)
        self.say(f"answer {sid} {call_id} {verdict} by {p} twice={twice}")
        for _ in range(2 if twice else 1):
            if p < 4 or self.agents[sid] != "solo":
                process = self.process(p)
                process.do(process.executor.answer(self.agent(sid), sid, confirmation))
                p += 1
            else:
                self.cloud.answer(self.agent(sid), sid, confirmation)
        self.after(then)

    def _root(self, session_id: str) -> str:
        session = self.watcher.view.session(session_id)
        while session is not None and session.parent is not None:
            session_id = session.parent.session_id
            session = self.watcher.view.session(session_id)
        return session_id

    @rule(p=SMALL, s=SMALL, how=SMALL, plan=st.integers(0, 30), then=THEN)
    def go_on(self, p: int, s: int, how: int, plan: int, then: int = 0) -> None:
        """What fits the session's status: the other rules often ask for what must be refused."""
        states = ("failed", "paused", "interrupted")
        resting = [x for x in self.sessions() if x.session_id in self.agents and x.status in states]
        if not resting:
            return
        session = resting[s % len(resting)]
        place = sorted(self.agents).index(session.session_id)
        if session.status == "failed":
            self.retry(p=p, s=place, start=how % 2 == 1, plan=plan if how > 3 else None, then=then)
        else:
            self.resume(p=p, s=place, mode="with_message" if how % 2 else "continue", plan=plan, then=then)

    @rule(p=SMALL, s=SMALL, then=THEN)
    def interrupt(self, p: int, s: int, then: int = 0) -> None:
        sid = self.target(s)
        self.say(f"interrupt {sid} by {p}")
        process = self.process(p)
        process.do(process.executor.interrupt(sid, "stop"))
        self.after(then)

    @rule(p=SMALL, s=SMALL, then=THEN)
    def abort(self, p: int, s: int, then: int = 0) -> None:
        sid = self.target(s)
        self.say(f"abort {sid} by {p}")
        process = self.process(p)
        process.do(process.executor.abort(self.agent(sid), sid, "enough"))
        self.after(then)

    @rule(p=SMALL, s=SMALL, n=st.integers(0, 30), how=st.sampled_from(["branch", "clone", "index"]), then=THEN)
    def copy(self, p: int, s: int, n: int, how: str, then: int = 0) -> None:
        if self.copies >= 2:
            return
        sid = self.target(s)
        points = sorted(ident for owner, ident in self.watcher.remembered if owner == sid)
        if not points:
            return
        self.copies += 1
        name = f"copy{self.copies}"
        self.agents[name] = self.agents[sid]
        point = points[n % len(points)]
        self.say(f"{how} {sid} {point} to {name} by {p}")
        process = self.process(p)
        if how == "branch":
            branch = {"from_session_id": sid, "checkpoint_id": point}
            process.do(process.executor.execute(self.agent(sid), self.plan(sid, n), session_id=name, branch=branch))
        elif how == "clone":
            process.do(process.executor.clone_session(sid, name, from_checkpoint_id=point))
        else:
            process.do(process.executor.clone_session(sid, name, from_message_index=n % 7))
        self.after(then)

    @rule(p=SMALL, s=SMALL, sure=st.integers(0, 3), then=THEN)
    def delete(self, p: int, s: int, sure: int, then: int = 0) -> None:
        sid = self.target(s)
        if sure or self.watcher.view.session(sid) is None:
            return
        self.say(f"delete {sid} by {p}")
        self.checks.torn |= {sid, f"deleted {sid}"}
        process = self.process(p)
        process.do(process.executor.delete(sid))
        self.after(then)

    @rule(more=st.integers(10, 1000))
    def raise_limit(self, more: int) -> None:
        budgets = RowBudgets(self.world.store)
        state = self.world.loop.run_until_complete(budgets.get("money"))
        if state is not None:
            self.world.loop.run_until_complete(budgets.set_limit("money", "micros", state.limit + more))
        self.after()

    # --- what happens by itself -----------------------------------------------------------------------------------

    @rule(picks=st.lists(st.integers(0, 11), min_size=1, max_size=40))
    def interleave(self, picks: list[int]) -> None:
        for pick in picks:
            self.cloud.tick()
            choices = self.world.choices()
            if not choices:
                break
            self.world.open(choices[pick % len(choices)])
        self.after()

    @rule(n=SMALL, calls=st.sampled_from([1, 2, 5, 10, 20, 40, 80]))
    def run_one(self, n: int, calls: int) -> None:
        """One delivery goes on while the others stand."""
        actors = [a for a in self.live() if not a.frozen]
        if not actors:
            return
        actor = actors[n % len(actors)]
        for _ in range(calls):
            mine = [c for c in self.world.choices() if c.actor is actor]
            if not mine:
                break
            self.world.open(mine[0])
        self.after()

    @rule(calls=st.sampled_from([20, 60, 150, 300]))
    def run_all(self, calls: int) -> None:
        """Everybody goes on, first come, first served."""
        self.after(calls)

    def _everybody(self, calls: int) -> None:
        for _ in range(calls):
            self.cloud.tick()
            choices = self.world.choices()
            if not choices:
                break
            self.world.open(choices[0])

    @rule(n=SMALL, fate=st.sampled_from(FATES))
    def accident(self, n: int, fate: Fate) -> None:
        choices = [c for c in self.world.choices() if fate != "unanswered" or c.kind == "write"]
        if not choices:
            return
        call = choices[n % len(choices)]
        if call.kind in ("model", "tool") and fate in ("lost", "unanswered"):
            return
        self.world.open(call, fate)
        self._restart()
        self.after()

    def _restart(self) -> None:
        for n, process in enumerate(self.processes):
            if process.actor.dead:
                self.processes[n] = Process(self.world, self.cast, f"{process.actor.name}'")

    @rule(n=SMALL, then=THEN)
    def crash(self, n: int, then: int = 0) -> None:
        actors = self.live()
        if not actors:
            return
        self.say(f"crash {actors[n % len(actors)].name}")
        self.world.kill(actors[n % len(actors)])
        self._restart()
        self.after(then)

    @rule(n=SMALL)
    def stand_still(self, n: int) -> None:
        """A process stops for a while without knowing it: a zombie, if it is long enough."""
        actors = [a for a in self.live() if not a.frozen]
        if actors:
            self.say(f"freeze {actors[n % len(actors)].name}")
            actors[n % len(actors)].frozen = True
        self.after()

    @precondition(lambda self: any(a.frozen for a in self.world.actors))
    @rule(n=SMALL, then=THEN)
    def wake(self, n: int, then: int = 0) -> None:
        actors = [a for a in self.world.actors if a.frozen]
        self.say(f"thaw {actors[n % len(actors)].name}")
        actors[n % len(actors)].frozen = False
        self.after(then)

    @precondition(lambda self: any(e.deliveries for e in self.cloud.executions.values()))
    @rule(n=SMALL, late=st.booleans(), then=THEN)
    def duplicate(self, n: int, late: bool, then: int = 0) -> None:
        """The same delivery a second time, by another worker; `late`: it is held back from the start."""
        found = [(e, d) for e in self.cloud.executions.values() for d in e.deliveries]
        execution, delivered = found[n % len(found)]
        self.say(f"duplicate {delivered.actor.name} late={late}")
        self.cloud.deliver(execution, delivered.payload)
        execution.deliveries[-1].actor.frozen = late
        self.after(then)

    @precondition(lambda self: self.cloud.executions)
    @rule(n=SMALL, step=st.integers(1, 4), then=THEN)
    def late_delivery(self, n: int, step: int, then: int = 0) -> None:
        """A delivery of any execution, ended ones too, comes out of nowhere."""
        executions = list(self.cloud.executions.values())
        execution = executions[n % len(executions)]
        payloads: list[tuple[Any, ...]] = [("model", step), ("finish",), ("tools", step, "call_0")]
        payload = payloads[(n + step) % 3]
        view = self.watcher.view.session(execution.session_id)
        if payload[0] == "tools" and (view is None or view.open is None or view.open.step != step):
            payload = ("finish",)
        if payload[0] == "model" and view is not None and step > view.step + 1:
            payload = ("model", view.step + 1)
        self.say(f"late {payload} of {execution.run_id}")
        self.cloud.deliver(execution, payload)
        self.after(then)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 16.0, 35.0]), then=THEN)
    def tick(self, seconds: float, then: int = 0) -> None:
        self.say(f"tick {seconds}")
        self.world.advance(seconds)
        self.after(then)

    # --- the end --------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            if not self.sick and not self.world.violations:
                self.drain()
                self.checks.at_rest()
        finally:
            logging.getLogger("helix").removeHandler(self.log)
            logging.getLogger("helix").propagate = True
            if os.environ.get("HELIX_TRACE"):
                Path(os.environ["HELIX_TRACE"]).write_text("\n".join(self.world.trace))
            self.world.close()
            if self.folder is not None:
                self.folder.cleanup()

    def drain(self) -> None:
        """Every delivery arrives, time passes, and whoever opens a session sweeps it; then nothing may be left to do."""
        self.say("drain")
        for actor in self.world.actors:
            actor.frozen = False
        for turn in range(LIMIT):
            self.cloud.tick()
            if choices := self.world.choices():
                self.world.open(choices[0])
                self._restart()
            elif self.live() or any(e.again for e in self.cloud.executions.values()):
                self.world.advance(0.5)
            elif not self._sweep():
                return
        busy = [a.name for a in self.live()]
        raise AssertionError(f"never_stuck: {busy} after {turn} more calls; {[(s.session_id, s.status) for s in self.sessions()]}")

    def _sweep(self) -> bool:
        """What `sweep` and whoever opens a session would do next; False if there is nothing to do."""
        process = self.processes[0]
        executor, now = process.executor, self.world.clock.now()
        for session in self.sessions():
            sid = session.session_id
            agent = self.cast.agents[session.agent_type]
            if session.status == "deleting" and session.parent is None:
                process.do(executor.delete(sid))
                return True
            if session.status == "running" and session.lease_owner is None:
                if session.run_id not in self.cloud.executions:
                    self.cloud.start(sid, session.run_id, session.agent_type, session.step + 1)
                    return True
            elif session.status == "running":
                self.say(f"sweep {sid}")
                if session.lease_expires >= now:
                    self.world.advance(session.lease_expires - now + 0.5)
                else:
                    process.do(executor.resume(agent, sid))
                return True
        for session in self.sessions():
            agent = self.cast.agents[session.agent_type]
            rows = list(self.world.rows("sessions", session.session_id, "r#"))
            if any(value["status"] != "running" and value.get("effects") != "done" for _, value in rows):
                self.say(f"sweep effects of {session.session_id}")
                process.do(self._effects(process, agent, session.session_id))
                return True
            for run in (RunRow.model_validate(value) for _, value in rows):  # a worker died between its draw and the rest
                if any(v["state"] == "open" for _, v in self.world.rows("control", f"run#{run.run_id}")):
                    process.do(return_draws(executor.engine, session, run))
                    return True
        return False

    async def _effects(self, process: Process, agent: Any, sid: str) -> None:
        executor = process.executor
        for claimed in await sweep_session(executor.engine, agent, sid, executor._delivery()):
            executor._start(executor._agent_named(claimed.session.agent_type), claimed, executor._delivery())


class Listener(logging.Handler):
    """A run that stops with an error that is no accident is a defect, although the executor survives it."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        from helix.core.errors import CallerError, StoreError

        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, (StoreError, CallerError)):
            self.world.violations.append(f"unexpected: {record.getMessage()}: {type(error).__name__} {error}")


def machine_on(kind: str) -> type[ProtocolMachine]:
    return type(f"ProtocolOn{kind.capitalize()}", (ProtocolMachine,), {"kind": kind})
