"""Budgets and draws as rows of any state store (PROTOCOL 7a).

Law: a budget row holds `remaining`, one number, because a condition can compare one number and not add two. A draw is
one transaction over all its budgets and happens once per (run, n).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helix.core.errors import ConditionFailedError, InvalidInputError
from helix.ports.budgets import BudgetState, Demand, Unit
from helix.ports.state_store import ABSENT, Key, Operation, Put, StateStore, Update, When

ROW = "budget"


class RowBudgets:
    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def set_limit(self, budget: str, unit: Unit, limit: int) -> BudgetState:
        if limit < 0:
            raise InvalidInputError(f"limit of budget {budget!r} is {limit}; it must be 0 or more")
        while True:
            state = await self.get(budget)
            key = _key(budget)
            try:
                if state is None:
                    value = {"unit": unit, "limit": limit, "remaining": limit}
                    await self._store.transact("set_budget", [Put(key, value, ABSENT)])
                    return BudgetState(budget, unit, limit, limit)
                if state.unit != unit:
                    raise InvalidInputError(f"budget {budget!r} counts {state.unit}, not {unit}")
                change = max(limit - state.limit, -state.remaining)
                seen = When(equal={"limit": state.limit}, at_least={"remaining": -change} if change < 0 else {})
                update = Update(key, add={"limit": change, "remaining": change}, when=seen)
                await self._store.transact("set_budget", [update])
                return BudgetState(budget, unit, state.limit + change, state.remaining + change)
            except ConditionFailedError:
                continue

    async def get(self, budget: str) -> BudgetState | None:
        (value,) = await self._store.get([_key(budget)])
        return None if value is None else BudgetState(budget, value["unit"], value["limit"], value["remaining"])

    async def draw(self, run_id: str, n: int, demands: Sequence[Demand]) -> dict[str, int] | None:
        while True:
            before = await self._store.get([_draw_key(run_id, n, d.budget) for d in demands])
            amounts = {d.budget: row["amount"] for d, row in zip(demands, before, strict=True) if row is not None}
            missing = [d for d in demands if d.budget not in amounts]  # not all: a budget was made since the first try
            if not missing:
                return amounts
            for demand in missing:
                state = await self.get(demand.budget)
                if state is None or state.remaining < demand.estimate:
                    return None
                amounts[demand.budget] = max(demand.estimate, min(demand.wish, state.remaining))
            ops: list[Operation] = []
            for demand in missing:
                amount = amounts[demand.budget]
                enough = When(at_least={"remaining": amount})
                ops.append(Update(_key(demand.budget), add={"remaining": -amount}, when=enough))
                value = {"budget": demand.budget, "amount": amount, "state": "open"}
                ops.append(Put(_draw_key(run_id, n, demand.budget), value, ABSENT))
            try:
                await self._store.transact("draw", ops)
                return amounts
            except ConditionFailedError:
                continue

    async def give_back(self, run_id: str, used: Mapping[str, int]) -> None:
        rows = await self._store.query("control", _run(run_id))
        keep = dict(used)
        for row in rows:
            if row.value["state"] == "returned":
                kept = row.value["amount"] - row.value["returned"]
                keep[row.value["budget"]] = keep.get(row.value["budget"], 0) - kept
        for row in rows:
            budget, amount = row.value["budget"], row.value["amount"]
            if row.value["state"] != "open":
                continue
            kept = max(0, min(amount, keep.get(budget, 0)))
            ops: list[Operation] = [
                Update(
                    row.key, set={"state": "returned", "returned": amount - kept}, when=When(equal={"state": "open"})
                ),
                Update(_key(budget), add={"remaining": amount - kept}),
            ]
            try:
                await self._store.transact("return_draw", ops)
            except ConditionFailedError:
                await self.give_back(run_id, used)  # another finisher closed it: count again
                return
            keep[budget] = keep.get(budget, 0) - kept


def _key(budget: str) -> Key:
    return Key("control", f"budget#{budget}", ROW)


def _run(run_id: str) -> str:
    return f"run#{run_id}"


def _draw_key(run_id: str, n: int, budget: str) -> Key:
    return Key("control", _run(run_id), f"draw#{n:010d}#{budget}")
