"""One world with all components: set up, run, and brought to rest. The rules are in `protocol_machine`."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine
from tests.properties.protocol_cast import Cast
from tests.properties.protocol_checks import Checks
from tests.properties.protocol_packed import PackedStores
from tests.properties.protocol_play import SETTINGS, Cloud, Process
from tests.properties.protocol_watch import Watcher
from tests.properties.protocol_world import START, Actor, InlineExecutor, World

from helix.adapters.memory import MemoryStateStore
from helix.adapters.sqlite import SQLiteStateStore
from helix.core.errors import CallerError, StoreError
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.money.reservations import return_draws
from helix.engine.runs.ends import sweep_session
from helix.ports.state_store import StateStore
from helix.services.segments import SegmentStreams
from helix.testing.invariants import check_session

SOLO_PLANS = [
    "text",
    "free>text",
    "free+once>text",
    "care>text",
    "gated>text",
    "gated+gated+once>text",
    "form+free>text",
]
SOLO_PLANS += ["free>free>text", "boom", "free>boom", "fatal+free>text", "done+free", "free+unknown>text"]
BOSS_PLANS = [
    *SOLO_PLANS,
    "kid>text",
    "kidgate>text",
    "kidgate+gated>text",
    "kid+kidform>text",
    "kidtext+free>text",
    "kid+once",
]
WIDE_PLANS = ["free+once+gated+unknown+free>text", "form+gated+care+free+free>text", "gated+gated+gated>text"]
WIDE_BOSS_PLANS = [*WIDE_PLANS, "kid+kidgate+free+gated+form>text", "kid+kid+kidtext>text"]
SESSIONS = {"a": "solo", "b": "boss"}
LIMIT = 6000


class ProtocolBase(RuleBasedStateMachine):
    kind = "memory"
    slots: int | None = None
    casts: type[Cast] = Cast
    watchers: type[Watcher] = Watcher
    checkers: type[Checks] = Checks

    def __init__(self) -> None:
        super().__init__()
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        store = self._store()
        self.world = World(store)
        if isinstance(store, PackedStores):
            store.time = lambda: self.world.clock.time
        self.cast = self.casts(
            self.world, lambda start: self.watcher.started(start), lambda bought: self.watcher.bought(bought)
        )
        self.watcher = self.watchers(self.world, self.cast)
        self.checks = self.checkers(self.world, self.cast, self.watcher)
        self.processes = [Process(self.world, self.cast, name) for name in ("P0", "P1")]
        self.cloud = Cloud(self.world, self.cast, self.slots)
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
        if self.kind == "packed":
            return PackedStores()
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder = tempfile.TemporaryDirectory(dir=base)
        store = SQLiteStateStore(Path(self.folder.name) / "helix.db", synchronous="NORMAL")
        store._thread.shutdown()
        store._thread = InlineExecutor()  # type: ignore[assignment]
        return store

    # --- helpers --------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self.world.trace.append(f"{self.world.clock.now() - START:.1f} {text}")

    def after(self, then: int = 0) -> None:
        """Let every actor continue for `then` calls, and then check."""
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
        solo = self.agents[session_id] == "solo"
        plans = SOLO_PLANS if solo else BOSS_PLANS
        if self.world.calls_at_once < 80:
            plans = plans + (WIDE_PLANS if solo else WIDE_BOSS_PLANS)
        return plans[n % len(plans)]

    def live(self) -> list[Actor]:
        return [a for a in self.world.actors if not a.dead and a.busy()]

    def sessions(self) -> list[SessionRow]:
        return list(self.watcher.view.sessions())

    def _everybody(self, calls: int) -> None:
        for _ in range(calls):
            self.cloud.tick()
            choices = self.world.choices()
            if not choices:
                break
            self.world.open(choices[0])

    def _root(self, session_id: str) -> str:
        session = self.watcher.view.session(session_id)
        while session is not None and session.parent is not None:
            session_id = session.parent.session_id
            session = self.watcher.view.session(session_id)
        return session_id

    def _restart(self) -> None:
        for n, process in enumerate(self.processes):
            if process.actor.dead:
                self.processes[n] = Process(self.world, self.cast, f"{process.actor.name}'", process.actor.skew)

    # --- the end --------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            if not self.sick and not self.world.violations:
                self.drain()
                self.checks.at_rest()
                self.world.loop.run_until_complete(self._shipped())
        finally:
            logging.getLogger("helix").removeHandler(self.log)
            logging.getLogger("helix").propagate = True
            if os.environ.get("HELIX_TRACE"):
                Path(os.environ["HELIX_TRACE"]).write_text("\n".join(self.world.trace))
            self.world.close()
            if self.folder is not None:
                self.folder.cleanup()

    async def _shipped(self) -> None:
        """Check the same rows and streams with the checks that `helix.testing` ships for users."""
        streams = SegmentStreams(self.world.inner)
        for session in self.sessions():
            if session.parent is None:
                await check_session(self.world.inner, streams, session.session_id, at_rest=True)

    def drain(self) -> None:
        """Deliver everything and let time pass, with a sweep at each opening of a session. Then nothing may be left to
        do."""
        self.say("drain")
        for actor in self.world.actors:
            actor.silent = False
            self.world.wake(actor)
        for _ in range(LIMIT):
            self.cloud.tick()
            if choices := self.world.choices():
                self.world.open(choices[0])
                self._restart()
            elif self.live() or any(e.again for e in self.cloud.executions.values()):
                self.world.advance(0.5)
            elif not self._sweep():
                return
        busy = [a.name for a in self.live()]
        raise AssertionError(
            f"never_stuck: {busy} after {LIMIT} more calls; {[(s.session_id, s.status) for s in self.sessions()]}"
        )

    def _sweep(self) -> bool:
        """Do the next thing that `sweep` or the opening of a session would do. Return False if there is nothing to do."""
        process = self.processes[0]
        if any(key.partition.startswith(("open-runs#", "admission#")) for key in self.world.mirror):
            self.say("sweep")
            self.world.advance(SETTINGS.start_grace_s + 1)
            self.cloud.sweep()
            return True
        executor, now = process.executor, self.world.clock.now()
        for session in self.sessions():
            sid = session.session_id
            agent = self.cast.agents[session.agent_type]
            if session.status == "deleting" and session.parent is None:
                process.do(executor.delete(sid))
                return True
            if session.status == "running" and session.lease_owner is not None:
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
            for run in (
                RunRow.at(session.session_id, sort, value) for sort, value in rows
            ):  # a worker died after its draw
                if any(v["state"] == "open" for _, v in self.world.rows("control", f"run#{run.run_id}")):
                    process.do(return_draws(executor.engine, session, run))
                    return True
        return False

    async def _effects(self, process: Process, agent: Any, sid: str) -> None:
        executor = process.executor
        for claimed in await sweep_session(executor.engine, agent, sid, executor._delivery(), limit=None):
            await executor._begin(executor.agents.named(claimed.session.agent_type), claimed, executor._delivery())


class Listener(logging.Handler):
    """A listener for errors. A run that stops with an error other than an accident is a defect, although the executor
    survives it."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, (StoreError, CallerError)):
            self.world.violations.append(f"unexpected: {record.getMessage()}: {type(error).__name__} {error}")
