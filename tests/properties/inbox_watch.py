"""Messages to runs that work: an act of the walks, and a check of each transaction that moves one."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.properties.protocol_world import Change, World

from helix.core.inbox import InboxRow, in_order
from helix.core.session_row import SessionRow
from helix.ports.state_store import Key

HOWS = ["steer", "steer", "queue", "queue", "interrupt"]
TAKES_BACK = {"withdraw_message", "delete_rows"}


class InboxWatch:
    """Checks that a waiting message is delivered or withdrawn, once and in order. `moved` counts the messages by fate."""

    def __init__(self, world: World) -> None:
        self.world, self.moved = world, {"left": 0, "delivered": 0, "withdrawn": 0}
        world.observers.append(self.committed)

    def committed(self, name: str, changes: list[Change]) -> None:
        rows = [change for change in changes if change[0].table == "sessions"]
        put = [
            (key.partition, after["queued"])
            for key, before, after in rows
            if key.sort.startswith("m#") and before is None and after is not None and after.get("queued")
        ]
        gone = [(key.partition, key.sort[2:]) for key, _, after in rows if key.sort.startswith("i#") and after is None]
        self.moved["left"] += sum(key.sort.startswith("i#") and after is not None for key, _, after in rows)
        if name.startswith("copy_") or name in TAKES_BACK:
            self.moved["withdrawn"] += len(gone)
            return
        if sorted(put) != sorted(gone):
            self.world.violations.append(f"inbox_once: {name} put the messages {put} and deleted {gone}")
        self.moved["delivered"] += len(put)
        for sid, ident in put:
            self._in_order(name, sid, ident, [key for key, *_ in rows])

    def _in_order(self, name: str, sid: str, ident: str, moved: list[Key]) -> None:
        """Check that no message that goes first keeps waiting: `put` is the oldest of its kind, or all of them moved."""
        waiting = [
            InboxRow.at(sid, key.sort, value)
            for key, value in self.world.mirror.items()
            if (key.table, key.partition) == ("sessions", sid) and key.sort.startswith("i#") and key not in moved
        ]
        first = [row for row in in_order(waiting) if row.mode == "steer" and row.id < ident]
        if first and name == "claim_step":
            self.world.violations.append(f"inbox_order: {name} delivered {ident} before {[row.id for row in first]}")

    def at_rest(self) -> None:
        """Raise if a message waits that nothing will start."""
        for key, value in self.world.mirror.items():
            if key.table == "sessions" and key.sort.startswith("i#"):
                session = SessionRow.at(key.partition, self.world.mirror[Key("sessions", key.partition, "session")])
                stopped = session.status in ("paused", "interrupted") or session.aborted or session.parent is not None
                if not stopped or not session.inbox:
                    raise AssertionError(f"inbox_once: {key.sort} waits for ever in {key.partition}: {session.status}")
                assert value["mode"] in HOWS


def speak(m: Any, rng: Random) -> None:
    """Send a message to any session, or take one back."""
    sid, p, how = m.target(rng.randrange(6)), rng.randrange(6), rng.choice(HOWS)
    text = m.plan(sid, rng.randrange(30))
    waiting = sorted(k.sort[2:] for k in m.world.mirror if k.partition == sid and k.sort.startswith("i#"))
    if waiting and not rng.randrange(5):
        ident = rng.choice(waiting)
        m.say(f"withdraw {ident} of {sid} by {p}")
        process = m.process(p)
        process.do(process.executor.withdraw(sid, ident))
    elif p < 4:
        m.say(f"{how} {sid} {text} by P{p % 2}")
        process = m.process(p)
        process.do(process.executor.execute(m.agent(sid), text, session_id=sid, when_running=how))
    else:
        m.say(f"cloud {how} {sid} {text}")
        agent = m.agent(sid)
        m.cloud.do("execute", lambda executor: executor.execute(agent, text, session_id=sid, when_running=how))
    m.after(rng.choice([0, 0, 1, 7, 40, 150]))
