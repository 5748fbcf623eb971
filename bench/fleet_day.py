"""Simulate a day of load on the real policies, admission and budgets: waiting times, cost, and oscillation of the limits.

    python bench/fleet_day.py         prints the table, saves it to bench/results/fleet_day.md, draws docs/img/fleet_day.svg
    python bench/fleet_day.py SEED    prints the table of another day

A seed generates the day (`bench/fleet/load.py`), and a jumping clock replays it (`bench/fleet/replay.py`) once for each
policy that sets the limits: `govern` as deployed, fixed limits, and the policies of the original source
(`bench/fleet/rulers.py`). The bench fails if `govern` oscillates, scales up into throttling, or lets runs exceed a budget.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from fleet.drawing import OURS, SOURCE, draw
from fleet.judging import oscillations, overruns, percentile, slot_hours, ups_into_throttling, utilization
from fleet.load import Load, make_day
from fleet.replay import Replay, Ruler, Told
from fleet.rulers import AsInTheSource, Fixed, Governed

ROOT = Path(__file__).parents[1]
SEED = 7


def rulers() -> dict[str, Ruler]:
    return {
        OURS: Governed(),
        "fixed: a quarter of the maximum": Fixed(0.25),
        "fixed: half": Fixed(0.5),
        "fixed: the maximum": Fixed(1.0),
        SOURCE: AsInTheSource(),
    }


def table(load: Load, days: Mapping[str, Told], seconds: float) -> Iterator[str]:
    yield "# A replayed day of load"
    yield ""
    yield (
        f"{len(load.arrivals)} runs, {sum(len(a.calls) for a in load.arrivals)} model calls if all went through; seed "
        f"{load.seed}; Python {platform.python_version()}; `python bench/fleet_day.py` ({seconds:.0f} s)."
    )
    yield ""
    names = " | ".join(days)
    yield f"| | {names} |"
    yield "|---|" + "---:|" * len(days)
    for title, cells in rows(load, days):
        yield f"| {title} | {' | '.join(cells)} |"
    yield ""
    yield NOTES


def rows(load: Load, days: Mapping[str, Told]) -> Iterator[tuple[str, list[str]]]:
    told = list(days.values())
    for agent in ("support", "crawler"):
        for share in (0.5, 0.95):
            title = f"{agent}: wait, p{share * 100:.0f}, s"
            yield title, [f"{percentile(day.waits[agent], share):.0f}" for day in told]
        yield f"{agent}: slot hours allowed", [f"{slot_hours(day, agent):.0f}" for day in told]
        yield f"{agent}: of these in use", [f"{utilization(day, agent):.0%}" for day in told]
        yield f"{agent}: runs completed", [f"{day.ends[agent, 'completed']}" for day in told]
        yield f"{agent}: US dollars", [f"{day.spent(agent):.2f}" for day in told]
    yield "exceeded budget windows", [str(len(overruns(load, day))) for day in told]
    yield "worst of them", [_worst(load, day) for day in told]
    yield "changes of limits", [str(len(day.moves)) for day in told]
    yield "up, down and up within 10 minutes", [str(len(oscillations(day))) for day in told]
    yield "calls that the provider refused", [str(len(day.refused_at)) for day in told]
    yield "steps up into throttling", [str(len(ups_into_throttling(load, day))) for day in told]
    yield "runs failed by throttling", [str(_ended(day, "failed: throttled")) for day in told]
    yield "runs stopped by a budget", [str(_ended(day, "stopped: budget")) for day in told]
    yield "runs that gave up after an hour", [str(_ended(day, "refused: waited too long")) for day in told]


def _ended(day: Told, how: str) -> int:
    return sum(count for (_, ended), count in day.ends.items() if ended == how)


def _worst(load: Load, day: Told) -> str:
    found = max(overruns(load, day), key=lambda one: one.spent / one.limit, default=None)
    return (
        "" if found is None else f"${found.spent:.0f} of ${found.limit:.0f} ({found.agent}, {found.window.split()[0]})"
    )


NOTES = """\
`support` serves people on a working day, in bursts of 25 to 60 runs within minutes. It has budgets of $25 an hour and $250
a day, and 1 to 12 runs at once. `crawler`, with 1 to 6 runs at once, gets out of control between 13:24 and 15:24: it starts
ever more runs, whose contexts grow with each call. Its budgets are $4 an hour and $20 a day. The provider throttles from
10:12 to 10:54 (3 calls at once) and from 16:30 to 16:48 (2). All columns have the same runs, queue (a run waits at most an
hour) and options. Only `govern` enforces budgets, as in the deployed app, and takes the provider into account. Waits are
those of runs that began or gave up. Under `govern` the crawler also waits for its budget: once that is spent, it is stopped
until the next hour or day.

![The day](../../docs/img/fleet_day.svg)"""


def judge(load: Load, day: Told) -> None:
    assert not (found := oscillations(day)), f"it goes back and forth: {found[0]}"
    assert not (passed := overruns(load, day)), f"a budget was passed: {passed[0]}"
    assert not (ups := ups_into_throttling(load, day)), f"it scales up into throttling: {ups[0]}"


def main() -> None:
    logging.disable(logging.WARNING)
    begun, load = time.perf_counter(), make_day(int(sys.argv[1]) if len(sys.argv) > 1 else SEED)
    days = {name: asyncio.run(Replay(load, ruler).play()) for name, ruler in rulers().items()}
    judge(load, days[OURS])
    text = "\n".join(table(load, days, time.perf_counter() - begun)) + "\n"
    print(text)
    if len(sys.argv) == 1:
        (ROOT / "bench" / "results" / "fleet_day.md").write_text(text)
        draw(load, days, ROOT / "docs" / "img" / "fleet_day.svg")


if __name__ == "__main__":
    main()
