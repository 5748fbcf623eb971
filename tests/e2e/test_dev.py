"""The command `helix dev`: its output, its saved state, the files that it watches, its end, and its refusals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import PRIVATE, ROOT, until

from helix.client import HelixClient
from helix.core.spans import run_ref
from helix.local.credentials import Credentials
from helix.local.process import free_port
from helix.local.traces import TraceReceiver

PATIENCE_S = 120.0
PROGRAM = (sys.executable, "-m", "helix.cli")
NOT_PYTHON = shutil.ignore_patterns("__pycache__")
MODEL = ["--model", "import:cloud_agents:model", "-c", "agents=cloud_agents,edited"]
AGENT = """
from helix import Agent, LLMConfig, default_registry, tool

@tool
def edition() -> str:
    "Tell it."
    return "edition 1"

agent = Agent(name="edited", system_prompt="Tell.", tools=[edition], llm_config=LLMConfig(model="planned"))
default_registry.register(agent)
"""
FOREVER = "threading.Event().wait()\n"
ASK = plan(use(call("edition")), say("Told."))

pytestmark = pytest.mark.timeout(400)


class Dev:
    """A `helix dev` process in its own session, as in a terminal of its own."""

    def __init__(self, project: Path, *words: str, program: Sequence[str] = PROGRAM, **variables: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not PRIVATE.match(name)}
        own = {"PYTHONUNBUFFERED": "1", **variables}
        self.process = subprocess.Popen(
            [*program, "dev", *words],
            cwd=project,
            env={**kept, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as printed:
            self.lines.extend(iter(printed.readline, ""))

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until the output matches, and return the match. Fail if the command ends without it."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.text, re.MULTILINE)
            assert found or self.process.poll() is None, f"it ended without {pattern!r}:\n{self.text}"
            return found

        found = until(look, f"{pattern!r}", patience_s=PATIENCE_S)
        assert found is not None
        return found

    def told(self, name: str) -> str:
        return self.until(rf"^  {name} +(\S.*)$")[1]

    def client(self) -> HelixClient:
        return HelixClient(self.told("url"), self.told("key"))

    def tree(self) -> list[psutil.Process]:
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def end(self, number: int = signal.SIGINT) -> int:
        """Return the exit code, and check that every process that it started has ended."""
        tree = self.tree()
        os.killpg(self.process.pid, number)
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        _, left = psutil.wait_procs(tree, timeout=20)
        assert left == [], f"left behind: {left}"
        return code

    def refusal(self) -> str:
        """Return the one line of its refusal."""
        assert self.process.wait(PATIENCE_S) == 2
        self._reader.join(PATIENCE_S)
        (line,) = [line for line in self.lines if "synthesising" not in line]
        assert line.startswith("helix: ")
        return line


@contextlib.contextmanager
def dev(project: Path, *words: str, program: Sequence[str] = PROGRAM, **variables: str) -> Iterator[Dev]:
    started = Dev(project, *words, program=program, **variables)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a project with its own agent, which tests edit."""
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").write_text('[tool.helix]\nsource = "layers"\nagents = ["cloud_agents", "edited"]\n')
    agents = root / "layers"
    shutil.copytree(ROOT / "tests/support/cloud_agents", agents / "cloud_agents", ignore=NOT_PYTHON)
    (agents / "edited.py").write_text(AGENT)
    return root


async def ask(client: HelixClient, session_id: str | None = None) -> str:
    """Run the agent, expect it to name the edition, and return the session's id."""
    handle = await client.run("edited", ASK, session_id=session_id)
    assert (await handle.result(90)).status == "completed"
    return handle.session_id


async def editions(client: HelixClient, session_id: str) -> list[str]:
    told: dict[str, Any] = await client.get_messages(session_id)
    return [message["content"] for message in told["messages"] if message["role"] == "tool"]


def saved_status(file: Path, session_id: str) -> str | None:
    """Return the session's status in the emulator's saved state."""
    tables = json.loads(file.read_text())["dynamodb"]["payload"]["tables"]["data"]
    (items,) = [table["items"] for name, table in tables.items() if name.endswith("-sessions'")]
    row = items.get(session_id, {}).get("session")
    return row and str(row["status"]["S"])


def ended(receiver: TraceReceiver, run_id: str) -> bool:
    """Return whether the run's trace has arrived with its root span."""
    return any(not span.parent_id for span in receiver.trace(run_ref(run_id, None).trace_id))


def listening(process: psutil.Process) -> set[str]:
    """Return the addresses at which the process listens, or an empty set if the process has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return {each.laddr.ip for each in process.net_connections() if each.status == psutil.CONN_LISTEN}
    return set()


async def test_start_talk_edit_end_and_start_again(project: Path, tmp_path: Path) -> None:
    file, words = project / "layers/edited.py", ["--port", "0", "--state", str(tmp_path), *MODEL]
    with dev(project, *words) as first:
        first.told("state")
        assert {place for process in first.tree() for place in listening(process)} == {"127.0.0.1"}
        for name in ("api-key", "env"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert f"export HELIX_URL={first.told('url')}\n" in (tmp_path / "env").read_text()
        place, _, code = first.told("console").split()[0].partition("#code=")
        assert first.text.index(place) < first.text.index(first.told("url")), "its address comes first"
        signing = urllib.request.Request(f"{place}sign-in", json.dumps({"code": code}).encode())
        signed = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(signing).read()))
        assert (signed["url"], signed["token"]) == (first.told("url"), first.told("key"))
        async with first.client() as client:
            assert (await client.whoami())["operator"] is True

        with dev(project, *words) as second:
            assert "is in use: process" in second.refusal()

        async with first.client() as client:
            session = await ask(client)
            first.until(r"^\d\d:\d\d:\d\d\.\d{3} INFO    ws_message     run: ok$")
            first.until(rf"INFO    call_tool      step 1 in [\d,]+ ms session={session}$")
            first.until(r"^    run edited +[\d.]+ s .* completed \(execute\)$")
            first.until(r"^    └─ invoke_agent edited +[\d.]+ s$")
            first.until(r"^       ├─ chat \w+ +[\d.]+ s ")
            first.until(r"^       ├─ execute_tool edition +[\d.]+ s$")
            assert first.told("traces").startswith("http://127.0.0.1:")
            endpoint = re.sub(r"^ws:(//[^/]+).*", r"http:\1", first.told("url"))
            found = Credentials(*re.findall(r"^export AWS_\w*KEY\w*=(\S+)$", (tmp_path / "env").read_text(), re.M))
            watch = boto3.client(
                "cloudwatch",
                endpoint_url=endpoint,
                region_name="us-east-1",
                **found.options,
            )
            until(lambda: watch.list_metrics(Namespace="Helix", MetricName="RunsStarted")["Metrics"], "metric")

            file.write_text(AGENT + "\nif:")
            first.until(r"NOT reloaded, the previous code stays in use: layers/edited\.py:\d+: SyntaxError")
            file.write_text(AGENT.replace("edition 1", "edition 2"))
            first.until(r"^helix: reloaded layers/edited\.py$")
            await ask(client, session)
            assert await editions(client, session) == ["edition 1", "edition 2"]
        assert first.end() == 0
        assert "Traceback" not in first.text and first.lines[-1] == "helix: stopping; sessions are saved\n"

    with TraceReceiver() as elsewhere, dev(project, *words, OTEL_EXPORTER_OTLP_ENDPOINT=elsewhere.url) as again:
        assert again.told("key") == first.told("key") and again.told("traces") == elsewhere.url
        async with again.client() as client:
            assert len(await editions(client, session)) == 2
            await ask(client, session)
            run_id = (await client.get_session(session)).current_run_id
        until(lambda: ended(elsewhere, run_id), "trace at the endpoint of one's own")
        assert "run edited" not in again.text
        again.end(signal.SIGKILL)  # the emulator sees the end of its input, and saves its state

    with dev(project, *words, "--no-watch", "--logs", "json") as last:
        async with last.client() as client:
            assert len(await editions(client, session)) == 3
            last.until(r'^\{"time": [\d.]+, "function": "helix-dev-ws_message"')
            await ask(client, session)
            run_id = (await client.get_session(session)).current_run_id
        shown = json.loads(last.until(rf'^\{{"trace": "{run_ref(run_id, None).trace_id}", .*$')[0])
        assert {"run edited", "execute_tool edition"} <= {span["name"] for span in shown["spans"]}
        assert last.end(signal.SIGTERM) == 0


async def test_it_goes_on_after_sigkill_to_all_of_it(project: Path, tmp_path: Path) -> None:
    words = ["--port", "0", "--state", str(tmp_path), "--no-watch", *MODEL]
    with dev(project, *words) as killed:
        killed.told("state")  # the first key was saved by now
        for process in reversed(killed.tree()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        assert killed.process.wait(PATIENCE_S) == -signal.SIGKILL
    with dev(project, *words) as killed:
        assert killed.told("key") == (tmp_path / "api-key").read_text().strip()
        async with killed.client() as client:
            session = await ask(client)
            saved = tmp_path / "state" / "state.json"
            until(lambda: saved_status(saved, session) == "completed", "save of the run")
        for process in reversed(killed.tree()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        killed.process.wait(PATIENCE_S)
    with dev(project, *words) as again:
        async with again.client() as client:
            assert len(await editions(client, session)) == 1
            assert await ask(client, session) == session
        assert [p for p in tmp_path.rglob("*") if not p.is_symlink() and p.stat().st_mode & 0o077] == []
        assert again.end() == 0


def test_it_can_be_ended_at_any_moment(project: Path, tmp_path: Path) -> None:
    with dev(project, "--port", "0", "--state", str(tmp_path), *MODEL) as started:
        started.until("synthesising")
        assert started.end() == 0, started.text
        assert started.lines[-1] == "helix: stopped before the app was ready\n" and "Traceback" not in started.text
    with dev(project, "--port", "0", "--state", str(tmp_path), *MODEL) as started:
        started.told("state")  # its functions are still starting
        assert started.end() == 0
        assert started.lines[-1] == "helix: stopping; sessions are saved\n" and "Traceback" not in started.text
    file, loading = project / "layers/edited.py", tmp_path / "loading"
    before = file.read_text()
    with dev(project, "--port", "0", "--state", str(tmp_path), *MODEL) as started:
        started.told("state")
        file.write_text(f"{before}\nimport pathlib, threading\npathlib.Path({str(loading)!r}).touch()\n{FOREVER}")
        until(loading.exists, "reload")
        assert started.end() == 0
        assert started.lines[-1] == "helix: stopping; sessions are saved\n" and "NOT reloaded" not in started.text
    file.write_text(before)


def test_what_stands_in_the_way_is_said_in_one_line(project: Path, tmp_path: Path) -> None:
    state = ["--state", str(tmp_path / "state"), *MODEL]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with dev(project, "--port", port, *state) as refused:
            assert f"port {port} is in use" in refused.refusal()

    only_python = tmp_path / "bin"
    only_python.mkdir()
    with dev(project, "--port", str(free_port()), *state, PATH=str(only_python)) as refused:
        assert "Node is missing" in refused.refusal()

    broken = project / "layers/broken.py"
    broken.write_text("\nraise ValueError('not today')\n")
    with dev(project, *state, "-c", "agents=broken") as refused:
        assert "layers/broken.py:2: ValueError: not today" in refused.refusal()
    broken.unlink()

    with dev(tmp_path, *state) as refused:
        assert "there is no Helix project" in refused.refusal()
    with dev(project, *state, "-c", "stage=NO") as refused:
        assert "context key 'stage' is 'NO'" in refused.refusal()
