"""Communication with a worker process of `tests/support`: one JSON line there, one back."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


class Worker:
    """A process of the `module` of `tests.support` that waits for jobs. `variables` is its environment, by default that of
    this process."""

    def __init__(self, module: str, variables: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", f"tests.support.{module}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=ROOT, env=variables, text=True, **pipes)  # type: ignore[call-overload]

    def ask(self, **job: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def race(self, do: str, db: Path | str, processes: int, **job: Any) -> list[Any]:
        """Return the results of all processes, which all must have ended normally."""
        answer = self.ask(do=do, db=str(db), processes=processes, **job)
        assert answer["codes"] == [0] * processes, "\n".join(map(str, answer["found"]))
        found: list[Any] = answer["found"]
        return found

    def close(self) -> None:
        self.process.communicate()
