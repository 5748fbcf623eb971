"""Scaling decisions as rows: what was decided, why, and whether it is in force.

Law: a decision is written before it is applied and marked after, both in transactions on the agent's state row; until it is
marked nobody decides anew, and the process that finds it applies it first. So a crash between the two loses nothing, and
two who decide at once make one decision. Cooldowns count from the mark.

Rows in `control`: `scaling#<agent>` / `state` (version, what was applied, the open decision); `decisions#<agent>` /
`<ISO time>#<version>#<id>`, for 30 days.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from helix.core.messages import Record
from helix.core.scaling import Action, Blocked, Rule, ScalingDecision, ScalingState
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, StateStore, When
from helix.services.committing import refused

KEEP_S = 30 * 86_400
SEEN = 20
"""How many triggers are recognized when they come twice."""


class DecisionRow(Record, frozen=True, extra="ignore"):
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
    budget: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    applied: bool = False

    def decision(self) -> ScalingDecision:
        return ScalingDecision(signals=self.metrics, **{name: getattr(self, name) for name in _SHARED})


_SHARED = ("before", "after", "rule", "reason", "blocked_by", "wanted", "trigger", "budget")


class Standing(Record, frozen=True, extra="ignore"):
    """An agent's state row as it was read. `pending`: the decision that was written and may not be in force. `held`: what
    blocked the last decision, if that one was blocked. `seen`: the triggers of the last decisions. `owed`: the machines for
    the last one could not be asked for yet."""

    version: int = 0
    state: ScalingState = Field(default_factory=ScalingState)
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
        return Standing() if row is None else Standing.model_validate(row)

    async def propose(
        self, agent: str, standing: Standing, decision: ScalingDecision, *, event: str = ""
    ) -> DecisionRow | None:
        """Write a decision that will be applied. None: somebody else decided since `standing` was read. `event` is the id
        of what triggered it, to be known again."""
        row = self._row(decision, standing)
        seen = (*standing.seen, event)[-SEEN:] if event else standing.seen
        return row if await self._write(agent, standing, row, pending=row, held="", seen=seen) else None

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
        return await self._write(agent, standing, None, owed=False)

    async def note(self, agent: str, standing: Standing, decision: ScalingDecision) -> DecisionRow | None:
        """Record a decision that something blocked, once for as long as that same thing blocks; None otherwise."""
        held = f"{decision.blocked_by}: {decision.rule}" if decision.blocked_by else ""
        if held == standing.held:
            return None
        row = self._row(decision, standing) if held else None
        return row if await self._write(agent, standing, row, held=held) else None

    async def record(self, agent: str, decision: ScalingDecision) -> DecisionRow:
        """A change that somebody else has made already, a person for example: cooldowns count from it."""
        while True:
            standing = await self.standing(agent)
            row = self._row(decision, standing).model_copy(update={"applied": True})
            state = standing.state.applied(decision, row.at)
            if await self._write(agent, standing, row, state=state, held=""):
                return row

    async def history(self, agent: str, limit: int = 10) -> list[DecisionRow]:
        """The last `limit` decisions, the oldest of them first."""
        rows = await self._store.query("control", _decisions(agent), limit=limit, reverse=True)
        return [DecisionRow.model_validate(row.value) for row in reversed(rows)]

    async def forget(self, agent: str) -> None:
        """No cooldown and no lock any more, and no open decision. The history stays."""
        await self._store.transact("forget_scaling", [Delete(_state(agent))])

    def _row(self, decision: ScalingDecision, standing: Standing) -> DecisionRow:
        now = self._clock.now()
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        ident = f"{stamp}#{standing.version + 1:08d}#{self._ids.new('dec')}"  # in order, also within a millisecond
        shared = {name: getattr(decision, name) for name in (*_SHARED, "action")}
        return DecisionRow(id=ident, at=now, metrics=decision.signals, **shared)

    async def _write(
        self, agent: str, standing: Standing, row: DecisionRow | None, name: str = "decide_scaling", **changes: Any
    ) -> bool:
        """The state row as it was read with these changes, and the decision. False: somebody else has written it."""
        changed = standing.model_copy(update={**changes, "version": standing.version + 1})
        value = {**changed.model_dump(mode="json"), "open": changed.pending.id if changed.pending else None}
        when = When(equal={"version": standing.version}) if standing.version else ABSENT
        operations: list[Operation] = [Put(_state(agent), value, when)]
        if row is not None:
            stored = {**row.model_dump(), "ttl": int(row.at) + KEEP_S}
            operations.append(Put(Key("control", _decisions(agent), row.id), stored))
        return await refused(self._store, name, operations) is None

    async def _close(self, agent: str, row: DecisionRow, *, applied: bool, owed: bool = False) -> bool:
        closed = row.model_copy(update={"applied": True} if applied else {"blocked_by": "operator"})
        while True:
            standing = await self.standing(agent)
            if standing.pending is None or standing.pending.id != row.id:
                return False
            state = standing.state.applied(row.decision(), self._clock.now()) if applied else standing.state
            changes = {"state": state, "pending": None, "owed": standing.owed or owed}
            if await self._write(agent, standing, closed, "confirm_scaling", **changes):
                return True


def _state(agent: str) -> Key:
    return Key("control", f"scaling#{agent}", "state")


def _decisions(agent: str) -> str:
    return f"decisions#{agent}"
