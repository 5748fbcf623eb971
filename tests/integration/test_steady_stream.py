"""`bench/steady_stream.py`, for a moment: a client receives each chunk of a fast stream once, in order."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("client", ["python"])
async def test_a_client_has_each_chunk_of_a_quick_stream(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("steady_stream")
    found = await bench.measure(client, 2_000, 1_000)
    assert found.seen == list(range(2_000))
