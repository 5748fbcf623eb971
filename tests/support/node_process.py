"""A Node program that answers lines of JSON, started once for many tests. Loading its modules takes most of a second."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

PATIENCE_S = 100


class NodeProcess:
    """A program that reads a JSON request from each line of its input, and writes its JSON answer as a line. The first
    request starts it. A request that gets no answer ends it, so that no later request reads that answer. Close it at the
    end."""

    def __init__(self, *command: str | Path, cwd: Path) -> None:
        self._command, self._cwd = command, cwd
        self._process: subprocess.Popen[str] | None = None

    async def ask(self, request: Any) -> Any:
        """Send a request and return its answer. Only one request at a time is allowed."""
        text = f"{json.dumps(request)}\n"
        try:
            async with asyncio.timeout(PATIENCE_S):
                line = await asyncio.to_thread(self._exchange, self._running(), text)
        except BaseException:
            self.kill()
            raise
        if not line:
            self.kill()
            raise AssertionError(f"{self._command[1]} died at {text[:200]}")
        return json.loads(line)

    def close(self) -> None:
        """End the program's input, and wait for its end. It fails if the program still does something."""
        if (process := self._process) is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(PATIENCE_S)
            finally:
                self.kill()

    def kill(self) -> None:
        if (process := self._process) is not None:
            self._process = None
            process.kill()
            with contextlib.suppress(BrokenPipeError), process:  # a request that it did not read
                pass

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = subprocess.Popen(self._command, cwd=self._cwd, text=True, encoding="utf-8", **pipes)
        return self._process

    @staticmethod
    def _exchange(process: subprocess.Popen[str], text: str) -> str:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(text)
        process.stdin.flush()
        return process.stdout.readline()
