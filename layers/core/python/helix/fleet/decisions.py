"""Scaling decisions as rows: what was decided, why, and whether it is in force.

Law: a decision is written before it is applied and marked after, both in transactions on the agent's state row; until it is
marked nobody decides anew, and whoever finds it applies it first. So a crash between the two loses nothing, and two
who decide at once make one decision. Cooldowns count from the mark.

Rows in `control`: `scaling#<agent>` / `state` (version, what was applied, the open decision); `decisions#<agent>` /
`<ISO time>#<version>#<id>`, for 30 days.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from helix.core.errors import ConditionFailedError
from helix.core.messages import Record
from helix.core.scaling import Action, Blocked, Rule, ScalingDecision, ScalingState
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, StateStore, Update, Value, When

KEPT_S = 30 * 86_400
SEEN = 20
"""So many triggers are known again when they come twice."""


class DecisionRow(Record, frozen=True):
    """One decision. `at`: Unix seconds. `metrics`: the numbers that were judged. `applied`: it is in force, or was."""

    id: str
    at: float
    before: int
    after: int
    action: Action
    rule: Rule
    reason: str
    trigger: str = ""
    blocked_by: Blocked | None = None
    wanted: int | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    applied: bool = False

    def decision(self) -> ScalingDecision:
        return ScalingDecision(
            before=self.before,
            after=self.after,
            rule=self.rule,
            reason=self.reason,
            signals=self.metrics,
            blocked_by=self.blocked_by,
            wanted=self.wanted,
            trigger=self.trigger,
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """An agent's state row as it was read. `pending`: the decision that was written and may not be in force. `held`: what
    blocked the last decision, if that one was blocked. `seen`: the triggers of the last decisions. `owed`: the machines for
    the last one could not be asked for yet."""

    version: int = 0
    state: ScalingState = field(default_factory=ScalingState)
    pending: DecisionRow | None = None
    held: str = ""
    seen: tuple[str, ...] = ()
    owed: bool = False


class DecisionLog:
    """The decisions of all agents in one store."""

    def __init__(self, store: StateStore, clock: Clock, ids: Ids) -> None:
        self._store, self._clock, self._ids = store, clock, ids

    async def standing(self, agent: str) -> Standing:
        [row] = await self._store.get([_state(agent)])
        if row is None:
            return Standing()
        pending = DecisionRow.model_validate(row["pending"]) if row["pending"] else None
        state = ScalingState.model_validate(row["state"])
        return Standing(row["version"], state, pending, row["held"], tuple(row["seen"]), row["owed"])

    async def propose(
        self, agent: str, standing: Standing, decision: ScalingDecision, *, event: str = ""
    ) -> DecisionRow | None:
        """Write a decision that will be applied. None: somebody else decided since `standing` was read. `event` is the id
        of what triggered it, to be known again."""
        row = self._row(decision, standing)
        seen = [*standing.seen, event][-SEEN:] if event else list(standing.seen)
        told = _told(standing, pending=row.model_dump(), open=row.id, held="", seen=seen)
        return row if await self._write(agent, standing, told, row) else None

    def while_open(self, agent: str, row: DecisionRow) -> Check:
        """Holds until the decision is marked or given up: the condition of what puts it into force, so that one who stood
        still for a while can not do it again."""
        return Check(_state(agent), When(equal={"open": row.id}))

    async def confirm(self, agent: str, row: DecisionRow, *, owed: bool = False) -> bool:
        """Mark it as in force. False: it was marked, or given up, before."""
        return await self._close(agent, row, applied=True, owed=owed)

    async def give_up(self, agent: str, row: DecisionRow) -> bool:
        """It was not applied and will not be: somebody has changed what it was made for."""
        return await self._close(agent, row, applied=False)

    async def paid(self, agent: str, standing: Standing) -> bool:
        """What was owed is done. False: something was decided since `standing` was read."""
        return await self._write(agent, standing, _told(standing, owed=False), None)

    async def note(self, agent: str, standing: Standing, decision: ScalingDecision) -> DecisionRow | None:
        """Record a decision that something blocked, once for as long as that same thing blocks; None otherwise."""
        held = f"{decision.blocked_by}: {decision.rule}" if decision.blocked_by else ""
        if held == standing.held:
            return None
        row = self._row(decision, standing) if held else None
        told = _told(standing, held=held)
        return row if await self._write(agent, standing, told, row) else None

    async def record(self, agent: str, decision: ScalingDecision) -> DecisionRow:
        """A change that somebody else has made already, a person for example: cooldowns count from it."""
        while True:
            standing = await self.standing(agent)
            row = self._row(decision, standing).model_copy(update={"applied": True})
            state = standing.state.applied(decision, row.at)
            if await self._write(agent, standing, _told(standing, state=state.model_dump(), held=""), row):
                return row

    async def history(self, agent: str, limit: int = 10) -> list[DecisionRow]:
        """The last `limit` decisions, the oldest of them first."""
        rows = await self._store.query("control", _decisions(agent), limit=limit, reverse=True)
        return [_read(row.value) for row in reversed(rows)]

    async def forget(self, agent: str) -> None:
        """No cooldown and no lock any more, and no open decision. The history stays."""
        await self._store.transact("forget_scaling", [Delete(_state(agent))])

    def _row(self, decision: ScalingDecision, standing: Standing) -> DecisionRow:
        now = self._clock.now()
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return DecisionRow(
            id=f"{stamp}#{standing.version + 1:08d}#{self._ids.new('dec')}",  # in order, also within a millisecond
            at=now,
            before=decision.before,
            after=decision.after,
            action=decision.action,
            rule=decision.rule,
            reason=decision.reason,
            trigger=decision.trigger,
            blocked_by=decision.blocked_by,
            wanted=decision.wanted,
            metrics=decision.signals,
        )

    async def _write(self, agent: str, standing: Standing, told: Value, row: DecisionRow | None) -> bool:
        when = When(equal={"version": standing.version}) if standing.version else ABSENT
        operations: list[Operation] = [Put(_state(agent), {**told, "version": standing.version + 1}, when)]
        if row is not None:
            operations.append(Put(_decision(agent, row), _stored(row)))
        try:
            await self._store.transact("decide_scaling", operations)
        except ConditionFailedError:
            return False
        return True

    async def _close(self, agent: str, row: DecisionRow, *, applied: bool, owed: bool = False) -> bool:
        while True:
            standing = await self.standing(agent)
            if standing.pending is None or standing.pending.id != row.id:
                return False
            state = standing.state.applied(row.decision(), self._clock.now()) if applied else standing.state
            changed: Value = {"state": state.model_dump(), "pending": None, "open": None}
            changed |= {"owed": standing.owed or owed, "version": standing.version + 1}
            operations: list[Operation] = [
                Update(_state(agent), set=changed, when=When(equal={"version": standing.version}))
            ]
            outcome = {"applied": True} if applied else {"blocked_by": "operator"}
            operations.append(Put(_decision(agent, row), _stored(row.model_copy(update=outcome))))
            try:
                await self._store.transact("confirm_scaling", operations)
            except ConditionFailedError:
                continue
            return True


def _told(standing: Standing, **changes: Any) -> Value:
    """The state row as it was read, with these fields changed."""
    pending = standing.pending
    return {
        "state": standing.state.model_dump(),
        "pending": pending.model_dump() if pending else None,
        "open": pending.id if pending else None,
        "held": standing.held,
        "seen": list(standing.seen),
        "owed": standing.owed,
        **changes,
    }


def _stored(row: DecisionRow) -> Value:
    return {**row.model_dump(), "ttl": int(row.at) + KEPT_S}


def _read(value: dict[str, Any]) -> DecisionRow:
    return DecisionRow.model_validate({name: part for name, part in value.items() if name != "ttl"})


def _state(agent: str) -> Key:
    return Key("control", f"scaling#{agent}", "state")


def _decisions(agent: str) -> str:
    return f"decisions#{agent}"


def _decision(agent: str, row: DecisionRow) -> Key:
    return Key("control", _decisions(agent), row.id)
