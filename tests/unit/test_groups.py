"""Groups of tests reach the scheduler."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_a_group_is_part_of_the_id_that_the_scheduler_sees(request: pytest.FixtureRequest) -> None:
    """Otherwise each worker would start every stage, emulator and browser: pytest-xdist 3.8 ignores groups under pytest
    9.2."""
    if request.config.getoption("dist", "no") != "loadgroup" and not hasattr(request.config, "workerinput"):
        pytest.skip("these tests are not distributed by groups")
    assert request.node.nodeid.endswith("@groups")
