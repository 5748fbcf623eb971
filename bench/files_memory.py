"""Measure the memory of a model call with a document over the same call without it, for each interface: the peak of
resident memory of fresh processes, whose server is another process. Values are medians. It takes some minutes.

python bench/files_memory.py [MB]     prints the table, and saves it to bench/results/files_memory.md (20 MB)
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "layers/core/python")]

from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Dialect, DialectServer, Says  # noqa: E402
from tests.support.responses_dialect import RESPONSES  # noqa: E402

RUNS = 3
LIMIT_MB = 100
CASES: dict[str, tuple[Dialect, str, str]] = {
    "OpenAI, Responses": (RESPONSES, "native", RESPONSES.model),
    "OpenAI, Chat Completions": (OPENAI, "native", OPENAI.model),
    "Anthropic, Messages": (ANTHROPIC, "native", ANTHROPIC.model),
    "Bedrock, Converse": (BEDROCK, "native", BEDROCK.model),
    "litellm, Chat Completions": (OPENAI, "litellm", OPENAI.model),
    "litellm, Messages": (ANTHROPIC, "litellm", ANTHROPIC.model),
}
CALL = """
import asyncio, hashlib, json, sys
sys.path[:0] = json.loads(sys.argv[1])
from dataclasses import replace
from tests.support.request_files import Stored, pdf
from tests.support_litellm import request
from helix.adapters.models.adapter import ModelAdapter
from helix.core.messages import UserMessage
from helix.core.steps import TextStepResult

model, adapter, config, options, mb = json.loads(sys.argv[2])
part = pdf(data=b"%PDF").model_copy(update={"size": mb << 20})

class Fresh(Stored):
    async def read(self, file):
        return b"x" * (mb << 20)

def ask(files):
    said = [UserMessage(content="read", files=files)]
    made = request(said, provider_options=options, model=model, adapter=adapter, **config)
    return replace(made, files=Fresh())

async def main():
    made = ModelAdapter()
    assert isinstance(await made.generate_step(ask([])), TextStepResult)
    if mb:
        assert isinstance(await made.generate_step(ask([part])), TextStepResult)
    print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024)

asyncio.run(main())
"""


def peak(dialect: Dialect, adapter: str, model: str, mb: int) -> float:
    """Return the peak of a process that asks once without a document and, unless `mb` is 0, once with it."""
    with DialectServer(dialect, [Says("fine", stop="end_turn")] * 2) as server:
        options = dialect.options(server.origin)
        given = [json.dumps(sys.path[:2]), json.dumps([model, adapter, dialect.config, options, mb])]
        done = subprocess.run([sys.executable, "-c", CALL, *given], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def more(case: tuple[Dialect, str, str], mb: int) -> float:
    """Return the megabytes that the document adds to the peak."""
    return statistics.median(peak(*case, mb) - peak(*case, 0) for _ in range(RUNS))


def main() -> None:
    mb = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    lines = [
        f"# The memory of a document of {mb} MB in a model call",
        "",
        "| Interface | MB above the call without it |",
    ]
    lines.append("|---|---|")
    for name, case in CASES.items():
        lines.append(f"| {name} | {more(case, mb):.0f} |")
        print(lines[-1], flush=True)
    text = "\n".join(
        [*lines, "", f"Helix's own adapters stay below {LIMIT_MB} MB. litellm makes copies of its own.", ""]
    )
    Path(__file__).with_name("results").joinpath("files_memory.md").write_text(text)


if __name__ == "__main__":
    main()
