"""Per-user budgets, as a project declares them in `[tool.helix.budgets]`.

    [tool.helix.budgets.user]
    day = 2.0                                         # US dollars
    month = { usd = 20, on_exceeded = "pause" }
    hour = { tokens = 200_000 }

Law: a declared budget has the scope `tenant:*`, and `of_user` turns it into the budget of one user. Only that user's
windows are stored. A budget that is set explicitly for the user overrides it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, get_args

from helix.core.budget import MICROS, MOST, BudgetDefinition, OnExceeded, Unit
from helix.core.errors import InvalidInputError
from helix.core.periods import TokenPeriod
from helix.core.spelling import did_you_mean

EACH: Final = "*"
TABLE: Final = "tool.helix.budgets"
_KEYS: Final = ("usd", "tokens", "on_exceeded")
_UNITS: Final[dict[str, Unit]] = {"tokens": "tokens", "usd": "micros"}


def parse_user_budgets(table: Any) -> tuple[BudgetDefinition, ...]:
    """Parse `[tool.helix.budgets]`. Raises `InvalidInputError`, which names the first invalid key."""
    if not isinstance(table, Mapping):
        raise InvalidInputError(f"{TABLE} must be a table, not {table!r}")
    for key in table:
        if key != "user":
            raise InvalidInputError(
                f"{TABLE} has the unknown key {key!r}; its only key is the table user, with the budgets of each user"
            )
    return tuple(_definitions(table.get("user", {})))


def of_user(declared: BudgetDefinition, scope: str) -> BudgetDefinition:
    """Return the declared budget with one user's scope."""
    return declared.model_copy(update={"scope": scope})


def unit_of(unit: str) -> Unit:
    """Return the stored name of the unit. Raises `InvalidInputError` for an unknown unit."""
    if unit not in _UNITS:
        raise InvalidInputError(f"unit {unit!r} must be 'tokens' or 'usd'")
    return _UNITS[unit]


def whole_amount(amount: float | Decimal, unit: str) -> int:
    """Convert an amount of tokens or US dollars to an integer of the stored unit. Raises `InvalidInputError`."""
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        raise InvalidInputError(f"amount {amount!r} is not a number")
    if isinstance(amount, int):  # Python refuses to print numbers with thousands of digits
        amount = max(-MOST, min(amount, MOST + 1))
    try:
        exact = Decimal(str(amount)) * (MICROS if unit == "usd" else 1)
        whole = int(exact)
    except (InvalidOperation, ValueError, OverflowError):
        raise InvalidInputError(f"amount {amount!r} is not a number") from None
    if whole > MOST:
        most = f"{MOST // MICROS:,} USD" if unit == "usd" else f"{MOST:,} tokens"
        raise InvalidInputError(f"a budget may be at most {most}: not every store adds larger amounts exactly")
    if whole < 1 or (unit == "tokens" and whole != exact):
        least = "0.000001 USD" if unit == "usd" else "1 token, and a whole number of them"
        raise InvalidInputError(f"amount {amount!r} must be at least {least}")
    return whole


def _definitions(limits: Any) -> Iterator[BudgetDefinition]:
    if not isinstance(limits, Mapping):
        raise InvalidInputError(f"{TABLE}.user must be a table of periods, not {limits!r}")
    periods = [str(period) for period in TokenPeriod]
    for period, given in limits.items():
        where = f"{TABLE}.user.{period}"
        if period not in periods:
            raise InvalidInputError(
                f"{where}: no such period; the periods are {', '.join(periods)}{did_you_mean(period, periods)}"
            )
        limit = given if isinstance(given, Mapping) else {"usd": given}
        for key in limit:
            if key not in _KEYS:
                raise InvalidInputError(
                    f"{where} has the unknown key {key!r}; the keys are {', '.join(_KEYS)}{did_you_mean(key, _KEYS)}"
                )
        on_exceeded = limit.get("on_exceeded")
        if on_exceeded not in (None, *get_args(OnExceeded)):
            raise InvalidInputError(f"{where}.on_exceeded is {on_exceeded!r}; it must be 'fail' or 'pause'")
        units = [unit for unit in _UNITS if unit in limit]
        if not units:
            raise InvalidInputError(f"{where} has no limit: give usd or tokens")
        for unit in units:
            try:
                whole = whole_amount(limit[unit], unit)
            except InvalidInputError as error:
                raise InvalidInputError(f"{where}: {error}") from None
            yield BudgetDefinition(
                scope=f"tenant:{EACH}",
                period=TokenPeriod(period),
                unit=_UNITS[unit],
                limit=whole,
                on_exceeded=on_exceeded,
            )
