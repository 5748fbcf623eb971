"""The machine: every verb and every accident, in any order. Its rules only choose, and `World` executes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.properties.protocol_base import ProtocolBase
from tests.properties.protocol_cast import MONEY, TOKENS
from tests.properties.protocol_play import MARGIN_S
from tests.properties.protocol_world import Fate

from helix.core.entries import CallRow
from helix.core.handles import Confirmation
from helix.core.json import JsonValue
from helix.engine.placement import IN_FUNCTIONS, IN_WORKERS, Placement
from helix.services.row_budgets import RowBudgets

SMALL = st.integers(0, 5)
THEN = st.sampled_from([0, 0, 1, 7, 40, 150])
FATES: list[Fate] = ["lost", "unanswered", "die_before", "die_after"]
FAR_S = 300.0
PICKS = st.lists(st.integers(0, 11), min_size=1, max_size=60)


class ProtocolRules(ProtocolBase):
    # --- verbs ----------------------------------------------------------------------------------------------------

    @initialize(money=st.sampled_from([10_000, 10_000, 10_000, 30]), tokens=st.sampled_from([100_000, 100_000, 300]))
    def budgets(self, money: int, tokens: int) -> None:
        budgets = RowBudgets(self.world.store)
        for bounds in (MONEY.model_copy(update={"limit": money}), TOKENS.model_copy(update={"limit": tokens})):
            self.world.loop.run_until_complete(budgets.define(bounds, self.world.clock.now()))

    @initialize(placement=st.sampled_from([IN_FUNCTIONS, IN_FUNCTIONS, IN_WORKERS]), steps=st.sampled_from([None, 1]))
    def invocations(self, placement: Placement, steps: int | None) -> None:
        """Choose which calls the worker that bought a step executes itself, and how many steps an invocation takes."""
        self.cloud.plays(placement, steps)

    @initialize(calls=st.sampled_from([80, 80, 1, 2]))
    def widths(self, calls: int) -> None:
        """Choose how many calls' rows one transaction writes. If it is few, most steps are wide."""
        self.world.calls_at_once = calls
        self.cloud.holds(calls)
        for process in self.processes:
            engine = process.executor.engine
            engine.settings = replace(engine.settings, calls_at_once=calls)

    @initialize(apart=st.sampled_from([0.0, 0.0, MARGIN_S, -MARGIN_S, FAR_S]))
    def clocks(self, apart: float) -> None:
        """Choose how far the second worker's clock is ahead of the first one's."""
        self.world.far = abs(apart) > MARGIN_S
        self.processes[1].actor.skew = self.cloud.skews[1] = apart

    @rule(p=SMALL, s=SMALL, plan=st.integers(0, 30), then=THEN)
    def execute(self, p: int, s: int, plan: int, then: int = 0) -> None:
        sid = self.target(s)
        self.say(f"execute {sid} {self.plan(sid, plan)} by P{p % 2}")
        process = self.process(p)
        process.do(process.executor.execute(self.agent(sid), self.plan(sid, plan), session_id=sid))
        self.after(then)

    @rule(s=SMALL, plan=st.integers(0, 30), then=THEN)
    def execute_in_the_cloud(self, s: int, plan: int, then: int = 0) -> None:
        sid = self.target(s)
        self.say(f"cloud execute {sid} {self.plan(sid, plan)}")
        agent, message = self.agent(sid), self.plan(sid, plan)
        self.cloud.do("execute", lambda executor: executor.execute(agent, message, session_id=sid))
        self.after(then)

    @precondition(lambda self: any(e.phase != ("over",) for e in self.cloud.executions.values()))
    @rule(n=SMALL, told=st.booleans(), then=THEN)
    def end_execution(self, n: int, told: bool, then: int = 0) -> None:
        """An operator stops the execution, or it times out."""
        found = [e for e in self.cloud.executions.values() if e.phase != ("over",)]
        execution = found[n % len(found)]
        self.say(f"end execution {execution.name} told={told}")
        self.cloud.kill(execution, told)
        self.after(then)

    @precondition(lambda self: any(e.phase == ("over",) for e in self.cloud.executions.values()))
    @rule(n=SMALL, then=THEN)
    def late_event(self, n: int, then: int = 0) -> None:
        """The status event of an execution that ended arrives late or once more."""
        found = [e for e in self.cloud.executions.values() if e.phase == ("over",)]
        self.say(f"late event of {found[n % len(found)].name}")
        self.cloud.fail(found[n % len(found)])
        self.after(then)

    @rule(then=THEN)
    def sweep(self, then: int = 0) -> None:
        self.say("sweep")
        self.cloud.sweep()
        self.after(then)

    @rule(
        p=SMALL,
        s=SMALL,
        mode=st.sampled_from(["continue", "continue", "with_message"]),
        plan=st.integers(0, 30),
        then=THEN,
    )
    def resume(self, p: int, s: int, mode: str, plan: int, then: int = 0) -> None:
        sid = self.target(s)
        message = self.plan(sid, plan) if mode == "with_message" else None
        self.say(f"resume {sid} {mode} {message} by {p}")
        if p < 4:
            process = self.process(p)
            process.do(process.executor.resume(self.agent(sid), sid, message=message))
        else:
            agent = self.agent(sid)
            self.cloud.do(mode, lambda executor: executor.resume(agent, sid, message=message))
        self.after(then)

    @rule(p=SMALL, s=SMALL, start=st.booleans(), plan=st.none() | st.integers(0, 30), then=THEN)
    def retry(self, p: int, s: int, start: bool, plan: int | None, then: int = 0) -> None:
        sid = self.target(s)
        message = None if plan is None else self.plan(sid, plan)
        self.say(f"retry {sid} from_start={start} {message} by {p}")
        agent = self.agent(sid)
        mode: Any = "from_start" if start else "from_checkpoint"
        if p < 4:
            process = self.process(p)
            process.do(process.executor.retry(agent, sid, mode=mode, message=message))
        else:
            self.cloud.do("retry", lambda executor: executor.retry(agent, sid, mode=mode, message=message))
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
        agent = self.agent(sid)
        asked: dict[str, Any] = {"mode": "from_checkpoint", "checkpoint_id": point, "message": plan}
        if p < 4:
            process = self.process(p)
            process.do(process.executor.resume(agent, sid, **asked))
        else:
            self.cloud.do("rewind", lambda executor: executor.resume(agent, sid, **asked))
        self.after(then)

    @rule(
        p=SMALL,
        n=SMALL,
        verdict=st.sampled_from(["approve", "approve", "deny", "data"]),
        twice=st.booleans(),
        old=st.booleans(),
        then=THEN,
    )
    def answer(self, p: int, n: int, verdict: str, twice: bool, old: bool, then: int = 0) -> None:
        """Answer any waiting call, or now and then one that was answered long ago."""
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
        data: JsonValue = {"x": n} if verdict == "data" else None
        confirmation = Confirmation(call_id, verdict == "approve" or (verdict == "data" and n % 2 == 0), data)
        self.say(f"answer {sid} {call_id} {verdict} by {p} twice={twice}")
        agent = self.agent(sid)
        for _ in range(2 if twice else 1):
            if p < 4:
                process = self.process(p)
                process.do(process.executor.answer(self.agent(sid), sid, confirmation))
                p += 1
            else:
                self.cloud.do("answer", lambda executor: executor.answer(agent, sid, confirmation))
        self.after(then)

    @rule(p=SMALL, s=SMALL, how=SMALL, plan=st.integers(0, 30), then=THEN)
    def go_on(self, p: int, s: int, how: int, plan: int, then: int = 0) -> None:
        """Do what fits the session's status, because the other rules often ask for what must be refused."""
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
        if p < 4:
            process = self.process(p)
            process.do(process.executor.abort(self.agent(sid), sid, "enough"))
        else:
            agent = self.agent(sid)
            self.cloud.do("abort", lambda executor: executor.abort(agent, sid, "enough"))
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
        self.checks.deleted.add(sid)
        process = self.process(p)
        process.do(process.executor.delete(sid))
        self.after(then)

    @rule(more=st.integers(10, 1000))
    def raise_limit(self, more: int) -> None:
        budgets = RowBudgets(self.world.store)
        known = self.world.loop.run_until_complete(budgets.definitions(["global"]))
        for money in (bounds for bounds in known if bounds.name == MONEY.name):
            raised = money.model_copy(update={"limit": money.limit + more})
            self.world.loop.run_until_complete(budgets.define(raised, self.world.clock.now()))
        self.after()

    # --- accidents ------------------------------------------------------------------------------------------------

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
        """One delivery continues while the others pause."""
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
        """All actors continue, in order of arrival."""
        self.after(calls)

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
        """A process pauses for a while without noticing. After a long pause it is a zombie."""
        actors = [a for a in self.live() if not a.frozen]
        if actors:
            self.say(f"freeze {actors[n % len(actors)].name}")
            actors[n % len(actors)].frozen = actors[n % len(actors)].stood = True
        self.after()

    @precondition(lambda self: any(a.frozen for a in self.world.actors))
    @rule(n=SMALL, then=THEN)
    def wake(self, n: int, then: int = 0) -> None:
        actors = [a for a in self.world.actors if a.frozen]
        self.say(f"thaw {actors[n % len(actors)].name}")
        self.world.wake(actors[n % len(actors)])
        self.after(then)

    @precondition(lambda self: any(e.deliveries for e in self.cloud.executions.values()))
    @rule(n=SMALL, late=st.booleans(), then=THEN)
    def duplicate(self, n: int, late: bool, then: int = 0) -> None:
        """The same delivery arrives a second time, at another worker. With `late` it is held back from the start."""
        found = [(e, d) for e in self.cloud.executions.values() for d in e.deliveries]
        execution, delivered = found[n % len(found)]
        self.say(f"duplicate {delivered.actor.name} late={late}")
        self.cloud.deliver(execution, delivered.payload)
        actor = execution.deliveries[-1].actor
        actor.frozen = actor.stood = late
        self.after(then)

    @precondition(lambda self: self.cloud.executions)
    @rule(n=SMALL, step=st.integers(1, 4), then=THEN)
    def late_delivery(self, n: int, step: int, then: int = 0) -> None:
        """A delivery of any execution arrives unexpectedly, also of ended ones."""
        executions = list(self.cloud.executions.values())
        execution = executions[n % len(executions)]
        payloads: list[tuple[Any, ...]] = [("model", step), ("finish",), ("tools", step, "call_0")]
        payload = payloads[(n + step) % 3]
        view = self.watcher.view.session(execution.session_id)
        calls = self.watcher.view.open_calls(view) if view is not None else []
        waits = view is not None and view.open is not None and view.open.step == step
        if payload[0] == "tools" and not (waits and any(row is not None and row.call_id == "call_0" for row in calls)):
            payload = ("finish",)
        if payload[0] == "model" and view is not None and step > view.step + 1:
            payload = ("model", view.step + 1)
        self.say(f"late {payload} of {execution.run_id}")
        self.cloud.deliver(execution, payload)
        self.after(then)

    @rule(n=SMALL, seconds=st.sampled_from([0.0, 8.0, 16.0]), then=THEN)
    def silence(self, n: int, seconds: float, then: int = 0) -> None:
        """The store refuses a worker's heartbeats, or accepts them again."""
        actors = [a for a in self.live() if not a.frozen]
        if actors:
            actor = actors[n % len(actors)]
            actor.silent = not actor.silent
            self.say(f"{actor.name} silent={actor.silent}")
            self.world.advance(seconds)
        self.after(then)

    @rule(n=SMALL, kill=st.booleans(), twice=st.booleans(), then=THEN)
    def expire(self, n: int, kill: bool, twice: bool, then: int = 0) -> None:
        """A supervisor knows that a worker is dead, and expires its claims at once, late, or twice."""
        if kill:
            working = [a for a in self.live() if a.owner is not None]
            if working:
                self.world.kill(working[n % len(working)])
        dead = [a for a in self.world.actors if a.dead and a.owner is not None]
        for actor in dead[-1 - n % 2 :][: 1 + twice]:
            self.say(f"expire the claims of {actor.name}")
            for session in self.sessions():
                self.cloud.expire(session.session_id, actor)
        self.after(then)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 16.0, 35.0]), then=THEN)
    def tick(self, seconds: float, then: int = 0) -> None:
        self.say(f"tick {seconds}")
        self.world.advance(seconds)
        self.after(then)
