"""Fixtures that integration tests share."""

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
    """A world on SQLite only, for tests of several processes on one file."""
    made = World("sqlite", tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def quick_world(tmp_path: Path) -> AsyncIterator[World]:
    """A world on memory only, for tests whose result does not depend on the store."""
    made = World("memory", tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """A gateway with two users, each with a connection of the same name. The model always greets."""
    executor = executor_of(["Hello.", "Hello again.", "And again."] * 5)
    async with executor:
        made = Desk(executor)
        await made.connect("ada", ADA)
        await made.connect("bob", BOB)
        yield made
