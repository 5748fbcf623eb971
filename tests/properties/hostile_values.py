"""The hostile values of `tests/properties/hostile.py`, each made from the seed of a random generator."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

DEPTHS = (2, 3, 30, 62, 63, 64, 65, 66, 120, 198, 199, 200, 201, 250, 253, 254, 255, 256, 300, 900, 1100, 5000)
TEXTS = (
    *(
        "",
        " ",
        "\x00",
        "\ud800",
        "\udfff\ud800",
        "\U0001f600",
        "\u202e",
        "\x1b]0;x\x07",
        "-",
        "/",
        "~1",
        "0",
        "null",
        "{}",
    ),
    *("__proto__", "kind", "damaged", "__finish__", "\n", "a" * 300, "é" * 5_000, "x" * 101_000, "[" * 3_000, "NaN"),
    "\U0001f600" * 500,  # few characters, but more bytes than a key may have
)
NUMBERS: tuple[Any, ...] = (
    *(0, -1, True, 2**31, 2**53 + 1, 2**64, 10**37, 10**38, -(10**38), 10**39, 10**400, 10**5_000),
    *(0.1, -0.0, 1e308, -1e308, 5e-324, 1e-131, 1e126, float("nan"), float("inf"), float("-inf")),
)


class Model(BaseModel):
    value: Any = None


STRANGE: tuple[Callable[[], Any], ...] = (
    object,
    lambda: {1, 2},
    lambda: b"\xff\x00",
    lambda: decimal.Decimal("NaN"),
    lambda: datetime.datetime(1, 1, 1),
    lambda: (i for i in range(3)),
    lambda: Model(value=object()),
    lambda: Model(value=nested(random.Random(1), 300)),
    lambda: {1: 2, None: 3},
    lambda: {(1, 2): 3},
    lambda: range(10),
    lambda: RuntimeError("\ud800"),
    lambda: Loop().made(),
    lambda: int,
)


class Loop:
    def made(self) -> Any:
        value: list[Any] = []
        value.append({"again": value})
        return value


def nested(rng: random.Random, levels: int, leaf: Any = None) -> Any:
    value = leaf
    kind = rng.randrange(3)
    for level in range(levels):
        listed = kind == 1 or (kind == 2 and level % 2)
        value = [value] if listed else {"a": value}
    return value


def hostile(rng: random.Random, *, strange: bool = True) -> Any:
    """Return one value. With `strange` it may be one that JSON text cannot express."""
    match rng.randrange(10 if strange else 9):
        case 0 | 1:
            levels = 60_000 if rng.random() < 0.01 else rng.choice(DEPTHS)
            return nested(rng, levels, rng.choice((None, 1, "x", {}, [])))
        case 2:
            return rng.choice(NUMBERS)
        case 3:
            return rng.choice(TEXTS)
        case 4:
            return {rng.choice(TEXTS): rng.choice(TEXTS) for _ in range(rng.randrange(4))}
        case 5:
            return [rng.choice(NUMBERS) for _ in range(rng.choice((0, 1, 5)))]
        case 6:
            return {f"k{i}": hostile(rng, strange=strange) for i in range(rng.randrange(3))}
        case 7:
            return {"value": hostile(rng, strange=strange)}
        case 8:
            return rng.choice(
                (None, False, [], {}, [0] * 2_000, {"k" * 10_000: 1}, "y" * (1_100_000 if rng.random() < 0.05 else 9))
            )
        case _:
            return rng.choice(STRANGE)()
