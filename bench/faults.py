"""Inject one fault into a run on AWS's adapters, at each call in turn, and compare transcript, rows and stream with a run
without it.

    python bench/faults.py                 prints the matrix and saves it to bench/results/faults.md (some ten minutes)

The run has two tools and a sub-agent. The deployed state machine's definition drives it, on moto. All attempts of an
affected call fail, so the delivery fails and is repeated. A lost response means that the call took effect. Differences are
listed, and the exit status is then 1.
"""

from __future__ import annotations

import logging
import platform
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.faulty_aws import KINDS, matrix  # noqa: E402


def main() -> int:
    logging.disable(logging.CRITICAL)  # faults are logged, hundreds of times
    warnings.simplefilter("ignore", DeprecationWarning)
    struck, wrong = matrix(KINDS)
    operations = sorted({operation for _, operation in struck})
    lines = [
        "# Faults of AWS in a run",
        "",
        f"Python {platform.python_version()}; `python bench/faults.py`. One run with two tools and a sub-agent for each",
        "call that fails. The numbers are runs.",
        f"{len(wrong)} problems:" if wrong else "All runs had the same transcript, and consistent rows and streams.",
        "",
        f"| operation | {' | '.join(KINDS)} |",
        f"|---|{'---:|' * len(KINDS)}",
        *(f"| {o} | {' | '.join(str(struck.get((kind, o), '')) for kind in KINDS)} |" for o in operations),
        f"| **all** | {' | '.join(str(sum(n for (k, _), n in struck.items() if k == kind)) for kind in KINDS)} |",
        "",
        *(f"- {problem}" for problem in wrong),
    ]
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    (ROOT / "bench" / "results" / "faults.md").write_text(text, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
