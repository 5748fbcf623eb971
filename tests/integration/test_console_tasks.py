"""Twenty tasks of a newcomer can be carried out in the console by keyboard alone, with few keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.console_shop import opened
from tests.support.console_tasks import TASKS, carry_out

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.timeout(400)]
MOST_KEYS = 25


async def test_twenty_tasks_are_carried_out_by_keyboard_alone(tmp_path: Path) -> None:
    assert len(TASKS) == 20
    async with opened(str(tmp_path)) as browser:
        for words in TASKS:
            done = await carry_out(browser, words)
            assert done.pressed <= MOST_KEYS, done
        assert browser.errors == []
