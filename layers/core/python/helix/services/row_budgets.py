"""Budgets and draws as rows of any state store (docs/protocol.md#budgets).

Law: a budget row holds a single number, `remaining`, because a condition can compare one number but cannot add two. A
draw is one transaction over all its budgets and happens once per (run, n). A definition, the count of changes and the
limit of its current window change in one transaction. A window is opened only if the count is unchanged since it was
read, so no window keeps the limit of a replaced definition. `limit = remaining + drawn` at all times, where drawn
counts open draws and the usage of returned draws. `reserved` is the sum of the amounts that open draws added to it. A
draw never takes more than is available. `remaining` is negative only if more was used than drawn, or if a limit was
lowered. On a deployed stage, a window for many calls is divided among shards (`budget_shards`), and both numbers are
the sums over its parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from helix.core.budget import BudgetDefinition, TokenAlert
from helix.core.user_budgets import of_user
from helix.ports.state_store import (
    ABSENT,
    Check,
    Delete,
    Key,
    Operation,
    Put,
    StateStore,
    Update,
    Value,
    When,
)
from helix.services import budget_rows, budget_shards
from helix.services.budget_returns import Closing, closings
from helix.services.budget_rows import VERSION, BudgetState, Demand, budget_key, draw_key, part_key
from helix.services.budget_shards import Taken, Window
from helix.services.committing import Again, refused, repeat_attempt


class RowBudgets:
    """The budgets of one store. A `budget` is named by its window (`BudgetDefinition.window(now)`).

    `shards` is the number of shards among which this process divides a window that is not divided yet; 1 for none.
    `user_budgets` are the budgets that the project declares for each user.
    """

    def __init__(self, store: StateStore, *, shards: int = 1, user_budgets: Sequence[BudgetDefinition] = ()) -> None:
        self._store, self._shards, self.user_budgets = store, shards, tuple(user_budgets)
        dumped = repr([definition.model_dump(mode="json") for definition in self.user_budgets])
        self.declared = hashlib.sha256(dumped.encode()).hexdigest()[:12] if self.user_budgets else ""
        """A digest of the declared budgets. Empty if the project declares none."""

    # --- definitions ---

    async def definitions(
        self, scopes: Sequence[str] | None = None, *, kind: str | None = None
    ) -> list[BudgetDefinition]:
        """Return the definitions of these scopes, in the given order, including those that the project declares for
        each user. Without `scopes`, return all stored definitions, or all definitions for a kind of scope (`agent`,
        `session`)."""
        values: Sequence[Value | None]
        if scopes is None:
            start, end = ("", None) if kind is None else (f"{kind}:", f"{kind};")
            rows = await self._store.query("control", budget_rows.DEFINITIONS, start=start, end=end)
            values = [row.value for row in rows if row.key != VERSION]
        else:
            values = await self._store.get([budget_rows.scope_key(scope) for scope in scopes])
            return [one for scope, value in zip(scopes, values, strict=True) for one in self._of_scope(scope, value)]
        return [definition for value in values for definition in budget_rows.definitions_in(value)]

    def _of_scope(self, scope: str, value: Value | None) -> list[BudgetDefinition]:
        stored = budget_rows.definitions_in(value)
        if not scope.startswith("tenant:"):
            return stored
        names = {definition.name for definition in stored}
        declared = [of_user(definition, scope) for definition in self.user_budgets]
        return stored + [definition for definition in declared if definition.name not in names]

    async def fit_windows(self, definitions: Sequence[BudgetDefinition], now: float, version: int) -> None:
        """Give the open windows of declared budgets the limits that the project currently declares. No other method
        does that, because these definitions are not stored. Changes nothing if definitions were set after `version`."""
        declared = {(d.period, d.unit, d.limit) for d in self.user_budgets}
        tenants = [d for d in definitions if d.scope.startswith("tenant:") and (d.period, d.unit, d.limit) in declared]
        names = [definition.window(now)[0] for definition in tenants]
        for definition, name, there in zip(
            tenants, names, await self._store.get([budget_key(name) for name in names]) if names else [], strict=True
        ):
            if there is None or there["limit"] == definition.limit:
                continue
            change = budget_rows.limit_change(name, there["limit"], definition.limit)
            if await self._at_version("fit_budget", version, change):
                await self._cover(name)

    async def define(self, definition: BudgetDefinition, now: float) -> int:
        """Create the budget, or replace its definition. Return the count of changes.

        The window of `now` gets the new limit immediately: its `remaining` changes by the difference, and becomes
        negative if more has already been drawn. Other windows keep their limits. After the limit is raised, each level
        raises its alert again. Until this method returns, a call in progress may still draw under the old limit.
        """
        budget = definition.window(now)[0]
        key = budget_key(budget)
        while True:
            # Read the count first, because several rows are not read atomically. Any later change makes the write below
            # fail.
            (count,) = await self._store.get([VERSION])
            scope, there = await self._store.get([budget_rows.scope_key(definition.scope), key])
            others = [known for known in budget_rows.definitions_in(scope) if known.name != definition.name]
            ops = _changed(definition.scope, scope, count, [*others, definition])
            if there is None:
                ops.append(Check(key, ABSENT))
            else:
                ops.append(budget_rows.limit_change(budget, there["limit"], definition.limit))
            if await refused(self._store, "set_budget", ops) is None:
                await self._cover(budget)
                return _count(count) + 1

    async def undefine(self, name: str) -> bool:
        """Remove the budget, so that it no longer bounds anything. False if the budget does not exist. Draws from it
        can still be returned."""
        scope = name.rsplit("/", 2)[0]
        while True:
            (count,) = await self._store.get([VERSION])
            (there,) = await self._store.get([budget_rows.scope_key(scope)])
            known = budget_rows.definitions_in(there)
            left = [definition for definition in known if definition.name != name]
            if len(left) == len(known):
                return False
            if await refused(self._store, "remove_budget", _changed(scope, there, count, left)) is None:
                return True

    async def forget(self, scope: str) -> None:
        """Remove the definitions of a permanently deleted scope, and their usage. No run may draw on the scope any
        longer. Harmless for a scope without definitions."""
        while True:
            (count,) = await self._store.get([VERSION])
            (there,) = await self._store.get([budget_rows.scope_key(scope)])
            if there is None:
                return
            windows = [definition.window(0) for definition in budget_rows.definitions_in(there)]
            names = [name for name, window in windows if window.end is None]  # others have a ttl
            for name, value in zip(names, await self._store.get([budget_key(n) for n in names]), strict=True):
                if value is not None and value.get("shards"):
                    parts = [Delete(budget_rows.part_key(name, n)) for n in range(1, value["shards"] + 1)]
                    await self._store.transact("forget_shards", parts)
            endless = [Delete(budget_key(name)) for name in names]
            ops: list[Operation] = [Delete(budget_rows.scope_key(scope)), *_counted(count), *endless]
            if await refused(self._store, "forget_budgets", ops) is None:
                return

    # --- a window ---

    async def open(self, definition: BudgetDefinition, now: float, version: int) -> bool:
        """Create the window of `now` with the definition's limit, unless it exists. False if definitions have changed
        since `version`: then no window is created, and the caller must read them again."""
        budget, window = definition.window(now)
        row = Put(budget_key(budget), budget_rows.window_value(definition, window), ABSENT)
        return await self._at_version("open_budget", version, row)

    async def _at_version(self, name: str, version: int, operation: Operation) -> bool:
        """Write the operation. False if definitions have changed since `version`: then nothing is written."""
        seen = When(equal={"n": version}) if version else ABSENT  # 0: no definition was ever stored
        for count in (VERSION, budget_rows.version_copy(0)):  # an older version of Helix changes only the first
            if await refused(self._store, name, [Check(count, seen), operation]) != 0:
                return True
        return False

    async def get(self, budgets: Sequence[str]) -> list[BudgetState | None]:
        """Return the current states of the budgets. None for a window that was never opened."""
        windows = await budget_shards.read(self._store, budgets)
        return [None if window is None else window.state for window in windows]

    async def at_least(self, budgets: Sequence[str]) -> list[BudgetState | None]:
        """Return the states of the budgets without reading their shards. If a state has `bound`, more may remain."""
        values = await self._store.get([budget_key(budget) for budget in budgets])
        pairs = zip(budgets, values, strict=True)
        return [None if value is None else budget_rows.state_of(budget, value) for budget, value in pairs]

    async def draw(self, run_id: str, n: int, demands: Sequence[Demand]) -> dict[str, int] | None:
        """Take one block from every budget in one transaction. Return the amounts by budget, or None if a budget has
        less left than its estimate, in which case nothing is taken.

        Draw (run, n) happens once: a repeat returns the amounts of the first draw. It waits while other runs draw at
        the same time, and raises `ContentionError` if that takes too long.
        """
        return await repeat_attempt(f"{run_id}#{n}", partial(self._try_draw, run_id, n, demands))

    async def _try_draw(
        self, run_id: str, n: int, demands: Sequence[Demand]
    ) -> dict[str, int] | Literal[Again.AGAIN] | None:
        names = [demand.budget for demand in demands]
        draws, windows = ([make(name) for name in names] for make in (partial(draw_key, run_id, n), budget_key))
        number = budget_shards.shard_of(run_id, self._shards)
        shards = [part_key(name, number) for name in names] if self._shards > 1 else []
        found = await self._store.get([*draws, *windows, *shards])
        before, states, own = found[: len(names)], found[len(names) : 2 * len(names)], found[2 * len(names) :]
        amounts = {name: row["amount"] for name, row in zip(names, before, strict=True) if row is not None}
        ops: list[Operation] = []
        for demand, state, shard in zip(demands, states, own or [None] * len(names), strict=True):
            if demand.budget in amounts:  # perhaps not all: a budget was created after the first try
                continue
            taken = (
                None if state is None else await self._take_from(run_id, demand, Window(demand.budget, state), shard)
            )
            if taken is None:
                # A second caller may have drawn it between the two reads. If so, it is drawn, not refused.
                missing = await self._store.get([draw_key(run_id, n, demand.budget)]) == [None]
                return None if missing else Again.AGAIN
            amounts[demand.budget] = taken.amount
            reserved = taken.amount - demand.used
            value = {"budget": demand.budget, "amount": taken.amount, "state": "open", "reserved": reserved}
            part = {"part": taken.part} if taken.part else {}
            put = Put(draw_key(run_id, n, demand.budget), {**value, **part}, ABSENT)
            ops += [*budget_shards.reserving(taken.operations, reserved), put]
        written = not ops or await refused(self._store, "draw", ops) is None
        return amounts if written else Again.AGAIN

    async def _take_from(self, run_id: str, demand: Demand, window: Window, shard: Value | None) -> Taken | None:
        """Return the operations that take the amount, from the run's shard or from another part. None if the window has
        less. `shard` is the run's shard according to this process's number of shards; another version may have divided
        this window differently."""
        divided = self._shards
        while True:
            shards = window.value.get("shards")
            if budget_shards.divisible(window, demand.estimate, self._shards):
                await budget_shards.divide(self._store, window, self._shards)
            elif not shards:
                return budget_shards.take_whole(window, demand)
            elif shards != divided:
                divided = shards
            else:
                number = budget_shards.shard_of(run_id, shards)
                if shard and (taken := budget_shards.take(window, demand, number, shard["remaining"])):
                    return taken
                (window,) = await budget_shards.complete(self._store, [window])
                if taken := budget_shards.take_anywhere(window, demand, run_id):
                    return taken
                if window.remaining < demand.estimate or (window.own >= 0 and await self._busy(window)):
                    return None
                await budget_shards.gather(self._store, window, demand.estimate - window.own)
            number = budget_shards.shard_of(run_id, divided)
            value, shard = await self._store.get([budget_key(demand.budget), part_key(demand.budget, number)])
            if value is None:
                return None
            window = Window(demand.budget, value)

    async def _busy(self, window: Window) -> bool:
        """Return whether other runs are drawing and returning right now. If so, the remainder stays spread over the
        shards and is not gathered."""
        (again,) = await budget_shards.complete(self._store, [window])
        return again.shards != window.shards

    async def _cover(self, budget: str) -> None:
        """Cover a negative remainder in the window's row from its shards, as far as they have enough."""
        while True:
            (window,) = await budget_shards.read(self._store, [budget])
            if window is None or window.own >= 0 or not any(window.shards):
                return
            await budget_shards.gather(self._store, window, -window.own)

    async def charges(
        self, scopes: Sequence[str], tokens: int, micros: int, now: float
    ) -> list[tuple[BudgetDefinition, Operation]]:
        """Return operations that charge tokens and micro-dollars that no run drew to each budget of these scopes, even
        beyond the remainder. They are for the caller's own transaction; the caller calls again if it is refused.
        Windows of `now` that are not open are opened."""
        while True:
            (count,) = await self._store.get([VERSION])
            definitions = await self.definitions(scopes)
            names = [definition.window(now)[0] for definition in definitions]
            values = await self._store.get([budget_key(name) for name in names])
            pairs = zip(definitions, values, strict=True)
            missing = [definition for definition, value in pairs if value is None]
            if not all([await self.open(definition, now, _count(count)) for definition in missing]):
                continue
            used = {"tokens": tokens, "micros": micros}
            windows = [Window(name, value or {}) for name, value in zip(names, values, strict=True)]
            numbers = [budget_shards.shard_of(repr(now), window.value.get("shards") or 1) for window in windows]
            shards = await self._store.get(list(map(part_key, names, numbers)))
            return [
                (
                    definition,
                    budget_shards.charge(window, number, (shard or {}).get("remaining", 0), used[definition.unit]),
                )
                for definition, window, number, shard in zip(definitions, windows, numbers, shards, strict=True)
            ]

    async def give_back(
        self, run_id: str, used: Mapping[str, int], *, part: bool = False, expires: int | None = None
    ) -> None:
        """Close the open draws of an ended run, and return all but `used` (spent and assumed, by budget). This includes
        draws that the run never learned of. Usage beyond the draws is taken from the remainder.

        Each draw is closed once, and a repeat changes nothing. With `part`, the run continues: only the budgets in
        `used` are closed, because the run no longer draws from them. `expires` (Unix seconds) is the time after which
        the closed draws may be deleted.
        """
        await repeat_attempt(run_id, partial(self._try_return, run_id, used, part, expires))

    async def _try_return(
        self, run_id: str, used: Mapping[str, int], part: bool, expires: int | None
    ) -> Literal[Again.AGAIN] | None:
        rows = await self._store.query("control", budget_rows.run_draws(run_id), start="draw#", end="draw$")
        wanted = [row for row in rows if not part or row.value["budget"] in used]
        for close in closings(wanted, used, expires):
            if not await self._close(close):
                return Again.AGAIN  # another finisher closed some of the draws: count again
        return None

    async def _close(self, close: Closing) -> bool:
        draws, returns = close.draws_closed(), close.returns()
        index = await refused(self._store, "return_draw", [*draws, *returns])
        if index is None or index < len(draws):
            return index is None
        there = await self._store.get([operation.key for operation in returns])
        # The window ended long ago and its row was deleted, so there is nothing to return to.
        return None in there and await refused(self._store, "return_draw", draws) is None

    # --- alerts ---

    async def alert(self, budget: str, alert: TokenAlert, expires: int) -> bool:
        """Raise the alert, unless one of the same level was already raised for this window. True for the one caller
        that raised it. `expires` (Unix seconds) is the time after which its record may be deleted."""
        value = {**alert.model_dump(mode="json"), "ttl": expires}
        field = budget_rows.raised_at(alert.level)
        ops: list[Operation] = [
            Update(budget_key(budget), set={field: alert.timestamp}, when=When(equal={field: None})),
            Put(Key("control", budget_rows.ALERTS, alert.alert_id), value),
            Put(Key("control", budget_rows.UNPUBLISHED, alert.alert_id), value),
        ]
        return await refused(self._store, "alert", ops) is None


def _changed(
    scope: str, there: Value | None, count: Value | None, definitions: Sequence[BudgetDefinition]
) -> list[Operation]:
    """Return the operations that write the scope's row and the count, unless another process has changed either since
    they were read."""
    value = {"budgets": [definition.model_dump(mode="json", exclude_defaults=True) for definition in definitions]}
    return [Put(budget_rows.scope_key(scope), value), *_counted(count)]


def _counted(count: Value | None) -> list[Operation]:
    """Return the operations that count one change, unless another process has made one since the count was read."""
    seen = When(equal={"n": count["n"]}) if count is not None else ABSENT
    more = {"n": _count(count) + 1}
    return [Put(VERSION, more, seen), *(Put(budget_rows.version_copy(n), more) for n in range(budget_rows.COPIES))]


def _count(value: Value | None) -> int:
    return int(value["n"]) if value is not None else 0
