"""One offline cloud for all end-to-end tests of a process: `cloud`. Under xdist (`--dist loadgroup`) the tests of a module
run on one worker, since some of them change the deployment and restore it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.cloud_agents.cast import DEEP
from tests.support.command_line import CommandLine, Done
from tests.support.offline_cloud import CloudForTests, deployed

from helix.local.cloud import REGION

QUICK = {"test_offline_smoke"}
"""The modules that are part of `make test`. The others take minutes."""
SHARED = {"test_live": "test_deploy", "test_real_time": "test_recovery", "test_files": "test_parity"}
"""Modules that use the stage or the account of another module."""
IN_BROWSER = {"test_console", "test_console_operator", "test_console_stage"}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/e2e/" in item.path.as_posix():
            group = "browser" if item.path.stem in IN_BROWSER else f"cloud {SHARED.get(item.path.stem, item.path.stem)}"
            item.add_marker(pytest.mark.xdist_group(group))
            if item.path.stem not in QUICK:
                item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(400))  # the first test of a module waits for its stage


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudForTests]:
    """The project, deployed offline with IAM enforced. `tests/support/offline_cloud.py` describes what it offers."""
    with deployed(tmp_path_factory.mktemp("cloud"), context={"alarm_email": "ops@example.com"}) as made:
        yield made


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudForTests]:
    """A second cloud, for tests that change limits and budgets."""
    context = {"alarm_queue_depth": str(DEEP), "alarm_email": "ops@example.com"}
    with deployed(tmp_path_factory.mktemp("fleet"), context=context) as made:
        yield made


@pytest.fixture(scope="session")
def unhurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudForTests]:
    """A third cloud, whose state machines wait as long as they do on AWS."""
    with deployed(tmp_path_factory.mktemp("unhurried"), wait_scale=1.0) as made:
        yield made


@pytest.fixture
def helix(fleet: CloudForTests, tmp_path: Path) -> Callable[..., Done]:
    """Return a function that runs a `helix` command against the stage of `fleet`, as its administrator."""
    credentials = {**fleet.cloud.emulator.credentials.variables, "AWS_DEFAULT_REGION": REGION}
    line = CommandLine(tmp_path, AWS_ENDPOINT_URL=fleet.cloud.emulator.url, **credentials)
    return lambda *arguments: line.process(*arguments, "--stage", fleet.cloud.stage)
