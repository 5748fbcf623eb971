"""Budgets and draws as rows of any state store (PROTOCOL 7a).

Law: a budget row holds `remaining`, one number, because a condition can compare one number and not add two. A draw is
one transaction over all its budgets and happens once per (run, n). A definition, the count of changes and the limit of
the window that it holds in change in one transaction, and a window is opened only at the count that was read: so no
window keeps the limit of a definition that was replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helix.adapters.budget_rows import (
    ALERTS,
    DEFINITIONS,
    UNTOLD,
    budget_key,
    definitions_in,
    draw_key,
    run_draws,
    scope_key,
    state_of,
    told_at,
    window_value,
)
from helix.core.budget import BudgetDefinition, TokenAlert, block_size
from helix.core.errors import ConditionFailedError
from helix.ports.budgets import VERSION, BudgetState, Demand
from helix.ports.state_store import (
    ABSENT,
    MAX_OPERATIONS,
    Check,
    Delete,
    Key,
    Operation,
    Put,
    Row,
    StateStore,
    Update,
    Value,
    When,
)

CLOSED_AT_ONCE = MAX_OPERATIONS - 1


class RowBudgets:
    def __init__(self, store: StateStore) -> None:
        self._store = store

    # --- what is bounded ---

    async def definitions(
        self, scopes: Sequence[str] | None = None, *, kind: str | None = None
    ) -> list[BudgetDefinition]:
        values: Sequence[Value | None]
        if scopes is None:
            start, end = ("", None) if kind is None else (f"{kind}:", f"{kind};")
            rows = await self._store.query("control", DEFINITIONS, start=start, end=end)
            values = [row.value for row in rows if row.key != VERSION]
        else:
            values = await self._store.get([scope_key(scope) for scope in scopes])
        return [definition for value in values for definition in definitions_in(value)]

    async def define(self, definition: BudgetDefinition, now: float) -> int:
        key = budget_key(definition.window(now)[0])
        while True:
            # The count first: several rows are not read at one moment, and a change after this refuses what follows.
            (count,) = await self._store.get([VERSION])
            scope, there = await self._store.get([scope_key(definition.scope), key])
            others = [known for known in definitions_in(scope) if known.name != definition.name]
            ops = _changed(definition.scope, scope, count, [*others, definition])
            if there is None:
                ops.append(Check(key, ABSENT))
            else:
                move = definition.limit - there["limit"]
                seen = When(equal={"limit": there["limit"]})
                ops.append(Update(key, add={"limit": move, "remaining": move}, when=seen))
            try:
                await self._store.transact("set_budget", ops)
                return _count(count) + 1
            except ConditionFailedError:
                continue

    async def undefine(self, name: str) -> bool:
        scope = name.rsplit("/", 2)[0]
        while True:
            (count,) = await self._store.get([VERSION])
            (there,) = await self._store.get([scope_key(scope)])
            known = definitions_in(there)
            left = [definition for definition in known if definition.name != name]
            if len(left) == len(known):
                return False
            try:
                await self._store.transact("remove_budget", _changed(scope, there, count, left))
                return True
            except ConditionFailedError:
                continue

    async def forget(self, scope: str) -> None:
        while True:
            (count,) = await self._store.get([VERSION])
            (there,) = await self._store.get([scope_key(scope)])
            if there is None:
                return
            windows = [definition.window(0) for definition in definitions_in(there)]
            endless = [Delete(budget_key(name)) for name, window in windows if window.end is None]  # others have a ttl
            ops: list[Operation] = [Delete(scope_key(scope)), _counted(count), *endless]
            try:
                await self._store.transact("forget_budgets", ops)
                return
            except ConditionFailedError:
                continue

    # --- a window ---

    async def open(self, definition: BudgetDefinition, now: float, version: int) -> bool:
        budget, window = definition.window(now)
        current = Check(VERSION, When(equal={"n": version}))
        try:
            row = Put(budget_key(budget), window_value(definition, window), ABSENT)
            await self._store.transact("open_budget", [current, row])
            return True
        except ConditionFailedError as refused:
            return refused.index == 1

    async def get(self, budgets: Sequence[str]) -> list[BudgetState | None]:
        values = await self._store.get([budget_key(budget) for budget in budgets])
        return [state_of(budget, value) for budget, value in zip(budgets, values, strict=True)]

    async def draw(self, run_id: str, n: int, demands: Sequence[Demand]) -> dict[str, int] | None:
        names = [demand.budget for demand in demands]
        keys = [draw_key(run_id, n, name) for name in names] + [budget_key(name) for name in names]
        while True:
            found = await self._store.get(keys)
            before, states = found[: len(names)], found[len(names) :]
            amounts = {name: row["amount"] for name, row in zip(names, before, strict=True) if row is not None}
            ops: list[Operation] = []
            for demand, state in zip(demands, states, strict=True):
                if demand.budget in amounts:  # perhaps not all: a budget was made since the first try
                    continue
                if state is None or state["remaining"] < demand.estimate:
                    # A second caller may have drawn it between the two reads: then it is drawn, not refused.
                    if await self._store.get([draw_key(run_id, n, demand.budget)]) == [None]:
                        return None
                    break
                amount = _amount(demand, state["remaining"])
                amounts[demand.budget] = amount
                enough = When(at_least={"remaining": amount})
                ops.append(Update(budget_key(demand.budget), add={"remaining": -amount}, when=enough))
                value = {"budget": demand.budget, "amount": amount, "state": "open"}
                ops.append(Put(draw_key(run_id, n, demand.budget), value, ABSENT))
            else:
                if not ops:
                    return amounts
                try:
                    await self._store.transact("draw", ops)
                    return amounts
                except ConditionFailedError:
                    continue

    async def give_back(
        self, run_id: str, used: Mapping[str, int], *, part: bool = False, expires: int | None = None
    ) -> None:
        while True:
            rows = await self._store.query("control", run_draws(run_id), start="draw#", end="draw$")
            wanted = [row for row in rows if not part or row.value["budget"] in used]
            for close in _closings(wanted, used, expires):
                if not await self._close(close):
                    break  # another finisher closed some of it: count again
            else:
                return

    async def _close(self, close: _Closing) -> bool:
        draws = close.draws_closed()
        try:
            await self._store.transact("return_draw", [*draws, close.returns()])
        except ConditionFailedError as refused:
            if refused.index < len(draws):
                return False
            (there,) = await self._store.get([budget_key(close.budget)])
            if there is not None:
                return False
            try:  # the window is long over, and its row gone: there is nothing to return to
                await self._store.transact("return_draw", draws)
            except ConditionFailedError:
                return False
        return True

    # --- alerts ---

    async def alert(self, budget: str, alert: TokenAlert, expires: int) -> bool:
        value = {**alert.model_dump(mode="json"), "ttl": expires}
        field = told_at(alert.level)
        ops: list[Operation] = [
            Update(budget_key(budget), set={field: alert.timestamp}, when=When(equal={field: None})),
            Put(Key("control", ALERTS, alert.alert_id), value),
            Put(Key("control", UNTOLD, alert.alert_id), value),
        ]
        try:
            await self._store.transact("alert", ops)
            return True
        except ConditionFailedError:
            return False


@dataclass(frozen=True, slots=True)
class _Closing:
    """Some draws of one budget, and what comes back of each: as many as a transaction takes."""

    budget: str
    returned: dict[Key, int]
    expires: int | None

    def draws_closed(self) -> list[Operation]:
        gone = {"ttl": self.expires} if self.expires is not None else {}
        still = When(equal={"state": "open"})
        return [
            Update(key, set={"state": "returned", "returned": amount, **gone}, when=still)
            for key, amount in self.returned.items()
        ]

    def returns(self) -> Operation:
        return Update(budget_key(self.budget), add={"remaining": sum(self.returned.values())})


def _closings(rows: Sequence[Row], used: Mapping[str, int], expires: int | None) -> list[_Closing]:
    """What closes the open draws. Each keeps what it can of what its budget's others do not; the last of a budget keeps
    the rest, even beyond what it drew: more was used than was set aside."""
    keep = {budget: max(0, amount) for budget, amount in used.items()}
    opened: dict[str, list[Row]] = {}
    for row in rows:
        budget = row.value["budget"]
        if row.value["state"] == "returned":
            keep[budget] = keep.get(budget, 0) - (row.value["amount"] - row.value["returned"])
        else:
            opened.setdefault(budget, []).append(row)
    found = []
    for budget, draws in opened.items():
        rest, returned = max(0, keep.get(budget, 0)), dict[Key, int]()
        for row in draws:
            kept = rest if row is draws[-1] else min(row.value["amount"], rest)
            rest -= kept
            returned[row.key] = row.value["amount"] - kept
        places = list(returned.items())
        for first in range(0, len(places), CLOSED_AT_ONCE):
            found.append(_Closing(budget, dict(places[first : first + CLOSED_AT_ONCE]), expires))
    return found


def _changed(
    scope: str, there: Value | None, count: Value | None, definitions: Sequence[BudgetDefinition]
) -> list[Operation]:
    """The scope's row and the count, if nobody changed either since they were read."""
    value = {"budgets": [definition.model_dump(mode="json", exclude_defaults=True) for definition in definitions]}
    return [Put(scope_key(scope), value), _counted(count)]


def _counted(count: Value | None) -> Operation:
    """One change more, if nobody made one since the count was read."""
    seen = When(equal={"n": count["n"]}) if count is not None else ABSENT
    return Put(VERSION, {"n": _count(count) + 1}, seen)


def _count(value: Value | None) -> int:
    return int(value["n"]) if value is not None else 0


def _amount(demand: Demand, remaining: int) -> int:
    wish = block_size(remaining, demand.estimate) if demand.wish is None else demand.wish
    return max(demand.estimate, min(wish, remaining))
