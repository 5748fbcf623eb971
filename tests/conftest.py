"""Setup that all tests share. Property tests do not fail on a slow machine, and each test starts with the loggers
unchanged."""

from __future__ import annotations

import gc
import logging
import os
import re
import ssl
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from hypothesis import HealthCheck, settings

gc.disable()  # The collection turns it on again at its end.
# This must come before their import, so that a failing property shows the values that it compared.
pytest.register_assert_rewrite(
    *(
        f"tests.contracts.{module}"
        for module in ("budgets", "cache", "model_limits", "segments", "slots", "slots_races")
    )
)
settings.register_profile(
    "helix", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("helix")

# Each session of botocore parses megabytes of the services' models, and tests make thousands of sessions.
botocore.session.create_loader = cache(botocore.session.create_loader)

# Each HTTP client reads the certificates of all authorities, and tests make thousands of clients, all for loopback.
ssl.create_default_context = cache(ssl.create_default_context)  # type: ignore[assignment]


def pytest_xdist_auto_num_workers() -> int:
    """Start one worker more than there are processors. Tests spend half their time waiting for a server, a process or a
    clock."""
    return 1 + (os.cpu_count() or 1)


@cache
def may_be_slow(module: Path) -> bool:
    """Return whether the module or a conftest.py beside it names the mark `slow`."""
    return any(file.exists() and "slow" in file.read_text() for file in (module, module.with_name("conftest.py")))


def is_slow(module: Path) -> bool:
    """Return whether the module marks all its tests as slow."""
    return re.search(r"^pytestmark = \[?pytest\.mark\.slow\b", module.read_text(), re.MULTILINE) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import modules whose tests would all be deselected by `-m slow` or `-m "not slow"`. Each worker collects all
    tests, which takes 20 seconds."""
    if collection_path.suffix != ".py":
        return None
    left_out = {"slow": lambda path: not may_be_slow(path), "not slow": is_slow}.get(config.option.markexpr)
    return True if left_out is not None and left_out(collection_path) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each group on one worker, because its tests share a server, and run the groups first, so that single tests fill
    the workers at the end. `browser` is a group, so that only one Chromium runs at a time."""
    for item in items:
        if item.get_closest_marker("slow") is not None and not may_be_slow(item.path):
            raise pytest.UsageError(f"`-m slow` would not find {item.nodeid}: name the mark `slow` in its module")
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection_finish() -> None:
    """Refuse test modules that import CDK, and exempt everything that was imported and collected from garbage collection.

    Each worker imports all modules. CDK takes two seconds, seven without its bytecode, 130 MB and a Node process, so tests
    import it in functions. What was collected lives until the end, and scanning it repeatedly takes a third of the time of
    all tests.
    """
    if "aws_cdk" in sys.modules:
        raise pytest.UsageError("a test module imports aws_cdk, or what imports it: import it where a test uses it")
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
