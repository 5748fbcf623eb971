"""A day of load through the real policies, admission and budgets: who waits how long, what it costs, and whether limits go
back and forth.

    python bench/fleet_day.py         prints the table, saves it to bench/results/fleet_day.md, draws docs/img/fleet_day.svg
    python bench/fleet_day.py SEED    prints the table of another day

The day is made of a seed (`bench/fleet/load.py`) and replayed with a clock that jumps (`bench/fleet/replay.py`), once for
each of those who may move the limits: `govern` as deployed, fixed limits, and the policies as their source has them
(`bench/fleet/rulers.py`). It fails when `govern` goes back and forth, scales up into throttling, or lets a budget be
passed.
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
    yield "windows of budgets that were passed", [str(len(overruns(load, day))) for day in told]
    yield "worst of them", [_worst(load, day) for day in told]
    yield "changes of limits", [str(len(day.moves)) for day in told]
    yield "up, down and up within 10 minutes", [str(len(oscillations(day))) for day in told]
    yield "calls that the provider refused", [str(len(day.refused_at)) for day in told]
    yield "steps up into throttling", [str(len(ups_into_throttling(load, day))) for day in told]
    yield "runs failed by throttling", [str(_ended(day, "failed: throttled")) for day in told]
    yield "runs stopped by a budget", [str(_ended(day, "stopped: budget")) for day in told]
    yield "runs that waited an hour, in vain", [str(_ended(day, "refused: waited too long")) for day in told]


def _ended(day: Told, how: str) -> int:
    return sum(count for (_, ended), count in day.ends.items() if ended == how)


def _worst(load: Load, day: Told) -> str:
    found = max(overruns(load, day), key=lambda one: one.spent / one.limit, default=None)
    return (
        "" if found is None else f"${found.spent:.0f} of ${found.limit:.0f} ({found.agent}, {found.window.split()[0]})"
    )


NOTES = """\
`support` serves people: a working day with bursts of 25 to 60 runs within minutes, budgets of $25 an hour and $250 a day,
1 to 12 runs at once. `crawler`, 1 to 6 at once, runs away between 13:24 and 15:24: ever more runs, whose contexts grow with
each call; its budgets are $4 an hour and $20 a day. The provider throttles from 10:12 to 10:54 (3 calls at once) and from
16:30 to 16:48 (2). All columns have the same runs, queue (an hour's patience) and options; only under `govern` are budgets
enforced, as they are in the deployed app, and is the provider looked at. Waits are of runs that began, or waited in vain.
The crawler waits for its money under `govern`: once that is spent it is closed until the next hour or day.

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
