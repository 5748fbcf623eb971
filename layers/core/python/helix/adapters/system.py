"""The only module that asks the operating system for time, randomness and identity."""

from __future__ import annotations

import asyncio
import random
import secrets
import time

_SYSTEM = random.SystemRandom()
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class SystemClock:
    def now(self) -> float:
        """Return the time in Unix seconds, to a tenth of a millisecond. Rows and chunks contain many timestamps, and
        more digits would not help."""
        return time.time_ns() // 100_000 / 10_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def random_share() -> float:
    """Draw a random number from 0 to 1 from the operating system. A generator in this process would have the same state
    in every execution environment that SnapStart restores from one snapshot
    (https://docs.aws.amazon.com/lambda/latest/dg/snapstart-uniqueness.html)."""
    return _SYSTEM.random()


class SystemIds:
    """Ids that are ULIDs: 48 bits of milliseconds, 80 random bits, Crockford base 32 (https://github.com/ulid/spec)."""

    def new(self, prefix: str) -> str:
        number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
        return prefix + "_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
