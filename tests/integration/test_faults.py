"""A fault of AWS anywhere in a run leaves the same transcript, and consistent rows and stream.

`bench/faults.py` injects a fault into each call; these tests inject some of them.
"""

from __future__ import annotations

import pytest
from tests.support.faulty_aws import KINDS, Kind, matrix

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.timeout(600)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_changes_nothing(kind: Kind) -> None:
    struck, wrong = matrix([kind], every=32)
    assert struck and not wrong, wrong
