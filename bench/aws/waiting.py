"""The cost of a stage while its runs wait for models, and at rest: list prices, and the templates of the stage."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from helix.core import aws_prices as prices
from helix.core.ledger import NANOS, total
from helix.fleet.idle import idle_lines

ROOT = Path(__file__).parents[2]
MEMORIES_MB = {"litellm": 1024, "openai, anthropic, bedrock": 512}
ANSWERS_S = (2, 10, 60)
STAGES = {"Kinesis, fan-out": {}, "Kinesis, polled": {"enhanced_fan_out": "false"}, "direct": {"streaming": "direct"}}


def waiting_table(own_s: float) -> list[str]:
    """Price Lambda's time for the model calls of 1,000 steps."""
    lines = [
        f"| 1,000 model calls of | {' | '.join(f'{s} s' for s in ANSWERS_S)} |",
        "|---|" + "---:|" * len(ANSWERS_S),
    ]
    for packages, memory in MEMORIES_MB.items():
        usd = [1000 * (seconds + own_s) * memory / 1024 * prices.LAMBDA_GB_S for seconds in ANSWERS_S]
        lines.append(f"| `call_model` with {packages}: {memory} MB | {' | '.join(f'${one:.3f}' for one in usd)} |")
    return lines


def idle_table() -> list[str]:
    """Return dollars a month, by charge."""
    stages = {name: _by_service(context) for name, context in STAGES.items()}
    services = sorted({service for one in stages.values() for service in one})
    lines = [f"| a month at rest | {' | '.join(stages)} |", "|---|" + "---:|" * len(stages)]
    for service in services:
        lines.append(f"| {service} | {' | '.join(f'${one.get(service, 0):.2f}' for one in stages.values())} |")
    return [*lines, f"| **all of it** | {' | '.join(f'**${sum(one.values()):.2f}**' for one in stages.values())} |"]


def _by_service(context: dict[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in idle_lines(_templates(context)):
        found[line.service] = found.get(line.service, 0.0) + total([line]) / NANOS
    return found


def _templates(context: dict[str, str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        (layer := Path(folder, "deps", "python")).mkdir(parents=True)
        (layer / "packages.py").write_text("")
        pairs = [word for key, value in context.items() for word in ("-c", f"{key}={value}")]
        command = [sys.executable, "-m", "helix.infra.app", "-c", f"deps={layer.parent}", *pairs, "-o", f"{folder}/out"]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return [json.loads(file.read_text()) for file in Path(folder, "out").glob("*.template.json")]
