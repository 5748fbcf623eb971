"""Measure the disk space of sessions with one turn: 10,000 of them in one SQLite file, by kind of row.

    python bench/disk.py [sessions]       prints the table; with 10,000 sessions it saves it to bench/results/disk.md

Eight runs are at work at a time. Each has a user's message and an answer of 31 characters, sent whole or in three deltas.
`keys` and `values` are bytes of text, and each key includes the name of its partition. The file stores that name once, and
has unused space in its pages.
"""

from __future__ import annotations

import asyncio
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from helix import Agent, LLMConfig, LocalExecutor, SQLiteStateStore
from helix.adapters.models.scripted import ScriptedModel
from helix.core.steps import AnyStepResult, TextStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMAdapter, LLMGenerateInput

ANSWER = "The capital of France is Paris."
AGENT = Agent(name="bench", system_prompt="Answer.", llm_config=LLMConfig(model="instant/none"))
AT_ONCE = 8
KINDS = """SELECT CASE WHEN sort = 'session' THEN sort WHEN partition LIKE 'ses_%' THEN substr(sort, 1, instr(sort, '#'))
        ELSE substr(partition, 1, instr(partition || '#', '#')) END,
    count(*), sum(length(partition) + length(sort)), sum(length(CAST(value AS BLOB))) FROM {table} GROUP BY 1"""


class Whole:
    """A model that answers at once, without deltas."""

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        return TextStepResult(content=ANSWER, model="instant/none", usage=Usage(calls=1), stop_reason="end_turn")


async def fill(path: Path, model: LLMAdapter, sessions: int) -> None:
    async with LocalExecutor(SQLiteStateStore(path), model=model) as executor:

        async def some(count: int) -> None:
            for _ in range(count):
                result = await (await executor.execute(AGENT, "What is the capital of France?")).result()
                assert result.text == ANSWER, result

        await asyncio.gather(*(some(sessions // AT_ONCE) for _ in range(AT_ONCE)))


def measured(path: Path, sessions: int) -> list[str]:
    """Return the lines of the table."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    lines, total = [], [0.0, 0.0, 0.0]
    for table in ("sessions", "streams", "control"):
        for kind, *numbers in db.execute(KINDS.format(table=table)):
            each = [number / sessions for number in numbers]
            total = [a + b for a, b in zip(total, each, strict=True)]
            lines.append(f"| `{table}` | `{kind}` | {each[0]:.2f} | {each[1]:.0f} | {each[2]:.0f} |")
    db.close()
    size = path.stat().st_size
    lines.append(f"| all | | {total[0]:.2f} | {total[1]:.0f} | {total[2]:.0f} |")
    lines += ["", f"The file: {size / 1e6:.1f} MB, {size / sessions:.0f} bytes a session."]
    return lines


def main(sessions: int) -> None:
    models: dict[str, Callable[[], LLMAdapter]] = {
        "An answer without deltas": Whole,
        "An answer in three deltas": lambda: ScriptedModel([ANSWER], repeat=True, record=False),
    }
    lines = [
        f"# {sessions:,} sessions of one turn in a SQLite file, per session",
        "",
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}; `python bench/disk.py`.",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, model) in enumerate(models.items()):
            path = Path(folder) / f"{number}.db"
            asyncio.run(fill(path, model(), sessions))
            lines += ["", f"## {title}", "", "| table | rows | count | keys | values |", "|---|---|---:|---:|---:|"]
            lines += measured(path, sessions)
    table = "\n".join(lines) + "\n"
    print(table)
    if sessions >= 10_000:
        (Path(__file__).parent / "results" / "disk.md").write_text(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
