"""A ledger: every dollar of a session, line by line, and where each number comes from.

Law: amounts are whole billionths of a dollar, so the total is exactly the sum of the lines. A line that nobody measured
says so. Where the lines and the books differ, the difference is a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from helix.core import aws_prices

Basis = Literal["measured", "counted", "estimated"]
"""measured: reported by the provider. counted: the rows say how often, each has a price. estimated: see `how`."""
NANOS = 1_000_000_000
PRICED = f"AWS list prices of {aws_prices.REGION}, {aws_prices.DATE}"


@dataclass(frozen=True, slots=True)
class Line:
    """`quantity` of `unit` cost `nanos` (billionths of a US dollar). `run_id`, `step`, `attempt`: what it is about, where
    it is about one. `how`: where the numbers come from, where that does not go without saying."""

    service: str
    what: str
    session_id: str
    quantity: float
    unit: str
    nanos: int
    basis: Basis
    how: str = ""
    run_id: str | None = None
    step: int | None = None
    attempt: int | None = None

    @property
    def dollars(self) -> float:
        return self.nanos / NANOS

    def dump(self) -> dict[str, Any]:
        reported = {name: getattr(self, name) for name in Line.__slots__ if name != "nanos"}
        return {**{name: value for name, value in reported.items() if value not in (None, "")}, "usd": self.dollars}


@dataclass(frozen=True, slots=True)
class Ledger:
    """`agrees`: the model lines are what the run rows say. `left_out`: what costs money and is in no line."""

    session_id: str
    lines: tuple[Line, ...]
    agrees: bool
    left_out: tuple[str, ...] = ()

    @property
    def nanos(self) -> int:
        return sum(line.nanos for line in self.lines)

    @property
    def dollars(self) -> float:
        return self.nanos / NANOS

    def by_service(self) -> dict[str, int]:
        """Billionths of a dollar."""
        found: dict[str, int] = {}
        for line in self.lines:
            found[line.service] = found.get(line.service, 0) + line.nanos
        return found

    def dump(self) -> dict[str, Any]:
        services = {name: nanos / NANOS for name, nanos in self.by_service().items()}
        return {
            "session_id": self.session_id,
            "usd": self.dollars,
            "services": services,
            "agrees": self.agrees,
            "prices": PRICED,
            "left_out": list(self.left_out),
            "lines": [line.dump() for line in self.lines],
        }


def priced(quantity: float, price: float) -> int:
    """Billionths of a dollar."""
    return round(quantity * price * NANOS)


def total(lines: Iterable[Line]) -> int:
    return sum(line.nanos for line in lines)
