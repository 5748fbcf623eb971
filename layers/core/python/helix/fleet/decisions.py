"""The stored scaling decisions: each decision, its reason, and whether it was applied.

Law: a decision is written before it is applied and marked afterwards, both in transactions on the agent's state row. While
a decision is unmarked, no new one is made, and a process that finds it applies it first. A crash in between therefore loses
nothing, and two processes that decide concurrently make only one decision. Cooldowns start when the decision is marked.

Rows in `control`: `scaling#<agent>` / `state` (version, applied state, open decision); `decisions#<agent>` /
`<ISO time>#<version>#<id>`, kept for 30 days.
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
"""The number of trigger ids that are remembered to detect duplicates."""


class DecisionRow(Record, frozen=True, extra="ignore"):
    """A stored decision about one agent. `DecisionLog` writes it."""

    id: str
    """The sort key of the row: `<ISO time>#<version>#<id>`, so decisions sort by time."""
    at: float
    """The time of the decision in Unix seconds."""
    before: int
    """The number of instances before the decision."""
    after: int
    """The number of instances that the decision sets."""
    action: Action
    """The direction of the change, or `hold` if the change was blocked."""
    rule: Rule
    """The rule that made the decision."""
    reason: str
    """A human-readable explanation."""
    trigger: str = ""
    """The trigger of the evaluation, such as an alarm or the schedule."""
    blocked_by: Blocked | None = None
    """The reason why the change was blocked. `operator` if the decision was abandoned. None: it was not blocked."""
    wanted: int | None = None
    """The number of instances that the rule asked for. None unless the change was blocked."""
    budget: str | None = None
    """The name of the budget that stopped the agent. None: no budget stopped it."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """The numbers that the decision was based on, by signal name."""
    applied: bool = False
    """Whether the decision was applied. It becomes true when the decision is marked."""

    def decision(self) -> ScalingDecision:
        return ScalingDecision(signals=self.metrics, **{name: getattr(self, name) for name in _SHARED})


_SHARED = ("before", "after", "rule", "reason", "blocked_by", "wanted", "trigger", "budget")


class Standing(Record, frozen=True, extra="ignore"):
    """An agent's state row at the time of reading."""

    version: int = 0
    """The row's version, which each write increments. 0: the agent has no row yet."""
    state: ScalingState = Field(default_factory=ScalingState)
    """The applied changes that start cooldowns."""
    pending: DecisionRow | None = None
    """The open decision: written, but not yet marked as applied. None: no decision is open."""
    held: str = ""
    """If the last decision was blocked, `<reason>: <rule>`, so that the same block is not recorded twice. Empty: it was not
    blocked."""
    seen: tuple[str, ...] = ()
    """The trigger ids of the last 20 decisions, to detect duplicate messages."""
    owed: bool = False
    """Whether the capacity for the last decision must still be requested, because the request failed."""


class DecisionLog:
    """The decisions about all agents in one store."""

    def __init__(self, store: StateStore, clock: Clock, ids: Ids) -> None:
        self._store, self._clock, self._ids = store, clock, ids

    async def read_standing(self, agent: str) -> Standing:
        [row] = await self._store.get([_state(agent)])
        return Standing() if row is None else Standing.model_validate(row)

    async def propose(
        self, agent: str, standing: Standing, decision: ScalingDecision, *, event: str = ""
    ) -> DecisionRow | None:
        """Write a decision before it is applied. `event` is the id of its trigger, to detect duplicates. Returns None if
        another process decided after `standing` was read."""
        row = self._row(decision, standing)
        seen = (*standing.seen, event)[-SEEN:] if event else standing.seen
        return row if await self._write(agent, standing, row, pending=row, held="", seen=seen) else None

    def check_open(self, agent: str, row: DecisionRow) -> Check:
        """Return a condition that holds until the decision is marked or abandoned. The write that applies the decision
        includes this condition, so that a process that was paused in the meantime cannot apply it a second time."""
        return Check(_state(agent), When(equal={"open": row.id}))

    async def confirm(self, agent: str, row: DecisionRow, *, owed: bool = False) -> bool:
        """Mark the decision as applied. Returns False if it was already marked or abandoned."""
        return await self._close(agent, row, applied=True, owed=owed)

    async def give_up(self, agent: str, row: DecisionRow) -> bool:
        """Close the decision without applying it, because the limit that it was based on has changed."""
        return await self._close(agent, row, applied=False)

    async def mark_requested(self, agent: str, standing: Standing) -> bool:
        """Record that the owed capacity was requested. Returns False if another decision was made after `standing` was
        read."""
        return await self._write(agent, standing, None, owed=False)

    async def record_block(self, agent: str, standing: Standing, decision: ScalingDecision) -> DecisionRow | None:
        """Record a blocked decision. Returns None without recording it again while the same reason blocks the same rule."""
        held = f"{decision.blocked_by}: {decision.rule}" if decision.blocked_by else ""
        if held == standing.held:
            return None
        row = self._row(decision, standing) if held else None
        return row if await self._write(agent, standing, row, held=held) else None

    async def record(self, agent: str, decision: ScalingDecision) -> DecisionRow:
        """Record a change that was already made, for example by an operator. Cooldowns start with it."""
        while True:
            standing = await self.read_standing(agent)
            row = self._row(decision, standing).model_copy(update={"applied": True})
            state = standing.state.applied(decision, row.at)
            if await self._write(agent, standing, row, state=state, held=""):
                return row

    async def history(self, agent: str, limit: int = 10) -> list[DecisionRow]:
        """Return the last `limit` decisions, oldest first."""
        rows = await self._store.query("control", _decisions(agent), limit=limit, reverse=True)
        return [DecisionRow.model_validate(row.value) for row in reversed(rows)]

    async def forget(self, agent: str) -> None:
        """Delete the agent's cooldowns, lock and open decision. The history is kept."""
        await self._store.transact("forget_scaling", [Delete(_state(agent))])

    def _row(self, decision: ScalingDecision, standing: Standing) -> DecisionRow:
        now = self._clock.now()
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        ident = f"{stamp}#{standing.version + 1:08d}#{self._ids.new('dec')}"  # sorts even within a millisecond
        shared = {name: getattr(decision, name) for name in (*_SHARED, "action")}
        return DecisionRow(id=ident, at=now, metrics=decision.signals, **shared)

    async def _write(
        self, agent: str, standing: Standing, row: DecisionRow | None, name: str = "decide_scaling", **changes: Any
    ) -> bool:
        """Write the changed state row, and the decision if given. Returns False if another process has written the row."""
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
            standing = await self.read_standing(agent)
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
