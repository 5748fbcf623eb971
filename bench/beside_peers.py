"""Compare Helix with other frameworks: each does the same work through its documented API, in one interleaved run.

    python bench/beside_peers.py                  prints the tables, saves them to bench/results/peers.md (12 minutes)
    python bench/beside_peers.py --rounds 7 --steps 1000 --sessions 10000 --time-out 900        on a calm machine
    python bench/beside_peers.py --only words,crash --peers langgraph,dbos        prints a part, saves nothing

Each peer has its own environment under build/peers, created from its dependency group in pyproject.toml. Each job is a
process with a timeout. Each round runs all contenders in turn, so ratios are valid on a busy machine. If a peer cannot be
installed or run, the table gives the reason.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH / "peers"))

import measures  # noqa: E402
from contenders import Contender, chosen  # noqa: E402
from measures import Options, Row  # noqa: E402

Measure = Callable[[Sequence[Contender], Options], Iterable[Row]]
MEASURES: dict[str, tuple[str, str, Measure]] = {
    "words": (
        "Words: ms from the model's delta to the reader in the same process",
        "Each delta is the time at which it was sent. Stores are on disk.",
        measures.first_words,
    ),
    "steps": (
        "A durable step: ms from one model call to the next",
        "One tool call with a 1 KB result, and a model that takes no time. CPU includes all threads of the process.",
        measures.durable_steps,
    ),
    "ready": (
        "Ready: from the start of the interpreter to the first model call",
        "The values of a bare interpreter are subtracted. Memory is resident memory when the request arrives.",
        measures.ready,
    ),
    "disk": ("Disk: one-turn sessions", "Blocks of all files, including write-ahead logs.", measures.disk),
    "aws": (
        "Calls to DynamoDB",
        "Calls are counted on the wire, and units by DynamoDB's rules for items. Helix uses the deployed functions with an "
        "inline tool, and all processes are new. Its calls include the caller's `execute` and `result`; the readers' "
        "stream is counted separately. Strands uses S3, and the durable SDK its own service.",
        measures.aws,
    ),
    "crash": (
        "SIGKILL, then a new process resumes",
        '"Goes on" means that no completed work was repeated or bought again, and that the history is sound. '
        "All contenders repeat the interrupted call.",
        measures.crashes,
    ),
    "race": (
        "Two processes, one session, at once",
        "The second turn begins while the first waits for its model.",
        measures.races,
    ),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Helix beside other frameworks.")
    parser.add_argument("--rounds", type=int, default=3, help="of each timed measure (default 3)")
    parser.add_argument("--steps", type=int, default=400, help="the last step that is measured, once (default 400)")
    parser.add_argument("--sessions", type=int, default=1000, help="of the measure of disk (default 1,000)")
    parser.add_argument("--time-out", type=float, default=180, help="seconds for each process (default 180)")
    parser.add_argument("--peers", default="", help="keys, with commas between (default all)")
    parser.add_argument("--only", default="", help=f"measures, with commas between: {', '.join(MEASURES)}")
    given = parser.parse_args()
    if unknown := set(words(given.only)) - set(MEASURES):
        parser.error(f"no such measure: {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    return given


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def table(among: Sequence[Contender], rows: Iterable[Row]) -> Iterator[str]:
    yield "| | " + " | ".join(contender.name for contender in among) + " |"
    yield "|---|" + "---:|" * len(among)
    for name, cells in rows:
        texts = [cells.get(contender.key, "").replace("|", "/") for contender in among]
        yield f"| {name} | " + " | ".join(texts) + " |"


def contenders_table(among: Sequence[Contender]) -> Iterator[str]:
    yield "| | versions | scripted model | store on disk |"
    yield "|---|---|---|---|"
    for contender in among:
        versions = contender.versions()
        yield f"| {contender.name} | {contender.broken or versions} | {contender.model} | {contender.store} |"


def section(name: str, among: Sequence[Contender], options: Options) -> list[str]:
    """Run the measures. If one fails, report it and continue with the others."""
    title, note, measure = MEASURES[name]
    try:
        rows = [*table(among, measure(among, options))]
    except Exception as error:
        traceback.print_exc()
        rows = [f"Failed: {type(error).__name__}: {error}"]
    return ["", f"## {title}", "", *rows, "", note]


def main() -> None:
    given = arguments()
    options = Options(given.rounds, given.steps, given.sessions, given.time_out)
    among = chosen(words(given.peers))
    load = os.getloadavg()[0]
    for contender in among:
        contender.install()
    command = " ".join(["python bench/beside_peers.py", *sys.argv[1:]])
    lines = [
        "# Helix beside other frameworks",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f} before; "
        f"{options.rounds} rounds; `{command}`.",
        "",
        "Values in brackets are the ratio of the peer to Helix, as the median over the rounds. Below 1 the peer is ahead.",
        "",
        *contenders_table(among),
    ]
    print("\n".join(lines), flush=True)
    for name in words(given.only) or MEASURES:
        found = section(name, among, options)
        print("\n".join(found), flush=True)
        lines += found
    if not given.only and not given.peers:
        (BENCH / "results" / "peers.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
