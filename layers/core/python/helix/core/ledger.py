"""The ledger of a session: its costs line by line, with the source of each number.

Law: amounts are integer billionths of a dollar, so the lines add up exactly to the total. A line says if its numbers
were not measured. Any difference between the lines and the run rows gets its own line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from helix.core import aws_prices

Basis = Literal["measured", "counted", "estimated"]
"""`measured`: the provider reported the quantity. `counted`: the quantity was counted from rows, at a unit price.
`estimated`: see `how`."""
NANOS = 1_000_000_000
PRICED = f"AWS list prices of {aws_prices.REGION}, {aws_prices.DATE}"


@dataclass(frozen=True, slots=True)
class Line:
    """One cost: `quantity` of `unit` cost `nanos`."""

    service: str
    """The service that charges, such as `DynamoDB`. `Model` is for model calls, `Tool` for usage that tools reported,
    and `Books` for a difference from the run rows."""
    what: str
    """The billed item, such as the name of a model, tool or function."""
    session_id: str
    """The session that caused the cost, possibly a sub-agent's."""
    quantity: float
    """The billed quantity, in `unit`."""
    unit: str
    """The unit of the quantity, such as `tokens` or `requests`."""
    nanos: int
    """The cost in billionths of a US dollar."""
    basis: Basis
    """The source of the numbers."""
    how: str = ""
    """The derivation of the numbers. Empty if it is obvious."""
    run_id: str | None = None
    """The run that caused the cost. None if the line is not about one run."""
    step: int | None = None
    """The step that caused the cost. None if the line is not about one step."""
    attempt: int | None = None
    """The attempt at that step. None if the line is not about one attempt."""

    @property
    def dollars(self) -> float:
        return self.nanos / NANOS

    def dump(self) -> dict[str, Any]:
        reported = {name: getattr(self, name) for name in Line.__slots__ if name != "nanos"}
        return {**{name: value for name, value in reported.items() if value not in (None, "")}, "usd": self.dollars}


@dataclass(frozen=True, slots=True)
class Ledger:
    """The costs of a session."""

    session_id: str
    """The requested session."""
    lines: tuple[Line, ...]
    """The costs of this session and of all its sub-agents' sessions."""
    agrees: bool
    """Whether the model lines add up to the costs in the run rows."""
    left_out: tuple[str, ...] = ()
    """Descriptions of the costs that no line covers."""

    @property
    def nanos(self) -> int:
        return sum(line.nanos for line in self.lines)

    @property
    def dollars(self) -> float:
        return self.nanos / NANOS

    def by_service(self) -> dict[str, int]:
        """Return the cost of each service in billionths of a dollar."""
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
    """Return the cost in billionths of a dollar. `price` is in dollars per unit."""
    return round(quantity * price * NANOS)


def total(lines: Iterable[Line]) -> int:
    return sum(line.nanos for line in lines)
