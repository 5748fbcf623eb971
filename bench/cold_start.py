"""How long a function takes until it can be invoked: its handler's import in a fresh interpreter, with .pyc files.

    python bench/cold_start.py                    prints the table and saves it to bench/results/cold_start.md
    python bench/cold_start.py --imports VERB     what takes the time there, longest first

As deployed: HELIX_STAGE is set, so the handler makes its application; the layers are on PYTHONPATH. `ready` is what the
first invocation does before its own work: agents imported, clients and engine made, everything but a call.

What else a machine does only adds to a time, so the best of many fresh processes, which take turns, comes closest to the
function's own; the median says what it was here. Beside it stands the same for boto3 and one client, measured in the same
run: no function that talks to AWS can be below that by much.
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


def main() -> None:
    compile_all()
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
