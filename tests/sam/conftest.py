"""Fixtures for functions in containers: `pytest -n 4 -m sam tests/sam`, with Docker and the SAM CLI. `make test` skips
them.

The template and the image with its layers are made once. Each test has a stage of its own with fresh rows. An invocation
mostly waits, so four workers fit on two processors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.sam.sam_local import Sam, Shell, Stage, project_for, staged


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect these tests unless `-m` names them."""
    ours = [item for item in items if "/tests/sam/" in item.path.as_posix()]
    for item in ours:
        item.add_marker(pytest.mark.sam)
        item.add_marker(pytest.mark.timeout(3600))
    if "sam" not in config.option.markexpr:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in a copy of the project whose template is made."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return Shell(project_for(tmp_path_factory.mktemp("sam") / "project", shared))


@pytest.fixture(scope="session")
def sam(shell: Shell) -> Sam:
    return Sam(shell)


@pytest.fixture
def stage(shell: Shell) -> Iterator[Stage]:
    with staged(shell) as made:
        yield made
