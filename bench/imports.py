"""What importing Helix costs over a bare interpreter: time and resident memory, medians over fresh processes.

python bench/imports.py               prints the table and saves it to bench/results/imports.md
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
from pathlib import Path

RUNS = 9
PROBE = """
import time; start = time.perf_counter()
{code}
took = time.perf_counter() - start
peak = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmRSS"))
import sys
print(took * 1000, peak / 1024, "litellm" in sys.modules)
"""
CASES = {
    "bare interpreter": "pass",
    "import helix": "import helix",
    "all of an agent file": "from helix import Agent, LLMConfig, ToolContext, create_sub_agent_tool, tool",
    "and the executor": "from helix import Agent, LLMConfig, LocalExecutor, tool; LocalExecutor(':memory:')",
}


def probe(code: str) -> tuple[float, float]:
    times, sizes = [], []
    for _ in range(RUNS):
        out = subprocess.run(
            [sys.executable, "-c", PROBE.format(code=code)], capture_output=True, text=True, check=True
        ).stdout.split()
        assert out[2] == "False", "litellm was imported"
        times.append(float(out[0]))
        sizes.append(float(out[1]))
    return statistics.median(times), statistics.median(sizes)


def main() -> None:
    lines = [
        "# Cost of importing",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, .pyc present; `python bench/imports.py`.",
        "",
        "| what | ms | MB over bare |",
        "|---|---:|---:|",
    ]
    bare = 0.0
    for name, code in CASES.items():
        took, size = probe(code)
        bare = bare or size
        lines.append(f"| {name} | {took:.0f} | {size - bare:.1f} |")
    table = "\n".join(lines) + "\n"
    print(table)
    target = Path(__file__).parent / "results" / "imports.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(table)


if __name__ == "__main__":
    main()
