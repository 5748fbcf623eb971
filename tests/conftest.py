"""Setup that all tests share. Property tests do not fail on a slow machine, and each test starts with the loggers
unchanged."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from functools import cache

import botocore.session
import pytest
from hypothesis import HealthCheck, settings

gc.disable()  # The collection turns it on again at its end.
# This must come before their import, so that a failing property shows the values that it compared.
pytest.register_assert_rewrite(
    *(f"tests.contracts.{module}" for module in ("budgets", "cache", "segments", "slots", "slots_races"))
)
settings.register_profile(
    "helix", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("helix")

# Each session of botocore parses megabytes of the services' models, and tests make thousands of sessions.
botocore.session.create_loader = cache(botocore.session.create_loader)


def pytest_xdist_auto_num_workers() -> int:
    """Start one worker more than there are processors. Tests spend half their time waiting for a server, a process or a
    clock."""
    return 1 + (os.cpu_count() or 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each group on one worker, because its tests share a server, and run the groups first, so that single tests fill
    the workers at the end. `browser` is a group, so that only one Chromium runs at a time."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection_finish() -> None:
    """Exempt everything that was imported and collected from garbage collection. It lives until the end, and scanning it
    repeatedly takes a third of the time of all tests."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture(autouse=True)
def own_loggers() -> Iterator[None]:
    """Restore the loggers after each test. The log handler of a function captures the log of its whole process, which would
    include later tests."""
    helix = logging.getLogger("helix")
    before = list(helix.handlers), helix.propagate, helix.level
    yield
    helix.handlers, helix.propagate = before[0], before[1]
    helix.setLevel(before[2])
