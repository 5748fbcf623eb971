"""A cached secret is read rarely, even while reading it fails."""

from __future__ import annotations

import pytest

from helix.core.errors import StoreError
from helix.fleet.health_pages import has_token
from helix.fleet.secret_cache import AGAIN_S, CACHED_S, CachedSecret
from helix.testing.clocks import SetClock


def test_one_that_cannot_be_read_is_not_asked_for_by_every_request() -> None:
    clock, reads = SetClock(1_000.0), 0

    def read() -> str:
        nonlocal reads
        reads += 1
        raise StoreError("gone")

    secret = CachedSecret(read, clock)
    for _ in range(5):
        with pytest.raises(StoreError, match="gone"):
            secret.matches(lambda text: True)
    assert reads == 1
    clock.advance(AGAIN_S)
    with pytest.raises(StoreError):
        secret.matches(lambda text: True)
    assert reads == 2


def test_it_is_good_again_once_it_can_be_read() -> None:
    clock, texts = SetClock(1_000.0), ["first"]

    def read() -> str:
        if not texts:
            raise StoreError("gone")
        return texts[-1]

    secret = CachedSecret(read, clock)
    assert secret.matches(lambda text: text == "first")
    texts.clear()
    clock.advance(CACHED_S)
    with pytest.raises(StoreError):
        secret.matches(lambda text: text == "first")
    texts.append("second")
    clock.advance(AGAIN_S)
    assert secret.matches(lambda text: text == "second")


def test_a_line_end_in_the_secret_shuts_nobody_out() -> None:
    headers = {"authorization": "Bearer abc"}
    assert (
        has_token("abc\n", headers)
        and not has_token("abd\n", headers)
        and not has_token("\n", {"authorization": "Bearer "})
    )
