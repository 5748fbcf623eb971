"""What integration tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support_gateway import ADA, BOB, Desk, executor_of
from tests.support_run import World


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    made = World(request.param, tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def file_world(tmp_path: Path) -> AsyncIterator[World]:
    """SQLite only: for what several processes do on one file."""
    made = World("sqlite", tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def quick_world(tmp_path: Path) -> AsyncIterator[World]:
    """Memory only: for what no store can change."""
    made = World("memory", tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """Two users, each with a connection of the same name; the model always greets."""
    executor = executor_of(["Hello.", "Hello again.", "And again."] * 5)
    async with executor:
        made = Desk(executor)
        await made.connect("ada", ADA)
        await made.connect("bob", BOB)
        yield made
