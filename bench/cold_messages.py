"""Measure how `helix dev` handles many first messages at once, before any function has started.

    python bench/cold_messages.py [SESSIONS]

Each session runs two steps: a tool call and an answer of the demonstration model. It prints the seconds until the first and
the last run complete, the failed runs, and the largest number of worker processes and their memory.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from helix.client import HelixClient
from helix.client.link import ClientSettings
from helix.local.cloud import OfflineCloud

ROOT = Path(__file__).parents[1]
PATIENCE_S = 600.0
LOOK_S = 0.25
PATIENT = ClientSettings(request_s=PATIENCE_S, open_s=PATIENCE_S, give_up_s=PATIENCE_S)


class Peak:
    """The largest number of worker processes, and of their memory in MB, measured in a separate thread."""

    def __init__(self) -> None:
        self.processes, self.memory_mb, self._ended = 0, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process(os.getpid())
        while not self._ended.wait(LOOK_S):
            sizes = []
            for process in own.children(recursive=True):
                try:
                    if any("worker_process" in word for word in process.cmdline()):
                        sizes.append(process.memory_info().rss / 2**20)
                except psutil.Error:
                    continue
            self.processes, self.memory_mb = max(self.processes, len(sizes)), max(self.memory_mb, sum(sizes))


async def ask(url: str, key: str, session: str) -> tuple[str, float]:
    begun = time.perf_counter()
    async with HelixClient(url, key, settings=PATIENT) as client:
        handle = await client.run("desk", "When can I return a kettle?", session_id=session)
        status = (await handle.result(PATIENCE_S)).status
    return status, time.perf_counter() - begun


async def ask_all(url: str, key: str, sessions: int) -> list[tuple[str, float] | BaseException]:
    asked = (ask(url, key, f"dev:cold-{n}") for n in range(sessions))
    return await asyncio.gather(*asked, return_exceptions=True)


def main(sessions: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cloud = OfflineCloud(
            ROOT, folder=Path(folder), assemblies=ROOT / "build" / "assemblies", context={"model": "demo"}
        )
        with cloud, Peak() as peak:
            done = asyncio.run(ask_all(cloud.url, cloud.create_key("dev"), sessions))
    good = sorted(seconds for status, seconds in (d for d in done if isinstance(d, tuple)) if status == "completed")
    times = f"first {good[0]:.1f} s, last {good[-1]:.1f} s, " if good else ""
    print(f"{sessions} cold first messages: {times}{sessions - len(good)} failed")
    print(f"at most {peak.processes} worker processes with {peak.memory_mb:,.0f} MB")
    for wrong in {repr(d) for d in done if not isinstance(d, tuple) or d[0] != "completed"}:
        print(wrong)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
