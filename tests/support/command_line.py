"""The `helix` command in its own folder: in this process if that is enough, or as another process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix.cli.main import invoke
from helix.core.registry import default_registry

AGENTS = Path(__file__).with_name("cli_agents.py")
PATIENCE_S = 100.0
_PROVIDERS = ("OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "AZURE_", "AWS_", "HELIX_")


def clean_environment() -> dict[str, str]:
    """Return this process's environment without any provider's credentials and without Helix's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_PROVIDERS)}


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()][:-1]

    @property
    def result(self) -> dict[str, Any]:
        last: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return last

    @property
    def refusal(self) -> str:
        """Return the one line of a refusal, and check that there is no other output."""
        assert (self.code, self.out) == (2, ""), self
        (line,) = self.err.splitlines()
        return line


class Living:
    """A running command. Its output is read line by line, so that tests wait for its output, not for time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, words: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if words in line:
                return line
        raise AssertionError(f"{words!r} never came: {self.lines}, exit code {self.process.wait(PATIENCE_S)}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Read the rest of the output, and return the exit code."""
        assert self.process.stdout is not None
        self.lines += [line.rstrip("\n") for line in self.process.stdout]
        return self.process.wait(PATIENCE_S)


class CommandLine:
    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.environment = {**clean_environment(), **environment}
        shutil.copy(AGENTS, folder / "agents.py")

    def __call__(self, *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None) -> Done:
        """Run the command in this process as if it were new: what it imports or registers is removed."""
        out, err, standard_input = io.StringIO(), io.StringIO(), sys.stdin
        modules, path, surroundings = set(sys.modules), list(sys.path), dict(os.environ)
        sys.stdin = io.StringIO(stdin)
        os.environ.clear()
        os.environ.update({**self.environment, **(environment or {})})
        registered = [default_registry.resolve(name) for name in default_registry.registered_types()]
        default_registry.clear()
        try:
            with contextlib.chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
                code = invoke(arguments)
        finally:
            sys.stdin, sys.path[:] = standard_input, path
            os.environ.clear()
            os.environ.update(surroundings)
            default_registry.clear()
            for agent in registered:
                default_registry.register(agent)
            for name in set(sys.modules) - modules:
                if str(self.folder) in str(getattr(sys.modules[name], "__file__", "")):
                    del sys.modules[name]
        return Done(code, out.getvalue(), err.getvalue())

    def process(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "helix.cli", *arguments],
            cwd=self.folder,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Living]:
        """Start the command as a process. Standard error is part of its output."""
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "helix.cli", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield Living(process)
        finally:
            process.kill()
            process.communicate()
