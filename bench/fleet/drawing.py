"""Draw the day: arrivals and waiting runs, allowed and active runs, and cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes

from .judging import hourly
from .load import HOUR, Load
from .replay import Told

matplotlib.use("svg")
import matplotlib.pyplot as plt

INK, BLUE, ORANGE, RED, GREY = "#333333", "#1f77b4", "#ff7f0e", "#c0392b", "#b0b0b0"
OURS, SOURCE = "govern", "as in the source"
SLOTS = [slot / 12 for slot in range(289)]
"""Intervals of five minutes."""
SOURCE_STYLE = {"color": INK, "lw": 0.6, "ls": ":", "label": "limit, as in the source"}


def draw(load: Load, days: Mapping[str, Told], path: Path) -> None:
    """Draw the picture. `days` has the results by ruler."""
    plt.rcParams.update({"svg.hashsalt": "helix", "font.size": 8, "svg.fonttype": "none"})
    figure, axes = plt.subplots(4, 1, figsize=(9, 9.5), sharex=True, layout="constrained")
    ours, source = days[OURS], days[SOURCE]
    _came(axes[0], load, ours)
    _allowed(axes[1], "support", ours, source)
    _allowed(axes[2], "crawler", ours, source)
    _cost(axes[3], load, ours, source)
    for axis in axes:
        for window in load.throttled:
            axis.axvspan(window.start / HOUR, window.end / HOUR, color=RED, alpha=0.10, lw=0)
        axis.axvspan(load.runaway[0] / HOUR, load.runaway[1] / HOUR, color=ORANGE, alpha=0.10, lw=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=6, fontsize=7, frameon=False)
    axes[-1].set_xticks(range(0, 25, 2))
    axes[-1].set_xlim(0, 24)
    axes[-1].set_xlabel("hour of the day; red: the provider throttles; orange: the crawler runs away")
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


def _came(axis: Axes, load: Load, told: Told) -> None:
    by_slot = Counter(int(arrival.at // 300) for arrival in load.arrivals)
    rates = [by_slot[slot] / 5 for slot in range(288)]
    axis.stairs(rates, SLOTS, fill=True, color=GREY, label="runs a minute")
    queue = _changes((at, queued) for at, agent, _, _, queued in told.looks if agent == "support")
    axis.step(*queue, where="post", color=BLUE, lw=0.8, label="support: waiting")
    axis.set_title("Arriving and waiting runs under govern", loc="left", color=INK)


def _allowed(axis: Axes, agent: str, ours: Told, source: Told) -> None:
    working: defaultdict[int, list[int]] = defaultdict(list)
    for at, name, _, running, _ in ours.looks:
        if name == agent:
            working[int(at // 300)].append(running)
    shown = [sum(working[slot]) / max(1, len(working[slot])) for slot in range(288)]
    axis.stairs(shown, SLOTS, fill=True, color=BLUE, alpha=0.25, label="at work, govern")
    for told, style in ((ours, {"color": BLUE, "lw": 1, "label": "limit, govern"}), (source, SOURCE_STYLE)):
        limits = _changes((at, limit) for at, name, limit, _, _ in told.looks if name == agent)
        axis.step(*limits, where="post", **style)
    axis.set_title(f"{agent}: runs at once", loc="left", color=INK)


def _cost(axis: Axes, load: Load, ours: Told, source: Told) -> None:
    for agent, color in (("support", BLUE), ("crawler", ORANGE)):
        for told, style, whose in ((ours, "-", "govern"), (source, ":", "source")):
            spent = hourly(told, agent)
            dollars = [spent.get(hour, 0.0) for hour in range(24)]
            axis.stairs(dollars, range(25), color=color, ls=style, lw=1.2, label=f"{agent}, {whose}")
        limit = next(kind.hour_usd for kind in load.kinds if kind.name == agent)
        axis.axhline(limit, color=color, lw=0.6, ls="--", label="its budget")
    axis.set_yscale("symlog", linthresh=1)
    axis.set_ylim(0)
    axis.set_title("US dollars an hour", loc="left", color=INK)


def _changes(points: Iterable[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Return hours and values without repetitions, for a smaller picture."""
    hours: list[float] = []
    values: list[int] = []
    for at, value in points:
        if not values or values[-1] != value:
            hours.append(round(at / HOUR, 4))
            values.append(value)
    return [*hours, 24.0], [*values, values[-1]]
