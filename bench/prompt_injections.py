"""Play AgentDojo's 949 pairs of a user's task and an injection with a model that obeys every injection it reads.

    python bench/prompt_injections.py                     prints the tables and saves them to bench/results/agentdojo.md
    python bench/prompt_injections.py --suites banking    prints them for some of the suites

It installs the package `agentdojo` into an environment of its own, build/agentdojo (300 MB). No real model is called. The
model makes the calls that the package lists for the user's task. Once it has read an injection, it first makes the calls
that reach the injection's goal. All 949 pairs in seven configurations take 8 minutes of CPU time. The modules of
`bench/injections` explain the parts: `obedient` the model, `playing` the reviewers, `settings` the guards, `unscripted` the
calls of eight injections for which the package lists none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import tomllib
from datetime import date
from pathlib import Path

BENCH = Path(__file__).parent
ROOT = BENCH.parent
sys.path.insert(0, str(BENCH))

from injections.report import tables  # noqa: E402

ENVIRONMENT = ROOT / "build" / "agentdojo"
SUITES = ("workspace", "travel", "banking", "slack")
PAIRS = 949
INTRO = """# Prompt injections: what approvals and guards stop

`agentdojo` {version}, benchmark v1.2.2: {pairs} pairs of a user's task and an injection, and {tasks} tasks without one;
{day}, Python {python}; `python bench/prompt_injections.py`, {minutes} minutes of CPU time.

A scripted model obeys every injection that it reads, so the numbers describe the defence alone. The package judges whether
a task was done and whether an injection reached its goal. For {unscripted} of the pairs the package lists no calls that
reach the goal; `bench/injections/unscripted.py` has them.

- **Approvals**: every tool that changes or sends something requires one. Reading a web page does not.
- **Guards**: `bench/injections/settings.py`. They ask about destinations that the user did not name, and block links to
  foreign hosts, payments above 5,000, secrets, and passwords that the user did not name. None knows an injection.
- **An attentive reviewer** approves exactly the calls that perform the user's task, with the same arguments. **A reviewer
  who approves all** reads nothing. **No reviewer**: every question counts as denied.
- The model gives up the user's task if one of its calls is refused.

"""


def install() -> str:
    """Create the environment if it does not match pyproject.toml. Return the version of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["dependency-groups"]["agentdojo"], *project["project"]["dependencies"]]
    stamp = ENVIRONMENT / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != wanted:
        print(f"installing {', '.join(wanted)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        pip = [ENVIRONMENT / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True)
        stamp.write_text(json.dumps(wanted))
    return wanted[0].partition("==")[2]


def main() -> int:
    parser = argparse.ArgumentParser(description="Play AgentDojo's injections.")
    parser.add_argument("--suites", default=",".join(SUITES), help="some of the suites, with commas between them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="the number of processes")
    options = parser.parse_args()
    suites = options.suites.split(",")
    version = install()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.jsonl"
        command = [ENVIRONMENT / "bin" / "python", "-m", "injections.inside", file, str(options.processes), *suites]
        paths = os.pathsep.join(map(str, (BENCH, ROOT / "layers" / "core" / "python")))
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths})
        outcomes = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return report(outcomes, version, seconds, save=set(suites) == set(SUITES))


def report(outcomes: list[dict[str, object]], version: str, seconds: float, *, save: bool) -> int:
    first = [one for one in outcomes if one["configuration"] == outcomes[0]["configuration"]]
    pairs = [one for one in first if one["injection"]]
    own = sum(one["app"] == "workspace" and int(str(one["injection"]).split("_")[-1]) >= 6 for one in pairs)
    head = INTRO.format(
        version=version,
        day=date.today(),
        python=platform.python_version(),
        pairs=len(pairs),
        tasks=len(first) - len(pairs),
        minutes=round(seconds / 60),
        unscripted=own,
    )
    text = head + tables(outcomes)
    print(text)
    if save:
        (BENCH / "results" / "agentdojo.md").write_text(text, encoding="utf-8")
    problem = save and len(pairs) != PAIRS
    if problem:
        print(f"the package has {len(pairs)} pairs, not {PAIRS}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
