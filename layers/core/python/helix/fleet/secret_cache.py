"""A cache for the value of a secret. It detects that a secret has changed, and frequent use costs little.

Law: a cached value is valid for `CACHED_S`, so an old secret is rejected after that time at the latest. A presented token
that does not match may be the new secret. The secret is then read again, at most every `AGAIN_S`, so that guessing cannot
cause further cost.
"""

from __future__ import annotations

from collections.abc import Callable

from helix.core.errors import StoreError
from helix.engine.engine import logger
from helix.ports.clock import Clock

CACHED_S = 300.0
AGAIN_S = 60.0


class CachedSecret:
    """A cached secret. `read` returns the current value, or raises `StoreError`."""

    def __init__(self, read: Callable[[], str], clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._text = ""
        self._read_at = self._tried_at = float("-inf")
        self._failure: StoreError | None = None

    def matches(self, fits: Callable[[str], bool]) -> bool:
        """Return whether `fits` accepts the secret's value. Raises `StoreError` if no valid value is known."""
        now = self._clock.now()
        if now - self._read_at >= CACHED_S:
            if self._failure is not None and now - self._tried_at < AGAIN_S:
                raise self._failure
            self._renew(now)
        if fits(self._text):
            return True
        if now - self._tried_at < AGAIN_S:
            return False
        try:
            self._renew(now)
        except StoreError as error:
            logger.warning("could not check whether a secret has changed: %s", error)
            return False
        return fits(self._text)

    def _renew(self, now: float) -> None:
        self._tried_at = now
        try:
            self._text, self._read_at, self._failure = self._read(), now, None
        except StoreError as error:
            self._failure = error
            raise
