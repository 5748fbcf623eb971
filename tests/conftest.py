"""What all tests share. Property tests judge values, not the speed of a busy machine; loggers are as a test found them."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from functools import cache

import botocore.session
import pytest
from hypothesis import HealthCheck, settings

gc.disable()  # until all is imported and collected
# Before they are imported: a failing law then shows the values it compared.
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
    """One worker more than processors: half of a test's time is waiting for a server, a process or a clock."""
    return 1 + (os.cpu_count() or 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups share a server and stay on one worker; `browser` is one, so that one Chromium runs at a time. Groups go first,
    so that single tests fill the workers in the end."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection_finish() -> None:
    """The garbage collector looks at nothing that was imported and collected: it stays to the end. To look through it again
    and again takes a third of the time of all tests."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture(autouse=True)
def own_loggers() -> Iterator[None]:
    """A handler of a function takes the log of its whole process, which here is that of the tests after it."""
    helix = logging.getLogger("helix")
    before = list(helix.handlers), helix.propagate, helix.level
    yield
    helix.handlers, helix.propagate = before[0], before[1]
    helix.setLevel(before[2])
