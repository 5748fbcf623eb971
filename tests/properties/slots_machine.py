"""Slots under random schedules. The machine allows the single store calls of all callers one by one, and may lose a call,
lose its answer, or kill its caller.

At each transaction, counters equal rows. A slot is granted only below the limits of that moment, to a running run, and
never beside a ticket of the same run. The first run of an agent's line that the grantor could see goes first, and no run
overtakes it. Whenever all callers have finished without an accident, no slot is free beside a ticket that could have it. At
the end, after sweeps for the accidents' leftovers, every run worked or was ended, and all counters are back at zero.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from tests.properties.protocol_world import ACTOR, Actor, Change, Fate, Violation, World

from helix.adapters.memory import MemoryStateStore
from helix.core.errors import StoreError
from helix.ports.state_store import ABSENT, Check, Key, Put, Row, StateStore, Update, When
from helix.services import slot_rows
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate, SlotCounter

AGENTS = ("a", "b")
DEFAULTS = {"a": 2, "b": None}
FATES: Sequence[Fate] = ("go",) * 20 + ("lost", "unanswered", "die_before", "die_after")
NUMBER = st.integers(0, 30)
ORDER = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=8)
PICKS = st.lists(st.tuples(NUMBER, st.sampled_from(FATES)), max_size=25)


class Reader:
    """The store as seen by one caller. `looked` records the number of writes at its last look at each line."""

    def __init__(self, world: World) -> None:
        self._world, self.looked = world, dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.store, name)

    async def get(self, keys: Sequence[Key]) -> list[Any]:
        values: list[Any] = await self._world.store.get(keys)
        if any(key.partition == slot_rows.COUNTERS for key in keys):
            self.looked[slot_rows.COUNTERS] = self._world.writes
        return values

    async def query(self, table: Any, partition: str, **options: Any) -> list[Row]:
        rows = await self._world.store.query(table, partition, **options)
        if "#tickets#" in partition or partition == slot_rows.COUNTERS:
            self.looked[partition] = self._world.writes
        return rows


class SlotsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(MemoryStateStore())
        self.world.observers.append(self.judge)
        self.readers: dict[Actor, Reader] = {}
        self.runs: list[Candidate] = []
        self.put_at: dict[Key, int] = {}
        self.worked: set[str] = set()
        self.ended: set[str] = set()
        self.stopped: set[str] = set()
        self.accident = False

    def slots(self, store: StateStore) -> RowSlots:
        return RowSlots(store, max_queue=4)

    # --- callers --------------------------------------------------------------------------------------------------

    def call(self, name: str, work: Any) -> None:
        """Start a caller. It does not repeat what the store refuses."""
        actor = self.world.actor(f"{name}{len(self.world.actors)}")
        reader = self.readers[actor] = Reader(self.world)

        async def guarded() -> None:
            try:
                await work(self.slots(reader))
            except StoreError:
                self.accident = True

        self.world.spawn(actor, guarded())
        self.world.check()

    def now(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Execute an operation of the machine itself, at once."""
        return self.world.loop.run_until_complete(work)

    def ask(self, run: Candidate) -> None:
        alive = Check(_session(run), When(equal={"status": "running"}))
        bounded = int(run.order) % 3 > 0
        self.call("admit", lambda s: s.admit(run, default=DEFAULTS[run.agent_type], alive=alive, bounded=bounded))

    def picked(self, n: int) -> Candidate | None:
        return self.runs[n % len(self.runs)] if self.runs else None

    @rule(agent=st.sampled_from(AGENTS), priority=st.sampled_from([0, 0, 0, 1, -1]), times=st.integers(1, 4))
    def come(self, agent: str, priority: int, times: int) -> None:
        for _ in range(times):
            n = len(self.runs)
            run = Candidate(agent, f"run{n:04d}", f"session{n:04d}", float(n), priority)
            self.runs.append(run)
            self.now(self.world.store.transact("claim", [Put(_session(run), {"status": "running"}, ABSENT)]))
            self.ask(run)

    @rule(n=NUMBER)
    def ask_again(self, n: int) -> None:
        if (run := self.picked(n)) is not None:
            self.ask(run)

    @rule(n=NUMBER, twice=st.booleans())
    def end(self, n: int, twice: bool) -> None:
        """End a run that works, waits, or was not admitted yet. Its end may be delivered twice."""
        if (run := self.picked(n)) is not None:
            self.over(run)
            for _ in range(1 + twice):
                self.call("release", lambda s: s.release(run))

    @rule(n=NUMBER)
    def leave(self, n: int) -> None:
        if (run := self.picked(n)) is not None:
            self.stopped.add(run.run_id)

            async def left(slots: RowSlots) -> None:
                if await slots.leave(run):
                    await self.world.store.transact("stop", [Update(_session(run), set={"status": "over"})])
                    self.ended.add(run.run_id)

            self.call("leave", left)

    @rule(agent=st.sampled_from([*AGENTS, None]), limit=st.sampled_from([None, 0, 1, 2, 3]))
    def set_limit(self, agent: str | None, limit: int | None) -> None:
        async def changed(slots: RowSlots) -> None:
            await slots.set_limit(agent, limit)
            await slots.grant()

        self.call("limit", changed)

    @rule(waiting=st.integers(0, 1), acts=st.lists(st.integers(0, 5), min_size=2, max_size=3), order=ORDER)
    def crowd(self, waiting: int, acts: list[int], order: list[tuple[int, int]]) -> None:
        """All slots are held, and at most one run waits. Several callers want these slots at once, and their calls
        interleave."""
        self.sweep()
        for run in self.runs:
            if run.run_id not in self.ended:
                self.end(self.runs.index(run), twice=False)
        self.set_limit("a", None)
        self.set_limit(None, None)
        self.let_go()
        self.come("a", 0, 2 + waiting)
        self.let_go()
        first = len(self.runs) - 2 - waiting
        for act in acts:
            match act:
                case 0 | 1 | 2:
                    self.end(first + min(act, 1 + waiting), twice=False)
                case 3:
                    self.come("a", 0, 1)
                    self.ask(self.runs[-1])
                case 4:
                    self.come("a", 0, 1)
                    self.end(len(self.runs) - 1, twice=False)
                case _:
                    self.set_limit("a", 3)
        for n, times in order:
            actors = list(dict.fromkeys(call.actor for call in self.world.choices()))
            for _ in range(times):
                mine = [call for call in self.world.choices() if actors and call.actor is actors[n % len(actors)]]
                if mine:
                    self.world.open(mine[0])
        self.let_go()

    @rule(picks=PICKS)
    def interleave(self, picks: list[tuple[int, Fate]]) -> None:
        for n, fate in picks:
            choices = self.world.choices()
            if not choices:
                break
            self.accident = self.accident or fate != "go"
            self.world.open(choices[n % len(choices)], fate)
        self.quiet()

    @rule()
    def let_go(self) -> None:
        while choices := self.world.choices():
            self.world.open(choices[0])
        self.quiet()

    @rule()
    def sweep(self) -> None:
        """Do what `sweep` does for slots: runs without a slot or ticket ask again, ended runs release theirs, and the lines
        are checked."""
        self.let_go()
        self.accident = False
        for run in self.runs:
            held, waits = self.has(run)
            if run.run_id not in self.ended and not held and not waits:
                self.ask(run)
            elif run.run_id in self.ended and (held or waits):
                self.call("release", lambda s, run=run: s.release(run))
        self.call("grant", lambda s: s.grant())
        self.let_go()

    def over(self, run: Candidate) -> None:
        self.now(self.world.store.transact("end", [Update(_session(run), set={"status": "over"})]))
        self.ended.add(run.run_id)

    # --- invariants -----------------------------------------------------------------------------------------------

    def counter(self, name: str | None) -> SlotCounter:
        value = self.world.mirror.get(slot_rows.counter_key(name), {})
        partition = slot_rows.shards(name)
        shards = [Row(key, found) for key, found in self.world.mirror.items() if key.partition == partition]
        return slot_rows.with_shards(slot_rows.counted(name, value), shards)

    def rows(self, what: str, agent: str) -> dict[Key, dict[str, Any]]:
        place = ("control", f"admission#{what}#{agent}")
        return {key: value for key, value in self.world.mirror.items() if key[:2] == place}

    def has(self, run: Candidate) -> tuple[bool, bool]:
        found = [self.rows(what, run.agent_type).values() for what in ("slots", "tickets")]
        held, waits = (any(value["run_id"] == run.run_id for value in values) for values in found)
        return held, waits

    def judge(self, name: str, changes: list[Change]) -> None:
        try:
            self._judge(name, changes)
        except Violation as violation:
            self.world.violations.append(f"{name}: {violation}")

    def _judge(self, name: str, changes: list[Change]) -> None:
        shared = {"running": 0, "queued": 0}
        for agent in AGENTS:
            held, line, counter = self.rows("slots", agent), self.rows("tickets", agent), self.counter(agent)
            require((counter.running, counter.queued) == (len(held), len(line)), "counters are not the rows")
            names = [value["run_id"] for value in (*held.values(), *line.values())]
            require(len(names) == len(set(names)), "a run has two rows")
            shared["running"] += sum(value["shared"] for value in held.values())
            shared["queued"] += sum(value["shared"] for value in line.values())
        account = self.counter(None)
        require((account.running, account.queued) == (shared["running"], shared["queued"]), "the account's are not")
        for key, before, after in changes:
            if "#tickets#" in key.partition and after is not None:
                self.put_at[key] = self.world.writes
                require(self.world.mirror[_session_of(after)]["status"] == "running", "a ticket for the dead")
            if "#slots#" in key.partition and before is None and after is not None:
                self.worked.add(after["run_id"])
                self._judge_slot(name, key, after)

    def _judge_slot(self, name: str, key: Key, slot: dict[str, Any]) -> None:
        counter, account = self.counter(slot["agent_type"]), self.counter(None)
        for limited, whose in ((counter, "agent"), (account, "account")):
            if all(shard.epoch == limited.epoch for shard in limited.shards):  # otherwise the limit is being lowered
                require(limited.bound is None or limited.running <= limited.bound, f"more than the {whose}'s limit")
        line = self.rows("tickets", slot["agent_type"])
        actor = ACTOR.get()
        assert actor is not None
        if name == "take_slot":
            require(self.world.mirror[_session_of(slot)]["status"] == "running", "a slot for the dead")
            seen = self.readers[actor].looked[slot_rows.COUNTERS]
            waited = [key for key in line if not counter.divided or self.put_at[key] <= seen]
            require(not waited, "it passed those who wait")
            return
        seen = self.readers[actor].looked[key.partition.replace("#slots#", "#tickets#")]
        mine = f"{999 - slot['priority']:04d}#{round(slot['order'] * 1e6):018d}"
        before = [k.sort for k in line if k.sort < mine and self.put_at[k] <= seen]
        require(counter.divided or not before, f"{slot['run_id']} passed {before}")

    def quiet(self) -> None:
        """Check, once all callers have finished, that no run waits that could be admitted."""
        if self.world.pending or self.accident or any(actor.busy() for actor in self.world.actors if not actor.dead):
            return
        for agent in AGENTS:
            if self.rows("tickets", agent) and self.counter(agent).has_room and self.counter(None).has_room:
                raise Violation(f"no_lost_wakeup: {agent} has room, and {len(self.rows('tickets', agent))} wait")

    def teardown(self) -> None:
        try:
            if not self.world.violations:
                self.drain()
        finally:
            self.world.close()

    def drain(self) -> None:
        self.sweep()
        for name in (*AGENTS, None):
            self.set_limit(name, 1)
        self.let_go()
        for _ in range(2 * len(self.runs) + 2):
            self.sweep()
            working = [run for run in self.runs if self.has(run)[0] and run.run_id not in self.ended]
            for run in working:
                self.over(run)
        forgotten = [run.run_id for run in self.runs if run.run_id not in self.worked | self.ended]
        require(not forgotten, f"never_stuck: {forgotten}")
        for name in (*AGENTS, None):
            counter = self.counter(name)
            require((counter.running, counter.queued) == (0, 0), f"slots are lost: {counter}")


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


def _session(run: Candidate) -> Key:
    return Key("sessions", run.session_id, "session")


def _session_of(value: dict[str, Any]) -> Key:
    return Key("sessions", value["session_id"], "session")
