"""The contenders, their environments, and how a job runs in its own process.

Law: a job ends by itself or is ended after its timeout. If a contender cannot be installed or run, the table has the
reason, never a gap.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
ENVIRONMENTS = ROOT / "build" / "peers"
INSTALL_S = 900
VERSIONS = "import json, sys; from importlib.metadata import version; print(json.dumps([*map(version, sys.argv[1:])]))"


class Failed(Exception):
    """A short reason why a job has no result."""


@dataclass
class Contender:
    """`without`: the measures in which it cannot take part, with the reason. `broken`: the reason why it cannot run at
    all."""

    key: str
    name: str
    packages: tuple[str, ...]
    model: str
    store: str
    without: Mapping[str, str] = field(default_factory=dict)
    broken: str = ""

    @property
    def python(self) -> Path:
        return Path(sys.executable) if self.key == "helix" else ENVIRONMENTS / self.key / "bin" / "python"

    def install(self) -> None:
        """Create the environment if it does not match pyproject.toml."""
        if self.key == "helix":
            return
        groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
        wanted = groups[f"peer-{self.key}"]
        home, stamp = ENVIRONMENTS / self.key, ENVIRONMENTS / self.key / "installed.json"
        if stamp.exists() and json.loads(stamp.read_text()) == wanted and self.python.exists():
            return
        print(f"installing {', '.join(wanted)}", file=sys.stderr)
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
        try:
            for command in ([sys.executable, "-m", "venv", "--clear", str(home)], pip):
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
        except subprocess.TimeoutExpired:
            self.broken = f"not installed within {INSTALL_S} s"
        except subprocess.CalledProcessError as error:
            self.broken = f"not installed: {last_line(error.stderr)}"
        else:
            stamp.write_text(json.dumps(wanted))

    def versions(self) -> str:
        command = [str(self.python), "-c", VERSIONS, *self.packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.broken = self.broken or f"not installed: {last_line(done.stderr)}"
            return ""
        found = json.loads(done.stdout)
        return ", ".join(f"{name} {version}" for name, version in zip(self.packages, found, strict=True))

    def start(self, job: Mapping[str, Any], folder: str, **environment: str) -> subprocess.Popen[str]:
        command = [str(self.python), str(FOLDER / f"{self.key}_peer.py"), json.dumps(job)]
        return start(command, folder, **environment)

    def run(self, job: Mapping[str, Any], folder: str, time_out_s: float, **environment: str) -> dict[str, Any]:
        return finish(self.start(job, folder, **environment), time_out_s)


def start(command: list[str], folder: str, **environment: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=folder, env=surroundings(folder, environment), text=True, **pipes)  # type: ignore[call-overload,no-any-return]


def surroundings(folder: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without this machine's credentials and with telemetry off."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": folder,
        "LANG": "C.UTF-8",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "OPENAI_API_KEY": "test",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        **more,
    }


def finish(process: subprocess.Popen[str], time_out_s: float) -> dict[str, Any]:
    """Return the job's result; `{"killed": True}` if it ended by SIGKILL, as its script requested."""
    try:
        said, complained = process.communicate(timeout=time_out_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed(f"over {time_out_s:g} s") from None
    if process.returncode == -9:
        return {"killed": True}
    if process.returncode:
        raise Failed(last_line(complained) or f"exit {process.returncode}")
    answer: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return answer


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip() and not line.startswith("(Background")]
    return lines[-1][:160] if lines else ""


NO_SESSIONS = "no sessions"

CONTENDERS = [
    Contender("helix", "Helix", ("helix-agents",), "`LLMAdapter`", "SQLite"),
    Contender(
        "langgraph",
        "LangGraph",
        ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-aws"),
        "a node",
        'SQLite, `durability="sync"`',
    ),
    Contender(
        "strands", "Strands", ("strands-agents",), "`models.Model`", "files, saved on each message; it has no SQLite"
    ),
    Contender(
        "openai", "OpenAI Agents", ("openai-agents",), "`models.Model`", "`SQLiteSession`", {"aws": "no DynamoDB"}
    ),
    Contender(
        "pydantic",
        "Pydantic AI",
        ("pydantic-ai-slim", "dbos"),
        "`FunctionModel`",
        "`DBOSDurability` on SQLite; words and memory without it",
        {"race": NO_SESSIONS, "aws": "no DynamoDB"},
    ),
    Contender(
        "dbos",
        "DBOS",
        ("dbos",),
        "called in a step",
        "SQLite, whose streams it polls each second",
        {"memory": "needs a database", "race": NO_SESSIONS, "aws": "no DynamoDB"},
    ),
    Contender(
        "durable",
        "AWS durable SDK",
        ("aws-durable-execution-sdk-python", "aws-durable-execution-sdk-python-testing"),
        "called in a step",
        "its local runner on SQLite",
        {"words": "no stream", "race": NO_SESSIONS},
    ),
]


def chosen(names: Iterable[str]) -> list[Contender]:
    """Return Helix and the peers of these names, or all peers if no names are given."""
    wanted = set(names)
    unknown = wanted - {made.key for made in CONTENDERS}
    if unknown:
        raise SystemExit(
            f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(m.key for m in CONTENDERS)}"
        )
    return [made for made in CONTENDERS if not wanted or made.key in wanted or made.key == "helix"]
