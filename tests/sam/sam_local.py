"""`sam local` as in the guide: the project's copy, the stage that containers reach, and functions in containers.

Commands are read from docs/guide/sam-local.md, so the documented ones are tested. Each pytest worker has a port of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from tests.docs.documents import PROVIDERS, ROOT, Block, blocks_of

from helix.adapters.aws.items import decode
from helix.adapters.aws.packs import PACKED

GUIDE = ROOT / "docs" / "guide" / "sam-local.md"
RUN_HERE = "not-run: needs Docker"
SYNTH, STAGE = "python -m helix.infra.app", "python -m helix.infra.sam"
REGION = "us-east-1"
DOCUMENTED_PORT = 4577
PORT = DOCUMENTED_PORT + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
BUILD_S, START_S, INVOKE_S = 600.0, 120.0, 600.0  # the first invocation builds the image with the layers
COPIED = ("layers", "events", "cdk.json", "pyproject.toml", "samconfig.toml")
ROOMY = '''
"""An agent with functions of its own."""

from helix import Agent, LLMConfig, default_registry

roomy = Agent(
    name="roomy",
    system_prompt="Think.",
    llm_config=LLMConfig(model="openai/gpt-4o-mini"),
    resources={"memory_limit_mb": 2048},
)
default_registry.register(roomy)
'''


def project_for(worker: Path, shared: Path) -> Path:
    """Copy the project with its template. The first caller makes the template and, by invoking a function, the image."""
    first = shared / "project"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not first.exists():
            shell = Shell(copy_project(first))
            shell.run(command(SYNTH).text, BUILD_S)
            with staged(shell):
                Sam(shell).invoke("helix-dev-ws_connect", "ws_connect")
    shutil.copytree(first, worker, symlinks=True)
    for template in (worker / "build/sam").glob("*.template.json"):
        template.write_text(template.read_text("utf-8").replace(f":{DOCUMENTED_PORT}", f":{PORT}"), "utf-8")
    return worker


def copy_project(folder: Path) -> Path:
    """Copy the project as a user has it, with one more agent. Layers that are built already are shared."""
    folder.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, folder / name)
    (folder / "layers/agents/python/roomy.py").write_text(ROOMY, encoding="utf-8")
    settings = json.loads((folder / "cdk.json").read_text(encoding="utf-8"))
    settings["context"]["agents"] = "agents,roomy"
    (folder / "cdk.json").write_text(json.dumps(settings), encoding="utf-8")
    layers = ROOT / ".helix" / "layers"
    layers.mkdir(parents=True, exist_ok=True)
    (folder / ".helix").mkdir()
    (folder / ".helix/layers").symlink_to(layers)
    return folder


# --- the guide ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A command of the guide. `where` is for messages, and `output` is what the guide shows under it."""

    where: str
    text: str
    output: str


def commands() -> Iterator[Command]:
    """Yield the commands that the guide tells readers to type, in order."""
    for block in blocks_of(GUIDE):
        if block.language == "console" and block.words.startswith(RUN_HERE):
            yield from _typed(block)


def _typed(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        text, _, output = part.partition("\n")
        yield Command(block.where, text, output.replace(str(DOCUMENTED_PORT), str(PORT)))


def command(beginning: str) -> Command:
    return next(c for c in commands() if c.text.startswith(beginning))


# --- running -------------------------------------------------------------------------------------------------------------


@dataclass
class Shell:
    """A terminal in the project's folder. Variables that a file exports stay set."""

    project: Path
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not PROVIDERS.match(name)}
        ours = str(ROOT / ".venv" / "bin")
        quiet = {"SAM_CLI_TELEMETRY": "0", "NO_COLOR": "1", "TERM": "dumb"}
        return {**kept, "PATH": f"{ours}{os.pathsep}{os.environ['PATH']}", **quiet, **self.variables}

    def run(self, text: str, seconds: float) -> str:
        """Run a command and return its output. The error of a failure shows both streams."""
        if text.startswith("source "):
            exported = (self.project / text.split()[1]).read_text(encoding="utf-8")
            self.variables |= dict(re.findall(r"(\w+)=(\S+)", exported))
            return ""
        return self.start([*_BASH, text], seconds).stdout

    def start(self, words: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and check that it succeeds."""
        done = subprocess.run(
            words, cwd=self.project, env=self.environment(), capture_output=True, text=True, timeout=seconds
        )
        said = f"{done.stdout}\n{readable(done.stderr)}"
        assert done.returncode == 0, f"{' '.join(words)}\nended with {done.returncode}\n{said}"
        return done


@dataclass
class Answer:
    """A function's response, and the log of sam and of the function."""

    result: Any
    log: str


class Sam:
    """`sam local invoke` with the guide's template."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        for tool in ("docker", "sam"):
            assert shutil.which(tool), f"these tests need Docker and the SAM CLI: there is no {tool!r}"

    @property
    def functions(self) -> set[str]:
        """Names of all functions in the stage's template and in those of its nested stacks."""
        found = set()
        for file in (self.shell.project / "build/sam").glob("*.template.json"):
            resources = json.loads(file.read_text(encoding="utf-8"))["Resources"].values()
            found |= {r["Properties"]["FunctionName"] for r in resources if r["Type"] == "AWS::Lambda::Function"}
        return found

    def invoke(self, function: str, event: str | dict[str, Any]) -> Answer:
        """Invoke the function. `event` is the name of a sample or the event itself."""
        path = f"events/{event}.json" if isinstance(event, str) else "build/sam/event.json"
        if isinstance(event, dict):
            (self.shell.project / path).write_text(json.dumps(event), encoding="utf-8")
        words = ["sam", "local", "invoke", function, "-e", path]
        done = self.shell.start(words, INVOKE_S)
        log = readable(done.stderr)
        try:
            result = json.loads(done.stdout.strip().splitlines()[-1])
        except (ValueError, IndexError):
            raise AssertionError(f"{' '.join(words)} answered {done.stdout!r}\n{log}") from None
        failed = isinstance(result, dict) and "errorType" in result
        assert not failed, f"{' '.join(words)} failed: {json.dumps(result, indent=2)}\n{log}"
        return Answer(result, log)


class Stage:
    """The stage of `python -m helix.infra.sam`. Its rows, sockets and objects are read as the account's administrator."""

    def __init__(self, project: Path, printed: str) -> None:
        self.printed = printed
        self.sockets = re.findall(r"^  sockets +(ws://\S+)$", printed, re.MULTILINE)[0]
        self.endpoint = "http://" + self.sockets.removeprefix("ws://").partition("/")[0]
        self.variables = json.loads((project / "build/sam/env.json").read_text(encoding="utf-8"))["Parameters"]
        given = dict(re.findall(r"(\w+)=(\S+)", (project / "build/sam/credentials").read_text(encoding="utf-8")))
        self._session = boto3.Session(given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"], region_name=REGION)
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._session.client(service, endpoint_url=self.endpoint)
        return self._clients[service]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def rows(self, table: str, partition: str = "") -> list[dict[str, Any]]:
        """Return rows of `sessions`, `streams` or `control` whose partition has this prefix, including packed rows.

        Values are without their DynamoDB types.
        """
        pages = self.client("dynamodb").get_paginator("scan").paginate(TableName=f"helix-dev-{table}")
        items = [item for page in pages for item in page["Items"]]
        found: dict[tuple[str, str], dict[str, Any]] = {}
        packed: dict[tuple[str, str], dict[str, Any]] = {}
        for item in items:
            row = {name: next(iter(value.values())) for name, value in item.items()}
            found[row["pk"], row["sk"]] = row
            if PACKED in item:
                for sort, (_, value) in decode({PACKED: item[PACKED]})[PACKED].items():
                    packed[row["pk"], sort] = {"pk": row["pk"], "sk": sort, **value}
        every = found | packed  # a row that is also packed is a copy of the packed one
        return [every[key] for key in sorted(every) if key[0].startswith(partition)]

    def row(self, table: str, partition: str, sort: str) -> dict[str, Any]:
        (found,) = [row for row in self.rows(table, partition) if row["pk"] == partition and row["sk"] == sort]
        return found

    def run(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the row of the event's run."""
        return self.row("sessions", event["session_id"], f"r#{event['run_id']}")


@contextmanager
def staged(shell: Shell) -> Iterator[Stage]:
    """Start the stage with the guide's command. It ends with the block, and also if this process dies."""
    log = shell.project / "stage.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            # the kernel ends it if this process dies without cleanup
            ["setpriv", "--pdeathsig", "TERM", "--", *_BASH, f"exec {command(STAGE).text} --port {PORT}"],
            cwd=shell.project,
            env=shell.environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        with closing(Stage(shell.project, _until_ready(process, log))) as stage:
            shell.run(command("source ").text, 1)  # each stage has credentials of its own
            yield stage
    finally:
        process.terminate()
        process.communicate(timeout=START_S)


def _until_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return its output up to the last line of its welcome."""
    assert process.stdout is not None
    printed, ends = b"", time.monotonic() + START_S
    while not re.search(rb"^  sockets .*\n", printed, re.MULTILINE):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, ends - time.monotonic()))
        piece = os.read(process.stdout.fileno(), 4096) if ready else b""
        assert piece, f"$ {command(STAGE).text}\ndid not start\n{printed.decode()}\n{log.read_text()}"
        printed += piece
    return printed.decode()


def readable(log: str) -> str:
    """Return sam's log without its remarks on resources that are not functions."""
    return "\n".join(line for line in log.splitlines() if not line.startswith("Cannot detect function id"))


_BASH = ["bash", "-euo", "pipefail", "-c"]
