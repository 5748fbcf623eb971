"""Measure how long a write to SQLite blocks the event loop, with four other processes writing to the same file.

    python bench/sqlite_contention.py     prints the table and saves it to bench/results/sqlite_contention.md

A write is the transaction of a step: two rows, 2 KB. "In place" is the part that runs on the event loop. Writes that find
the file busy, and waits for the disk, continue in the store's thread and count only in "until done".
"""

from __future__ import annotations

import asyncio
import multiprocessing
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from helix import SQLiteStateStore
from helix.ports.state_store import Key, Operation, Put

WRITES, PAUSE_S = 10_000, 0.001
OTHERS, THEIR_PAUSE_S = 4, 0.005
TEXT = "x" * 1024
AT_MOST_MS = 5


def step(writer: int, number: int) -> list[Operation]:
    return [
        Put(Key("sessions", f"ses_{writer}", "session"), {"version": number, "text": TEXT}),
        Put(Key("sessions", f"ses_{writer}", f"m#{number:08d}"), {"content": TEXT}),
    ]


def write_for_ever(path: str, writer: int) -> None:
    async def main() -> None:
        store = SQLiteStateStore(path)
        number = 0
        while multiprocessing.parent_process().is_alive():  # type: ignore[union-attr]
            await store.transact("step", step(writer, number))
            number += 1
            await asyncio.sleep(THEIR_PAUSE_S)

    asyncio.run(main())


class Timed(SQLiteStateStore):
    """A store that measures the time on the event loop."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.held: list[float] = []
        self.handed_over = 0

    async def _commit_in_place(self, name: str, operations: Sequence[Operation]) -> bool:
        begun = time.perf_counter()
        done = await super()._commit_in_place(name, operations)
        self.held.append(time.perf_counter() - begun)
        self.handed_over += not done
        return done


async def measure(path: str) -> tuple[list[float], list[float], int]:
    store, done = Timed(path), []
    await store.transact("first", step(0, 0))  # opens the file on the thread
    store.held.clear()
    for number in range(1, WRITES):
        begun = time.perf_counter()
        await store.transact("step", step(0, number))
        done.append(time.perf_counter() - begun)
        await asyncio.sleep(PAUSE_S)
    await store.close()
    return store.held, done, store.handed_over


def row(title: str, times: list[float]) -> str:
    times = sorted(times)
    values = [f"{times[min(len(times) - 1, int(len(times) * share))] * 1000:.2f}" for share in (0.5, 0.99, 0.999)]
    return f"| {title} | {' | '.join(values)} | {times[-1] * 1000:.1f} |"


def main() -> None:
    lines = ["| ms | p50 | p99 | p99.9 | most |", "|---|---:|---:|---:|---:|"]
    for others in (0, OTHERS):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "helix.db"))
            spawn = multiprocessing.get_context("spawn")
            writers = [spawn.Process(target=write_for_ever, args=(path, n + 1), daemon=True) for n in range(others)]
            for writer in writers:
                writer.start()
            held, done, handed_over = asyncio.run(measure(path))
            for writer in writers:
                writer.kill()
                writer.join()
        beside = f"{others} other writers" if others else "alone"
        lines.append(row(f"{beside}: in place", held))
        lines.append(row(f"{beside}: until done", done))
        lines.append(f"| {beside}: handed to the thread | {100 * handed_over / len(held):.1f} % | | | |")
    table = "\n".join(lines)
    print(table)
    head = (
        f"# How long a write to SQLite blocks the event loop\n\nPython {platform.python_version()}, "
        f"{platform.machine()}; "
        f"{WRITES} writes; `python bench/sqlite_contention.py`. At most {AT_MOST_MS} ms in place at p99.9.\n\n"
    )
    Path(__file__).with_name("results").joinpath("sqlite_contention.md").write_text(head + table + "\n")


if __name__ == "__main__":
    main()
