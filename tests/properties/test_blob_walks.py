"""Random walks with blobs on the store in memory. `blob_walk` describes them.

HELIX_EXAMPLES=5000 .venv/bin/python -m pytest -m "" tests/properties/test_blob_walks.py
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.properties.blob_walk import walk

from helix.services import committing

EXAMPLES = int(os.environ.get("HELIX_EXAMPLES") or 0)
SEED = int(os.environ.get("HELIX_SEED") or 0)
FEW, MANY = 20, 1_000

pytestmark = pytest.mark.timeout(0)


def walks(count: int) -> Counter[str]:
    done: Counter[str] = Counter()
    for seed in range(SEED, SEED + count):
        try:
            done += walk(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return done


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "FIRST_PAUSE_S", 0)


def test_held_bytes_exist_and_others_are_deleted() -> None:
    done = walks(FEW)
    for act in ("message", "deletion", "collected", "crash", "FileMissingError"):
        assert done[act] > 10, f"the walks do too little of {act}: {done}"


@pytest.mark.slow
def test_held_bytes_exist_on_many_walks() -> None:
    walks(EXAMPLES or MANY)
