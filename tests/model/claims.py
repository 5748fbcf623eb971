"""An exhaustive model of claims (docs/protocol.md#alive): two workers, steps with two calls, every order of events.

    .venv/bin/python -m tests.model.claims 2      # a larger limit of crashes, pauses and lost heartbeats

A worker buys a step, executes its calls `r` (`on_unknown="retry"`) and `s` (`skip`), folds, and goes on. It claims `r` in
the write that stores the answer. Time is in ticks: a claim holds for 4, the margin is 1, clocks differ by at most 1.
Deadlines are relative to now, so the number of states is finite without a horizon. `RULES` are the engine's rules. Without
any one of them the model finds a violation.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LENGTH, LOW = 4, -3
RULES = {
    "margin": "a holder that could not move its deadline stops before it",
    "ask": "a holder checks its clock before it asks the model",
    "start": "a holder checks its clock before it starts a tool",
    "dead": "a worker checks the deadline before it takes over a claim",
    "revive": "a heartbeat does not bring a dead attempt at a step back",
    "read": "a worker that takes a call names the deadline that it read",
    "owner": "a result names owner and number of its claim",
    "with_answer": "only calls that may start twice are claimed with the answer",
}


class D(int):
    """A deadline in ticks from now, by the true time. At `LOW` it passed long ago."""


class Violation(AssertionError):
    pass


class Row(NamedTuple):
    owner: Any
    number: int
    until: D
    state: str = "claimed"  # or done, unknown
    rode: bool = False


class Session(NamedTuple):
    version: int
    step: int
    staged: bool
    claim: Row | None
    calls: tuple[Row | None, Row | None]


class Worker(NamedTuple):
    """A worker. `at` is its next action with the values that it has read."""

    life: int = 0
    paused: bool = False
    stood: bool = False
    at: tuple[Any, ...] = ("idle",)


class State(NamedTuple):
    session: Session
    workers: tuple[Worker, Worker]
    begun: tuple[int, int]
    faults: int
    dead: frozenset[Any]


def tick(value: Any) -> Any:
    if type(value) is D:
        return D(max(value - 1, LOW))
    if isinstance(value, tuple):
        made = [tick(part) for part in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    return value


@dataclass
class Model:
    skews: tuple[int, int] = (0, 0)
    faults: int = 1
    steps: int = 2
    off: str = ""
    found: dict[State, int] = field(default_factory=dict)

    def on(self, rule: str) -> bool:
        return rule != self.off

    def put(self, s: State, w: int, worker: Worker, session: Session | None = None, **changes: Any) -> State:
        workers = (worker, s.workers[1]) if w == 0 else (s.workers[0], worker)
        return s._replace(workers=workers, session=session or s.session, **changes)

    def left(self, w: int, until: D) -> int:
        return until - self.skews[w]

    def fresh(self, w: int) -> D:
        return D(self.skews[w] + LENGTH)

    def may_act(self, w: int, until: D) -> bool:
        return self.left(w, until) > 1

    def is_dead(self, w: int, row: Row) -> bool:
        return self.left(w, row.until) < 0 or not self.on("dead")

    # --- one worker ---------------------------------------------------------------------------------------------------

    def moves(self, s: State, w: int) -> Iterator[State]:
        me, row = s.workers[w], s.session
        mine = (w, me.life)
        idle = me._replace(at=("idle",), stood=False)
        match me.at:
            case ("idle",):
                yield from self.look(s, w, me)
            case ("over",):
                return
            case ("buy", seen, until):
                if row.version != seen:
                    yield self.put(s, w, idle)
                elif row.staged and row.step == self.steps:
                    over = row._replace(version=row.version + 1, step=row.step + 1, staged=False)
                    yield self.put(s, w, me._replace(at=("over",)), over)
                else:
                    step = row.step + 1 if row.staged else row.step
                    claim = Row(mine, row.version, until)
                    new = Session(row.version + 1, step, False, claim, (None, None))
                    begun = (0, 0) if row.staged else s.begun
                    yield self.put(s, w, me._replace(at=("ask", row.version + 1, claim)), new, begun=begun)
            case ("ask", version, claim):
                if self.on("ask") and not self.may_act(w, claim.until):
                    yield self.put(s, w, idle)
                else:
                    self.bought(s, w, version)
                    yield self.put(s, w, me._replace(at=("model", version, claim)))
            case ("model", version, _):
                if row.version != version:
                    yield self.put(s, w, idle)  # refused, and the answer is lost
                    return
                calls: list[Row | None] = [Row(mine, 1, self.fresh(w), rode=True), None]
                if not self.on("with_answer"):
                    calls[1] = calls[0]
                staged = Session(row.version + 1, row.step, True, None, (calls[0], calls[1]))
                for c in (0, 1):
                    at = ("start", row.step, c, calls[c]) if calls[c] else ("take", row.step, c, None, self.fresh(w))
                    yield self.put(s, w, me._replace(at=at), staged)
            case ("take", step, c, read, until):
                here = self.call(s, step, c)
                same = here == read or (here is not None and not self.on("read") and here[:2] == (read or here)[:2])
                if here == "gone" or not same or (read is None) != (here is None):
                    yield self.put(s, w, idle)
                elif read is not None and c == 1:
                    if read.rode and not s.begun[c]:
                        raise Violation(
                            "an unknown outcome is reported of a call whose claim rode and that never began"
                        )
                    yield self.put(s, w, idle, self.with_call(row, c, read._replace(state="unknown")))
                else:
                    taken = Row(mine, (read.number if read else 0) + 1, until)
                    yield self.put(s, w, me._replace(at=("start", step, c, taken)), self.with_call(row, c, taken))
            case ("start", step, c, claim):
                if self.on("start") and not self.may_act(w, claim.until):
                    ours = self.same(self.call(s, step, c), claim)
                    yield self.put(s, w, idle, self.with_call(row, c, None) if ours else row)
                else:
                    self.starts(s, w, step, c)
                    now = s.session.step == step
                    begun = tuple(min(n + (i == c), 2) for i, n in enumerate(s.begun)) if now else s.begun
                    yield self.put(s, w, me._replace(at=("tool", step, c, claim)), begun=begun)
            case ("tool", step, c, claim):
                here = self.call(s, step, c)
                if (not self.on("owner") and isinstance(here, Row)) or self.same(here, claim):
                    if here.state != "claimed":
                        raise Violation("a result is replaced")
                    row = self.with_call(row, c, claim._replace(state="done", until=D(LOW)))
                yield self.put(s, w, idle, row)

    def look(self, s: State, w: int, me: Worker) -> Iterator[State]:
        """Read the rows and decide. Later writes depend on these reads."""
        row = s.session
        if row.step > self.steps:
            yield self.put(s, w, me._replace(at=("over",)))
            return
        todo = [(c, r) for c, r in enumerate(row.calls) if r is None or r.state == "claimed"] if row.staged else []
        if not todo:
            if row.claim is None or self.is_dead(w, row.claim) or row.claim.owner == (w, me.life):
                yield self.put(s, w, me._replace(at=("buy", row.version, self.fresh(w))))
            return
        for c, r in todo:
            if r is None or self.is_dead(w, r):
                yield self.put(s, w, me._replace(at=("take", row.step, c, r, self.fresh(w))))

    def beats(self, s: State, w: int) -> Iterator[State]:
        """Yield the heartbeats of what the worker holds. A holder that was paused may try, too."""
        me, row = s.workers[w], s.session
        if me.at[0] not in ("model", "tool") or self.left(w, me.at[-1].until) >= LENGTH:
            return
        moved = me.at[-1]._replace(until=self.fresh(w))
        held = me._replace(at=(*me.at[:-1], moved), stood=False)
        if me.at[0] == "tool":
            if self.same(self.call(s, me.at[1], me.at[2]), me.at[-1]):
                yield self.put(s, w, held, self.with_call(row, me.at[2], moved))
        elif row.version == me.at[1] and (self.may_act(w, me.at[-1].until) or not self.on("revive")):
            yield self.put(s, w, held, row._replace(claim=moved))

    def holds(self, s: State, w: int) -> bool:
        me = s.workers[w]
        if me.at[0] == "model":
            return s.session.version == me.at[1]
        return self.same(self.call(s, me.at[1], me.at[2]), me.at[-1])

    def stops(self, s: State, w: int) -> Iterator[tuple[State, bool]]:
        """Yield the stops of a holder whose heartbeat was refused, and of one without heartbeats by its own clock."""
        me = s.workers[w]
        if me.at[0] not in ("model", "tool"):
            return
        late = self.left(w, me.at[-1].until) <= (1 if self.on("margin") else -1)
        if not self.holds(s, w) or (late and me.stood):
            yield self.put(s, w, Worker(me.life)), True
        elif late and s.faults:
            yield self.put(s, w, Worker(me.life), faults=s.faults - 1), False

    def hurries(self, s: State, w: int) -> bool:
        """Return whether the worker acts before time passes. Only model and tool calls take time, as far as heartbeats
        reach. Any other delay is a pause."""
        me = s.workers[w]
        if me.paused or me.at[0] in ("idle", "over"):
            return False
        if me.at[0] not in ("model", "tool"):
            return True
        early = s.faults == 0 and not me.stood
        return self.left(w, me.at[-1].until) <= (2 if early else 1 if self.on("margin") else -1)

    # --- all ----------------------------------------------------------------------------------------------------------

    def successors(self, s: State) -> Iterator[tuple[State, bool]]:
        """Yield the next states, each with whether it came about without an accident."""
        for w, me in enumerate(s.workers):
            if me.paused:
                yield self.put(s, w, me._replace(paused=False)), True
                continue
            for new in self.moves(s, w):
                yield new, True
            for new in self.beats(s, w):
                yield new, True
            if me.at[0] in ("idle", "over"):
                continue
            yield from self.stops(s, w)
            if s.faults:
                gone = s.dead | {(w, me.life)}
                yield self.put(s, w, Worker(me.life + 1), faults=s.faults - 1, dead=gone), False
                yield self.put(s, w, me._replace(paused=True, stood=True), faults=s.faults - 1), False
        yield from ((new, True) for new in self.expired(s))
        if not any(self.hurries(s, w) for w in (0, 1)):
            yield tick_state(s), True

    def expired(self, s: State) -> Iterator[State]:
        """Yield states with expired claims of a worker that a supervisor knows to be dead."""
        row = s.session
        if row.claim is not None and row.claim.owner in s.dead and row.claim.until > LOW:
            claim = row.claim._replace(until=D(LOW))
            yield s._replace(session=row._replace(version=row.version + 1, claim=claim))
        for c, r in enumerate(row.calls):
            if r is not None and r.state == "claimed" and r.owner in s.dead and r.until > LOW:
                yield s._replace(session=self.with_call(row, c, r._replace(until=D(LOW))))

    def bought(self, s: State, w: int, version: int) -> None:
        other = s.workers[1 - w]
        if s.session.version != version and s.session.staged:
            return  # a stale worker pays for an answer that it cannot stage
        if other.at[0] == "model" and not other.stood:
            raise Violation("an answer is bought twice while a claim lives")

    def starts(self, s: State, w: int, step: int, c: int) -> None:
        here, other = self.call(s, step, c), s.workers[1 - w]
        if here == "gone" or (isinstance(here, Row) and here.state == "done"):
            raise Violation("a finished tool starts again")
        if c == 1 and s.begun[c]:
            raise Violation("a tool that must not starts twice")
        if other.at[:3] == ("tool", step, c) and not other.stood:
            raise Violation("a tool overlaps with itself")

    def call(self, s: State, step: int, c: int) -> Any:
        return s.session.calls[c] if s.session.step == step and s.session.staged else "gone"

    def same(self, here: Any, claim: Row) -> bool:
        return isinstance(here, Row) and here.state == "claimed" and here[:2] == claim[:2]

    def with_call(self, row: Session, c: int, new: Row | None) -> Session:
        return row._replace(calls=(new, row.calls[1]) if c == 0 else (row.calls[0], new))

    def explore(self) -> int:
        """Explore all reachable states. From each of them the run must be able to end without another accident."""
        start = State(Session(0, 1, False, None, (None, None)), (Worker(), Worker()), (0, 0), self.faults, frozenset())
        found, before, queue = {start: 0}, defaultdict(list), deque([start])
        while queue:
            s = queue.popleft()
            for new, honest in self.successors(s):
                if new not in found:
                    found[new] = len(found)
                    queue.append(new)
                if honest:
                    before[found[new]].append(found[s])
        ends = deque(n for s, n in found.items() if s.session.step > self.steps)
        reached = set(ends)
        while ends:
            for n in before[ends.popleft()]:
                if n not in reached:
                    reached.add(n)
                    ends.append(n)
        if len(reached) != len(found):
            raise Violation(f"{len(found) - len(reached)} states are stuck")
        return len(found)


def tick_state(s: State) -> State:
    return s._replace(session=tick(s.session), workers=tick(s.workers))


if __name__ == "__main__":
    for apart in (0, 1, -1):
        print(f"clocks {apart} apart: {Model((0, apart), faults=int(sys.argv[1])).explore()} states")
