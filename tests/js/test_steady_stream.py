"""`bench/steady_stream.py`, for a moment: the TypeScript client receives each chunk of a fast stream once, in order."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
BENCH = Path(__file__).parents[2] / "bench"


async def test_a_client_has_each_chunk_of_a_quick_stream(npm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("steady_stream")
    found = await bench.measure("typescript", 3_000, 1_000)
    assert found.seen == list(range(3_000))
    assert 1 < found.heap[-1] < 30, "MB after a collection, which frees the messages that were read"
