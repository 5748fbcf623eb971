"""Functions in containers: `pytest -n0 -m sam tests/sam`, with Docker and the SAM CLI. `make test` leaves them out.

The template and the image with its layers are made once; each test has a stage of its own, with fresh rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.sam.sam_local import BUILD_S, SYNTH, Sam, Shell, Stage, command, copy_project, staged


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """They run only where `-m` names them."""
    ours = [item for item in items if "/tests/sam/" in item.path.as_posix()]
    for item in ours:
        item.add_marker(pytest.mark.sam)
        item.add_marker(pytest.mark.timeout(3600))
    if "sam" not in config.option.markexpr:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """In a copy of the project whose template is made."""
    made = Shell(copy_project(tmp_path_factory.mktemp("sam") / "project"))
    made.run(command(SYNTH).text, BUILD_S)
    return made


@pytest.fixture(scope="session")
def sam(shell: Shell) -> Sam:
    return Sam(shell)


@pytest.fixture
def stage(shell: Shell) -> Iterator[Stage]:
    with staged(shell) as made:
        yield made
