"""Measure the import of Helix over a bare interpreter, and the start of each model until it can be called: time and
resident memory. Values are medians over fresh processes, which take turns so that load on the machine affects all of them.

python bench/imports.py               prints the tables and saves them to bench/results/imports.md
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RUNS = 5
PROBE = """
import time; start, used = time.perf_counter(), time.process_time()
{code}
took, used = time.perf_counter() - start, time.process_time() - used
peak = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmRSS"))
import sys
print(took * 1000, used * 1000, peak / 1024, "litellm" in sys.modules)
"""
CASES = {
    "bare interpreter": "pass",
    "import helix": "import helix",
    "all of an agent file": "from helix import Agent, LLMConfig, ToolContext, create_sub_agent_tool, tool",
    "and the executor": "from helix import Agent, LLMConfig, LocalExecutor, tool; LocalExecutor(':memory:')",
}
ALONE = "its package alone"
"""The time of `openai/...` without Helix: an adapter over that package cannot be ready much sooner."""
READY = {
    "boto3": """
import os
os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1")
from helix.adapters.models.choice import wire_of
wire_of("boto3", {}).client({}, None)
""",
    "openai": """
import asyncio
from helix.adapters.models.choice import wire_of
async def main(): wire_of("openai", {})._clients.client(api_key="x")
asyncio.run(main())
""",
    "anthropic": """
import asyncio
from helix.adapters.models.choice import wire_of
async def main(): wire_of("anthropic", {})._clients.client(api_key="x")
asyncio.run(main())
""",
    "litellm": "from helix.adapters.models.choice import wire_of; wire_of('litellm', {})",
}
MODELS = {"boto3": "bedrock/...", "openai": "openai/...", "anthropic": "anthropic/...", "litellm": "all others"}


def probe(code: str) -> tuple[float, float, float, bool]:
    done = subprocess.run([sys.executable, "-c", PROBE.format(code=code)], capture_output=True, text=True, check=True)
    took, used, size, litellm = done.stdout.split()
    return float(took), float(used), float(size), litellm == "True"


def medians(cases: dict[str, str]) -> dict[str, tuple[float, float, float]]:
    """Return wall time in ms, CPU time in ms and memory in MB; the runs of the cases are interleaved."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in cases}
    for _ in range(RUNS):
        for name, code in cases.items():
            *figures, litellm = probe(code)
            assert litellm == (name == "litellm"), f"{name}: litellm was imported"
            found[name].append((figures[0], figures[1], figures[2]))
    return {
        name: tuple(statistics.median(column) for column in zip(*rows, strict=True)) for name, rows in found.items()
    }


def main() -> None:
    installed = {}
    for package in READY:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            print(f"{package} is not installed: left out", file=sys.stderr)
    ready = {name: READY[name] for name in installed}
    found = medians({**CASES, **ready, ALONE: "import openai; openai.AsyncOpenAI(api_key='x')"})
    bare = found["bare interpreter"][2]
    lines = [
        "# Cost of importing",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, .pyc present; `python bench/imports.py`. "
        f"Medians of {RUNS} fresh processes, on {os.cpu_count()} CPUs with a load of {os.getloadavg()[0]:.1f}.",
        "",
        "| what | ms | CPU ms | MB over bare |",
        "|---|---:|---:|---:|",
        *(f"| {name} | {found[name][0]:.0f} | {found[name][1]:.0f} | {found[name][2] - bare:.1f} |" for name in CASES),
        "",
        "## Until a model can be called",
        "",
        "Each process imports only the adapter and its package, and creates the client.",
        "",
        "| models | package | ms | CPU ms | MB over bare | CPU, litellm = 1 |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, number in installed.items():
        took, used, size = found[name]
        share = f"{used / found['litellm'][1]:.2f}"
        lines.append(f"| `{MODELS[name]}` | {name} {number} | {took:.0f} | {used:.0f} | {size - bare:.1f} | {share} |")
    took, used, size = found[ALONE]
    lines += ["", f"The openai package alone, with its client: {took:.0f} ms, {used:.0f} CPU ms, {size - bare:.1f} MB."]
    table = "\n".join(lines).replace("`all others`", "all others") + "\n"
    print(table)
    target = Path(__file__).parent / "results" / "imports.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(table)


if __name__ == "__main__":
    main()
