"""Asking a check function, whatever it is and whatever it does.

Law: asking never raises and never takes longer than the timeout: both are answers, and they are "no".
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass

from helix.core.health import CheckFunction, verdict_of
from helix.core.json import clean_text
from helix.engine.engine import logger
from helix.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class Probe:
    ok: bool
    message: str
    at: float
    took_ms: float


async def probe(name: str, check: CheckFunction | None, timeout_s: float, clock: Clock) -> Probe:
    """A plain function is called in a thread, so that one that blocks holds up nobody; after its time nobody waits for
    it any more."""
    begun = clock.now()
    try:
        async with asyncio.timeout(timeout_s):
            ok, message = (True, "") if check is None else verdict_of(await _ask(check))
    except TimeoutError:
        ok, message = False, f"no answer within {timeout_s:g} s"
    except Exception as error:
        logger.debug("health check %r failed", name, exc_info=True)
        ok, message = False, f"{type(error).__name__}: {error}"
    now = clock.now()
    return Probe(ok, clean_text(message), now, max(0.0, now - begun) * 1000)


async def _ask(check: CheckFunction) -> object:
    if inspect.iscoroutinefunction(check) or inspect.iscoroutinefunction(getattr(check, "__call__", None)):  # noqa: B004
        answer: object = check()
    else:
        answer = await asyncio.to_thread(check)
    return await answer if inspect.isawaitable(answer) else answer
