"""Returns the draws of ended runs to their budgets: computes which amount goes back to which part (`row_budgets`).

Law: a draw is closed once, in the transaction that returns its amount. A shard is never below 0, so usage beyond the
draws is charged to the window's row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helix.ports.state_store import MAX_OPERATIONS, Key, Operation, Row, Update, When
from helix.services.budget_rows import part_key

CLOSED_AT_ONCE = MAX_OPERATIONS // 2
"""The maximum number of draws that one transaction closes. The parts to which they return need as many operations
again."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The return of some draws of one budget, as many as fit into a transaction."""

    budget: str
    """The name of the window's budget."""
    returned: dict[Key, int]
    """The amount that each draw returns, by the key of its row. Negative if more was used than drawn."""
    parts: dict[Key, int]
    """The part to which each draw returns: the number of a shard, or 0 for the window's row."""
    reserved: dict[Key, int]
    """The amount that each draw added to the window's `reserved`."""
    expires: int | None
    """The time (Unix seconds) after which the closed draws may be deleted. None if they are never deleted."""

    def draws_closed(self) -> list[Operation]:
        gone = {"ttl": self.expires} if self.expires is not None else {}
        still = When(equal={"state": "open"})
        return [
            Update(key, set={"state": "returned", "returned": amount, **gone}, when=still)
            for key, amount in self.returned.items()
        ]

    def returns(self) -> list[Operation]:
        """Return the operations that return the amounts to their parts. Usage beyond the draws is charged to the
        window's row, because a shard is never below 0."""
        back, reserved = Counter[int](), Counter[int]()
        for key, amount in self.returned.items():
            back[self.parts[key]] += amount
            reserved[self.parts[key]] -= self.reserved[key]
        back[0] += sum(back.pop(part) for part in list(back) if part and back[part] < 0)
        added = {part: {"remaining": back[part], "reserved": reserved[part]} for part in (*back, *reserved)}
        changes = {part: {name: n for name, n in numbers.items() if n} for part, numbers in added.items()}
        return [Update(part_key(self.budget, part), add=numbers) for part, numbers in changes.items() if numbers]


def closings(rows: Sequence[Row], used: Mapping[str, int], expires: int | None) -> list[Closing]:
    """Return the closings of the open draws. Each draw is charged with as much of the budget's usage as it covers. The
    last draw of a budget is charged with the rest. That may exceed its amount, if more was used than was reserved."""
    keep = {budget: max(0, amount) for budget, amount in used.items()}
    parts = {row.key: row.value.get("part", 0) for row in rows}
    reserved = {row.key: row.value.get("reserved", 0) for row in rows}
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
            retained = rest if row is draws[-1] else min(row.value["amount"], rest)
            rest -= retained
            returned[row.key] = row.value["amount"] - retained
        places = list(returned.items())
        for first in range(0, len(places), CLOSED_AT_ONCE):
            found.append(Closing(budget, dict(places[first : first + CLOSED_AT_ONCE]), parts, reserved, expires))
    return found
