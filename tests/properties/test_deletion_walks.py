"""Random walks with deletions at any moment, on every store. `deletion_walk` describes them.

HELIX_EXAMPLES=2000 .venv/bin/python -m pytest -m "" tests/properties/test_deletion_walks.py -k redis
"""

from __future__ import annotations

import os

import pytest
from tests.properties.deletion_walk import KINDS, walks

EXAMPLES = int(os.environ.get("HELIX_EXAMPLES") or 0)
SEED = int(os.environ.get("HELIX_SEED") or 0)
FEW = {"memory": 6, "tombstones": 6, "sqlite": 3}

pytestmark = [pytest.mark.timeout(0), pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("kind", FEW)
def test_nothing_is_left_of_a_deleted_session(kind: str) -> None:
    walks(kind, range(SEED, SEED + FEW[kind]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_a_deleted_session_on_many_walks(kind: str) -> None:
    few = {"redis": 4, "dynamodb": 2}
    walks(kind, range(SEED, SEED + (EXAMPLES or few.get(kind, 10))))
