"""How long a function takes until it can be invoked: its handler's import in a fresh interpreter, with .pyc files.

    python bench/cold_start.py                    prints the table and saves it to bench/results/cold_start.md
    python bench/cold_start.py --imports VERB     what takes the time there, longest first
    python bench/cold_start.py --memory           what each function needs at work, saved to bench/results/memory.md

As deployed: HELIX_STAGE is set, so the handler makes its application; the layers are on PYTHONPATH. `ready` is what the
first invocation does before its own work: agents imported, clients and engine made, everything but a call.

What else a machine does only adds to a time, so the best of many fresh processes, which take turns, comes closest to the
function's own; the median says what it was here. Beside it stands the same for boto3 and one client, measured in the same
run: no function that talks to AWS can be below that by much.

`--memory` deploys the app into the emulator, with an agent for each package that calls models (`bench/offline`), whose
server is on loopback. After some runs it reads each function's process: its peak of resident memory, and its processor time
until it was ready and for each invocation. Lambda gives a core for 1,769 MB, and a share of one for less.
"""

from __future__ import annotations

import compileall
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LAYERS = [ROOT / "layers" / name / "python" for name in ("core", "agents")]
FUNCTIONS = sorted(path.parent.name for path in ROOT.glob("functions/*/handler.py"))
RUNS = 11
LIMITS = {"call_model": (700, None)}
DEFAULT_LIMIT = (350, 65)
BASE = "boto3 and a DynamoDB client"

PROBE = """
import json, sys, time
begun, used = time.perf_counter(), time.process_time()
def mark():
    size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return (time.perf_counter() - begun) * 1000, (time.process_time() - used) * 1000, size / 1024
{code}
imported = mark()
{ready}
print(json.dumps([imported, mark(), "litellm" in sys.modules]))
"""
HANDLER = "sys.path.insert(0, {folder!r}); import handler"
APPLICATION = "from helix.runtime.cloud import application; app = application()"
ENGINE = f"{APPLICATION}; app.engine, app.agents"
SOCKET = f"{APPLICATION}; app.store; from helix.gateway.lambdas import authoriser; authoriser(app)"
READY = {
    "project_stream": f"{APPLICATION}; from helix.gateway.lambdas_project import projector; projector(app)",
    "ws_authorize": SOCKET,
    "ws_connect": SOCKET,
    "ws_disconnect": SOCKET,
    "ws_message": f"{APPLICATION}; from helix.gateway.lambdas import gateway; gateway(app)",
}

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_LAMBDA_FUNCTION_NAME": "helix-bench-function",
    "HELIX_STAGE": "bench",
    "HELIX_SESSIONS_TABLE": "helix-bench-sessions",
    "HELIX_STREAMS_TABLE": "helix-bench-streams",
    "HELIX_CONTROL_TABLE": "helix-bench-control",
    "HELIX_BUCKET": "helix-bench-overflow",
    "HELIX_CHUNKS": "helix-bench-chunks",
    "HELIX_MACHINE": "arn:aws:states:us-east-1:123456789012:stateMachine:helix-bench-{profile}",
    "HELIX_SOCKETS": "https://sockets.invalid/bench",
    "HELIX_AGENTS": "agents",
    "HELIX_AUTH": "keys",
    "POWERTOOLS_METRICS_NAMESPACE": "Helix",
    "PYTHONPATH": os.pathsep.join(str(layer) for layer in LAYERS),
}
Sample = tuple[float, float, float]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **ENVIRONMENT}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, env=environment)


def probe(name: str) -> tuple[Sample, Sample]:
    """(Imported, ready): milliseconds, CPU milliseconds, resident MB."""
    code, ready = "import boto3; boto3.client('dynamodb', region_name='us-east-1')", "pass"
    if name != BASE:
        code = HANDLER.format(folder=str(ROOT / "functions" / name))
        ready = READY.get(name, ENGINE)
    imported, after, litellm = json.loads(run("-c", PROBE.format(code=code, ready=ready)).stdout)
    assert not litellm, f"{name}: litellm was imported"
    return tuple(imported), tuple(after)


def over(samples: list[Sample], choose: Callable[[Iterable[float]], float]) -> Sample:
    ms, cpu, size = (choose(column) for column in zip(*samples, strict=True))
    return ms, cpu, size


def compile_all() -> None:
    for folder in (*LAYERS, ROOT / "functions"):
        assert compileall.compile_dir(folder, quiet=1), folder


def imports(verb: str) -> None:
    code = f"import sys; {HANDLER.format(folder=str(ROOT / 'functions' / verb))}"
    rows = []
    for line in run("-X", "importtime", "-c", code).stderr.splitlines():
        own, total, name = line.removeprefix("import time:").split("|")
        if own.strip().isdecimal():
            rows.append((int(own), int(total), name))
    for own, total, name in sorted(rows, reverse=True)[:40]:
        print(f"{own / 1000:8.1f} ms own {total / 1000:8.1f} ms with what it imports  {name.strip()}")


# --- at work ----------------------------------------------------------------------------------------------------------

CORE_MB = 1769
"""https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html"""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
WARM_UP, WORK = 3, 20


def processes() -> dict[str, list[tuple[float, float]]]:
    """By function: (peak of resident MB, processor seconds) of each of its processes."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        try:
            words = dict(w.split("=", 1) for w in (folder / "environ").read_text().split("\0") if "=" in w)
            name = words["AWS_LAMBDA_FUNCTION_NAME"].removeprefix("helix-bench-")
            lines = (folder / "status").read_text().splitlines()
            ticks = (folder / "stat").read_text().rpartition(")")[2].split()
        except (OSError, KeyError, UnicodeDecodeError):
            continue
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        found[name].append((peak / 1024, (int(ticks[11]) + int(ticks[12])) * TICK_S))
    return found


async def work(cloud: Any, runs: int) -> None:
    from offline.memory_agents import PACKAGES

    from helix.client import HelixClient

    async with HelixClient(cloud.url, cloud.create_key("bench")) as client:
        for _ in range(runs):
            for agent in PACKAGES:
                handle = await client.run(agent, "Look around.")
                async for _ in await handle.stream():
                    pass


def at_work() -> list[tuple[str, float, float, float]]:
    """(Function, peak MB, CPU ms of the first process's start and first runs, CPU ms an invocation after them)."""
    sys.path.insert(0, str(Path(__file__).parent))
    from offline.memory_agents import SERVER

    from helix.local.cloud import OfflineCloud
    from helix.testing.openai_server import ModelAnswer, ModelToolCall, OpenAIServer

    def answer(request: dict[str, Any]) -> ModelAnswer:
        if request["messages"][-1]["role"] == "tool":
            return ModelAnswer(text="It is there. " * 50, delta_length=13)
        return ModelAnswer(tool_calls=[ModelToolCall("look", {"where": "here"})])

    begun: dict[str, int] = defaultdict(int)

    def hear(line: dict[str, Any]) -> None:
        if '"Duration"' in line["line"]:
            begun[line["function"].removeprefix("helix-bench-")] += 1

    import asyncio

    context = {"stage": "bench", "agents": "memory_agents", "model": "import:memory_agents:model"}
    with OpenAIServer(answer) as server, tempfile.TemporaryDirectory() as folder:
        os.environ[SERVER] = server.origin
        cloud = OfflineCloud(ROOT, folder=Path(folder), context=context, paths=[ROOT / "bench" / "offline"])
        with cloud:
            cloud.listen(hear)
            asyncio.run(work(cloud, WARM_UP))
            time.sleep(2)
            before, counted = processes(), dict(begun)
            asyncio.run(work(cloud, WORK))
            time.sleep(2)
            after = processes()
    rows = []
    for name, known in sorted(after.items()):
        many = begun[name] - counted.get(name, 0)
        used = sum(cpu for _, cpu in known) - sum(cpu for _, cpu in before.get(name, []))
        start = min((cpu for _, cpu in before.get(name, known)), default=0.0)
        rows.append((name, max(peak for peak, _ in known), start * 1000, used * 1000 / many if many else 0.0))
    return rows


def memory() -> None:
    lines = [
        "# What each function needs at work",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs; deployed offline; after "
        f"{WARM_UP + WORK} runs of each of three agents, whose model is called by a package; `python bench/cold_start.py "
        "--memory`. CPU in milliseconds of a whole core, which is 1,769 MB.",
        "",
        "| function | peak MB | CPU until warm | CPU an invocation | that at 512 MB | at 1,024 MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, peak, start, each in at_work():
        at = " | ".join(f"{each * CORE_MB / size:.0f}" for size in (512, 1024))
        lines.append(f"| {name} | {peak:.0f} | {start:.0f} | {each:.1f} | {at} |")
    table = "\n".join(lines) + "\n"
    print(table)
    (Path(__file__).parent / "results" / "memory.md").write_text(table)


def main() -> None:
    compile_all()
    if sys.argv[1:2] == ["--memory"]:
        memory()
        return
    if sys.argv[1:2] == ["--imports"]:
        imports(sys.argv[2])
        return
    imported: dict[str, list[Sample]] = defaultdict(list)
    ready: dict[str, list[Sample]] = defaultdict(list)
    for _ in range(RUNS):  # in turn, so that what else the machine does is spread over all
        for name in (BASE, *FUNCTIONS):
            first, second = probe(name)
            imported[name].append(first)
            ready[name].append(second)
    base, usual = over(imported[BASE], min), over(imported[BASE], statistics.median)
    lines = [
        "# Cold start: the handler's import in a fresh interpreter",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, "
        f".pyc present; best (median) of {RUNS}; `python bench/cold_start.py`.",
        "",
        "| function | import, ms | CPU ms | CPU to boto3's | MB | at most | | ready, ms | CPU ms | MB |",
        "|---|---:|---:|---:|---:|---|---|---:|---:|---:|",
        f"| {BASE} | {base[0]:.0f} ({usual[0]:.0f}) | {base[1]:.0f} ({usual[1]:.0f}) | 1.00 | {base[2]:.0f} | | | | | |",
    ]
    for name in FUNCTIONS:
        (ms, cpu, size), (later, later_cpu, later_size) = over(imported[name], min), over(ready[name], min)
        middle, later_middle = over(imported[name], statistics.median), over(ready[name], statistics.median)
        most_ms, most_mb = LIMITS.get(name, DEFAULT_LIMIT)
        met = ms <= most_ms and (most_mb is None or size <= most_mb)
        bound = f"{most_ms} ms" + (f", {most_mb} MB" if most_mb else "")
        lines.append(
            f"| {name} | {ms:.0f} ({middle[0]:.0f}) | {cpu:.0f} ({middle[1]:.0f}) | {middle[1] / usual[1]:.2f} "
            f"| {size:.0f} | {bound} | {'met' if met else 'MISSED'} "
            f"| {later:.0f} ({later_middle[0]:.0f}) | {later_cpu:.0f} ({later_middle[1]:.0f}) | {later_size:.0f} |"
        )
    table = "\n".join(lines) + "\n"
    print(table)
    (Path(__file__).parent / "results" / "cold_start.md").write_text(table)


if __name__ == "__main__":
    main()
