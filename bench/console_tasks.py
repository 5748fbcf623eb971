"""Count the keys and the seconds of twenty tasks in the console, each carried out by keyboard alone in Chromium.

    python bench/console_tasks.py    prints the table and saves it to bench/results/ (one minute)

Sections of the saved file below the table, such as what a reader found, are kept.

The tasks are those of `tests/support/console_tasks.py`. Keys: those that a person presses, without the letters of
texts. Seconds: from the first key until the page shows what was asked for. A script presses the keys without reading, so
the seconds are those of the page and of the service.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SAVED = HERE / "results" / "console_tasks.md"
sys.path.insert(0, str(HERE.parent))

from tests.support.console_shop import opened  # noqa: E402
from tests.support.console_tasks import TASKS, Done, carry_out  # noqa: E402


async def measure() -> list[Done]:
    with tempfile.TemporaryDirectory() as folder:
        async with opened(folder) as browser:
            return [await carry_out(browser, words) for words in TASKS]


def sections(text: str) -> str:
    """Return what stands below the table of a saved file."""
    _, heading, below = text.partition("\n## ")
    return heading + below


def main() -> None:
    load = os.getloadavg()[0]
    done = asyncio.run(measure())
    lines = [
        "# Twenty tasks in the console",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f} before; "
        "headless Chromium; by keyboard alone; `python bench/console_tasks.py`.",
        "",
        "| task | keys | letters | seconds |",
        "|---|---:|---:|---:|",
        *(f"| {one.words} | {one.pressed} | {one.typed} | {one.seconds:.1f} |" for one in done),
        f"| all | {sum(one.pressed for one in done)} | {sum(one.typed for one in done)} "
        f"| {sum(one.seconds for one in done):.1f} |",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    SAVED.write_text(text + sections(SAVED.read_text()))


if __name__ == "__main__":
    main()
