"""Accidents that need several requests whose store calls interleave. Each is made likely here, and none is certain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.properties.protocol_machine import PICKS, SMALL, ProtocolRules
from tests.properties.protocol_play import LAMBDA, SETTINGS

HOLDS = ["free", "once", "care", "gated", "claim_call", "call_result", "claim_step", "stage", "draw", "heartbeat", "#"]
SILENCES = [11.3, 12.0, 13.0, 15.5]
"""Moments around the deadline of a claim of 15 s, for clocks that differ by its margin."""
HOLD = st.sampled_from(HOLDS)
SILENT_S = SETTINGS.claim_s + SETTINGS.skew_s + 1
"""The time after which the sweep starts the next part of a run whose worker claimed something and fell silent."""


class ProtocolMachine(ProtocolRules):
    @rule(s=SMALL, verbs=st.lists(st.tuples(SMALL, SMALL), min_size=2, max_size=4), picks=PICKS)
    def volley(self, s: int, verbs: list[tuple[int, int]], picks: list[int]) -> None:
        """Several callers want something of one session at once, and their store calls interleave."""
        for verb, n in verbs:
            match verb:
                case 0:
                    self.execute(p=n, s=s, plan=n)
                case 1:
                    self.go_on(p=n, s=s, how=n, plan=n)
                case 2 | 3:
                    self.answer(p=n, n=s, verdict=["approve", "deny", "data"][n % 3], twice=True, old=False)
                case 4:
                    self.resume(p=n, s=s, mode="with_message", plan=n)
                case _:
                    self.interrupt(p=n, s=s)
        self.interleave(picks)

    @rule(n=SMALL, calls=st.sampled_from([1, 10, 40, 150]), hold=HOLD, picks=PICKS)
    def zombie(self, n: int, calls: int, hold: str, picks: list[int]) -> None:
        """A process pauses until its claim has expired, another one takes over its sessions, and then it continues."""
        process = self.processes[n % 2]
        if not process.actor.busy():
            self.execute(p=n, s=n, plan=2)
        self.until(lambda: [c for c in self.world.pending if c.name.startswith(hold) and c.actor is process.actor])
        if not process.actor.busy():
            return
        self.say(f"zombie {process.actor.name}")
        process.actor.frozen = process.actor.stood = True
        self.world.advance(16)
        for session_id in sorted(self.agents):
            view = self.watcher.view.session(session_id)
            if view is not None and view.status == "running" and view.lease_owner is not None:
                self.resume(p=n + 1, s=sorted(self.agents).index(session_id), mode="continue", plan=n)
        self.after(calls)
        self.world.wake(process.actor)
        self.interleave(picks)

    @rule(n=SMALL, cloud=st.booleans(), seconds=st.sampled_from(SILENCES), calls=st.sampled_from([10, 40]), picks=PICKS)
    def unheard(self, n: int, cloud: bool, seconds: float, calls: int, picks: list[int]) -> None:
        """A worker is in a tool or a model call, its heartbeats fail, and another worker takes over its work."""
        self.world.held = []
        if cloud:
            self.execute_in_the_cloud(s=n, plan=n)
        else:
            self.execute(p=n, s=n, plan=n)
        found = self.until(lambda: [c for c in self.world.choices() if c.kind in ("tool", "model")])
        if not found:
            return
        call = found[n % len(found)]
        self.say(f"{call.actor.name} is not heard at {call.name}")
        call.actor.silent = True
        self.world.held = [call]
        self.world.advance(seconds)
        for execution in self.cloud.executions.values():
            for delivered in [d for d in execution.deliveries if d.actor is call.actor]:
                self.cloud.deliver(execution, delivered.payload)
        for place, session_id in enumerate(sorted(self.agents)):
            view = self.watcher.view.session(session_id)
            if view is not None and view.status == "running" and view.lease_owner is not None:
                self.resume(p=0 if call.actor is self.processes[1].actor else 1, s=place, mode="continue", plan=n)
        self.after(calls)
        self.interleave(picks)
        call.actor.silent, self.world.held = False, []
        self.interleave(picks)

    @rule(n=SMALL, sweeps=st.sampled_from([1, 1, 2]), calls=st.sampled_from([1, 10, 40, 150]), picks=PICKS)
    def hang(self, n: int, sweeps: int, calls: int, picks: list[int]) -> None:
        """Workers pause while their executions wait for them, the sweep runs, and then they continue."""
        self.execute_in_the_cloud(s=n, plan=n)
        found = self.until(
            lambda: [c for c in self.world.choices() if c.kind in ("tool", "model") and c.actor.name.startswith(LAMBDA)]
        )
        for actor in {call.actor.name: call.actor for call in found[: 1 + n % 2]}.values():
            self.say(f"{actor.name} hangs")
            actor.frozen = actor.stood = True
        self.world.advance(SILENT_S)
        for _ in range(sweeps):
            self.cloud.sweep()
        self.after(calls)
        self.interleave(picks)
        for call in found:
            self.world.wake(call.actor)
        self.interleave(picks)

    @rule(late=st.booleans(), hold=HOLD, picks=PICKS, seconds=st.sampled_from([0.0, 0.0, 22.0]))
    def double(self, late: bool, hold: str, picks: list[int], seconds: float) -> None:
        """Every delivery under way is delivered once more, and the two interleave."""
        self._cloudy()
        self.until(lambda: [c for c in self.world.pending if c.name.startswith(hold) and c.actor.deadline is not None])
        for execution in list(self.cloud.executions.values()):
            for delivered in list(execution.deliveries):
                self.cloud.deliver(execution, delivered.payload)
                delivered.actor.frozen = delivered.actor.stood = late
        if seconds:
            self.world.advance(seconds)
        self.interleave(picks)
        for execution in self.cloud.executions.values():
            for delivered in execution.deliveries:
                self.world.wake(delivered.actor)
        self.interleave(picks)

    @rule(s=SMALL, p=SMALL, plan=st.integers(0, 30), how=st.sampled_from(["abort", "late"]), hold=HOLD, picks=PICKS)
    def slow_tool(self, s: int, p: int, plan: int, how: str, hold: str, picks: list[int]) -> None:
        """The run ends while its tools are at work, and another caller continues it before they return."""
        self._cloudy()
        self.world.held = self.until(lambda: [c for c in self.world.pending if c.name.startswith(hold)])
        if how == "late":
            self.interrupt(p=p, s=s, then=20)
            for execution in list(self.cloud.executions.values()):
                if execution.phase[0] == "tools":
                    self.cloud.deliver(execution, ("model", execution.phase[1] + 1))
        else:
            self.abort(p=p, s=s)
        self.after(40)
        if picks[0] % 3 == 0:
            self.world.held = []
            self.interleave(picks)
        for session_id in sorted(self.agents):
            self.execute(p=p + 1, s=sorted(self.agents).index(session_id), plan=plan)
        self.interleave(picks[: len(picks) // 2])
        self.world.held = []
        self.interleave(picks)

    @rule(n=SMALL, how=st.sampled_from(["at once", "over a pause", "over an end"]), picks=PICKS)
    def answers(self, n: int, how: str, picks: list[int]) -> None:
        """Several users answer the same question differently at once. The run is about to pause on it, or the run has ended
        and another caller is about to close its step."""
        asks = [4, 5][n % 2]  # plans with a call that needs an approval
        self.execute(p=n, s=n, plan=asks)
        if how == "over a pause":
            self.world.held = self.until(lambda: [c for c in self.world.pending if c.name == "end_paused"])
        else:
            self.until(lambda: [v for v in self.world.mirror.values() if v.get("state") == "asked"])
        if how == "over an end":
            self.abort(p=n, s=n, then=40)
            self.execute(p=n + 1, s=n, plan=asks)
            self.until(lambda: [c for c in self.world.pending if c.name.startswith("claim_execute")])
            self.world.held = [c for c in self.world.pending if c.name.startswith("claim_execute")][: n % 2]
        waiting = [k for k, v in sorted(self.world.mirror.items()) if v.get("kind") == "call" and v["state"] == "asked"]
        place = next((i for i, key in enumerate(waiting) if key.partition == self.target(n)), n)
        for i, verdict in enumerate(["approve", "deny", "data"]):
            self.answer(p=n + i, n=place, verdict=verdict, twice=i == 0, old=False)
        self.interleave(picks)
        self.world.held = []
        self.interleave(picks)

    def _cloudy(self) -> None:
        """Return whether at least one execution is about to start its tools."""
        if not any(e.deliveries for e in self.cloud.executions.values()):
            self.execute_in_the_cloud(s=0, plan=2)

    def until(self, there: Callable[[], list[Any]], calls: int = 80) -> list[Any]:
        """Let every actor continue until the condition holds, or for that many calls."""
        for _ in range(calls):
            self.cloud.tick()
            if there() or not self.world.choices():
                break
            self._everybody(1)
        return there()


def machine_on(kind: str, slots: int | None = None) -> type[ProtocolMachine]:
    return type(f"ProtocolOn{kind.capitalize()}", (ProtocolMachine,), {"kind": kind, "slots": slots})
