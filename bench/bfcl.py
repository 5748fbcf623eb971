"""Send all entries of the Berkeley Function Calling Leaderboard through every wire: schemas out, arguments back.

    python bench/bfcl.py        prints the table and saves it to bench/results/bfcl.md (some minutes)

It downloads the package `bfcl-eval` without its dependencies, and reads its data. It calls no real model. A server on
loopback returns the calls that the data set marks as correct, in each provider's format and in fragments of 7 characters.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.contracts.test_bfcl import WIRES, play  # noqa: E402
from tests.support.bfcl import Entry, all_entries  # noqa: E402

VERSION = "2026.3.23"
UNDERSCORES = (
    "For Bedrock, litellm adds a letter before tool names that begin with an underscore. Two entries have such names."
)


def download(folder: Path) -> Path:
    """Return the data of the package."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"bfcl-eval=={VERSION}", "-d", folder]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as package:
        package.extractall(folder)
    return folder / "bfcl_eval" / "data"


async def table(entries: list[Entry]) -> tuple[list[str], int]:
    called = sum(bool(entry.calls) for entry in entries)
    lines = [
        "# Schemas and arguments through every wire",
        "",
        f"`bfcl-eval` {VERSION}: {called:,} entries with calls, {len(entries) - called:,} without; `python bench/bfcl.py`.",
        "",
        "| interface | package | equal | wrong | ms an entry |",
        "|---|---|---:|---:|---:|",
    ]
    failed = 0
    for dialect, adapter in WIRES:
        begun = time.monotonic()
        wrong = await play(dialect, adapter, entries)
        each = (time.monotonic() - begun) / len(entries) * 1000
        bad = len({line.partition(":")[0] for line in wrong})
        failed += bad
        lines.append(f"| {dialect.name} | {adapter} | {len(entries) - bad:,} | {bad} | {each:.1f} |")
        print("\n".join([lines[-1], *wrong[:5]]), flush=True)
    lines += ["", UNDERSCORES]
    return lines, failed


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        lines, failed = asyncio.run(table(list(all_entries(download(Path(folder))))))
    text = "\n".join(lines) + "\n"
    (ROOT / "bench" / "results" / "bfcl.md").write_text(text, encoding="utf-8")
    print(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
