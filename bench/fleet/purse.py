"""The money of a run: blocks drawn from the real budgets, as the engine draws them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from helix.core.budget import TokenAlert
from helix.services.budget_rows import BudgetState, Demand

from .load import Arrival

if TYPE_CHECKING:
    from .replay import Replay


class Purse:
    """Reserve before a call, settle after it, and return the rest at the end of the run."""

    def __init__(self, replay: Replay, arrival: Arrival) -> None:
        self._replay, self._arrival = replay, arrival
        self._drawn: defaultdict[str, int] = defaultdict(int)
        self._used: defaultdict[str, int] = defaultdict(int)
        self._reserved: list[str] = []
        self._draws = 0

    async def reserve(self, micros: int) -> bool:
        """Reserve for a call. Return False if a budget has no room for its worst case."""
        replay = self._replay
        windows = {}
        for definition in replay.definitions[self._arrival.agent]:
            windows[definition.window(replay.clock.now())[0]] = definition
        short = {window: micros - (self._drawn[window] - self._used[window]) for window in windows}
        demands = [Demand(window, "micros", need) for window, need in short.items() if need > 0]
        if demands and not await self._draw(demands):
            states = await replay.budgets.get([demand.budget for demand in demands])
            for definition in windows.values():
                await replay.budgets.open(definition, replay.clock.now(), replay.version)
            if None not in states or not await self._draw(demands):
                for state in states:
                    if state is not None:
                        await self._refused(state)
                return False
        for window in windows:
            self._used[window] += micros
        self._reserved = list(windows)
        return True

    def settle(self, reserved: int, micros: int) -> None:
        for window in self._reserved:
            self._used[window] += micros - reserved

    async def give_back(self) -> None:
        await self._replay.budgets.give_back(self._arrival.run_id, dict(self._used))

    async def _draw(self, demands: list[Demand]) -> bool:
        taken = await self._replay.budgets.draw(self._arrival.run_id, self._draws, demands)
        if taken is None:
            return False
        self._draws += 1
        for window, amount in taken.items():
            self._drawn[window] += amount
        return True

    async def _refused(self, state: BudgetState) -> None:
        """Publish an alert once per window, as the engine does."""
        scope, period, unit, key = state.budget.split("/")
        now = self._replay.clock.now()
        current = state.limit - state.remaining
        alert = TokenAlert.model_validate(
            {
                "alert_id": f"{now}#{state.budget}",
                "level": "exceeded",
                "message": "",
                "scope": scope,
                "period": period,
                "window": key,
                "unit": unit,
                "current": current,
                "limit": state.limit,
                "utilization": current / state.limit,
                "timestamp": now,
            }
        )
        await self._replay.budgets.alert(state.budget, alert, int(now) + 86_400)
