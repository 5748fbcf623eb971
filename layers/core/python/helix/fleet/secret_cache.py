"""The text of a secret, cached for a while. A changed secret is noticed, and frequent use costs little.

Law: a text is valid for `CACHED_S`, so the old one is refused after that at the latest. A text that does not match may
be the new one. The secret is then read again, at most every `AGAIN_S`, so guesses cause no further cost.
"""

from __future__ import annotations

from collections.abc import Callable

from helix.core.errors import StoreError
from helix.engine.engine import logger
from helix.ports.clock import Clock

CACHED_S = 300.0
AGAIN_S = 60.0


class CachedSecret:
    """A cached secret. `read` returns the present text, or raises `StoreError`."""

    def __init__(self, read: Callable[[], str], clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._text = ""
        self._read_at = self._tried_at = float("-inf")
        self._failure: StoreError | None = None

    def matches(self, fits: Callable[[str], bool]) -> bool:
        """Return whether the secret's text fits. Raises `StoreError` if no valid text is known."""
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
            logger.warning("whether a secret has changed is not known: %s", error)
            return False
        return fits(self._text)

    def _renew(self, now: float) -> None:
        self._tried_at = now
        try:
            self._text, self._read_at, self._failure = self._read(), now, None
        except StoreError as error:
            self._failure = error
            raise
