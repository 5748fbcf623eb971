"""Measure the time until a function can be invoked: its handler's import in a fresh interpreter, with .pyc files.

    python bench/cold_start.py                    prints the table and saves it to bench/results/cold_start.md
    python bench/cold_start.py --imports VERB     what takes the time there, longest first
    python bench/cold_start.py --memory           what call_model needs at work, saved to bench/results/memory.md

The setup is that of a deployment: HELIX_STAGE is set, so the handler creates its application, and the layers are on
PYTHONPATH. `ready` is the work of the first invocation before its actual task: it imports the agents and creates the
clients and the engine, without any calls.

Other load on the machine can only add time. So the best of many fresh processes, which take turns, comes closest to the
function's own time; the median shows the time on this machine. The same run measures boto3 and one client: a function that
calls AWS cannot be much faster than that.

With `--memory`, `call_model` streams answers from a model server on loopback, and the bench reads its peak resident memory
and its CPU time. Lambda gives a core for 1,769 MB, and a share of one for less.
"""

from __future__ import annotations

import compileall
import json
import os
import platform
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

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
    "HELIX_MODEL": "demo",
    "HELIX_AUTH": "keys",
    "POWERTOOLS_METRICS_NAMESPACE": "Helix",
    "PYTHONPATH": os.pathsep.join(str(layer) for layer in LAYERS),
}
Sample = tuple[float, float, float]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **ENVIRONMENT}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, env=environment)


def probe(name: str) -> tuple[Sample, Sample]:
    """Return (imported, ready): milliseconds, CPU milliseconds, resident MB."""
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


# --- memory -----------------------------------------------------------------------------------------------------------

CORE_MB = 1769
"""https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html"""
CALLS = 20
AT_WORK = """
import asyncio, json, sys, time
{code}
from helix.runtime.cloud import application
application().engine
def mark():
    lines = open("/proc/self/status").read().splitlines()
    return time.process_time() * 1000, next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
found = [mark()]
from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.demo import DemonstrationModel
from helix.core.config import LLMConfig
from helix.core.messages import UserMessage
from helix.ports.model import LLMGenerateInput, LLMStreamCallbacks
kind, options = {kind!r}, dict(api_base={url!r} + "/v1", api_key="bench")
forced = "litellm" if kind == "litellm" else "auto"
config = LLMConfig(model="openai/gpt-4o-mini", provider_options=options, adapter=forced)
model = DemonstrationModel(delta_delay_s=0) if kind == "demo" else ModelAdapter()
if kind != "demo":
    model.prepare(config)
found.append(mark())
async def heard(delta): pass
asked = LLMGenerateInput(agent_id="a", agent_type="a", config=config, messages=[UserMessage(content="Go.")], tools=[],
                         callbacks=LLMStreamCallbacks(on_text_delta=heard), timeout_s=60)
async def main():
    for n in range(1 + {calls}):
        answer = await model.generate_step(asked)
        assert not getattr(answer, "error", None), answer
        if n in (0, {calls}):
            found.append(mark())
asyncio.run(main())
print(json.dumps(found))
"""


def at_work(kind: str, url: str) -> tuple[float, float, float, float]:
    """Measure `call_model` with that package: CPU ms of the start, of the first call and of each later call, and the
    peak MB."""
    code = HANDLER.format(folder=str(ROOT / "functions" / "call_model"))
    done = run("-c", AT_WORK.format(code=code, kind=kind, url=url, calls=CALLS))
    _, ready, first, last = json.loads(done.stdout.splitlines()[-1])
    return ready[0], first[0] - ready[0], (last[0] - first[0]) / CALLS, last[1]


def memory() -> None:
    from helix.testing.openai_server import ModelAnswer, OpenAIServer

    text = ModelAnswer(text="It is there. " * 50, delta_length=13)
    lines = [
        "# Memory and CPU of call_model, by the package that calls the model",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs; a fresh process, {CALLS + 1} "
        "streamed answers of 50 deltas over loopback; medians of 3; `python bench/cold_start.py --memory`. CPU in ms of a "
        "whole core (1,769 MB on Lambda).",
        "",
        "| package | peak MB | CPU, start | CPU, first answer | CPU, each later | start at 512 MB, s | at 1,024 MB, s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    with OpenAIServer(lambda request: text) as server:
        for kind in ("demo", "openai", "litellm"):
            taken = [at_work(kind, server.origin) for _ in range(3)]
            start, first, each, peak = (statistics.median(column) for column in zip(*taken, strict=True))
            small, large = (start * CORE_MB / size / 1000 for size in (512, 1024))
            lines.append(
                f"| {kind} | {peak:.0f} | {start:.0f} | {first:.0f} | {each:.1f} | {small:.1f} | {large:.1f} |"
            )
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
    for _ in range(RUNS):  # in turn, so that other load on the machine affects all of them
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
