"""What integration tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
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
