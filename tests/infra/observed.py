"""What the templates look at: every metric of every alarm and dashboard, as (namespace, name, dimensions, statistic)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.infra.templates import Assembly, Template, text


@dataclass(frozen=True)
class Observed:
    """`dimensions` with references as text (`<LogicalId>`). `where`: the alarm's name, or dashboard and graph. `axis`: what
    the graph's axis is called."""

    where: str
    namespace: str
    name: str
    dimensions: frozenset[tuple[str, str]]
    statistic: str
    period: int
    axis: str = ""

    @property
    def dimension_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.dimensions)


def alarms(assembly: Assembly) -> dict[str, tuple[Template, dict[str, Any]]]:
    """By name, with the template that has it."""
    return {a["AlarmName"]: (t, a) for t in assembly.templates for a in t.of("CloudWatch::Alarm").values()}


def of_alarms(assembly: Assembly) -> Iterator[Observed]:
    for name, (_, alarm) in alarms(assembly).items():
        dimensions = frozenset((d["Name"], text(d["Value"])) for d in alarm.get("Dimensions", []))
        statistic = alarm.get("Statistic") or alarm["ExtendedStatistic"]
        yield Observed(name, alarm["Namespace"], alarm["MetricName"], dimensions, statistic, alarm["Period"])


def dashboards(template: Template) -> dict[str, dict[str, Any]]:
    """Bodies by name."""
    found = template.of("CloudWatch::Dashboard").values()
    return {d["DashboardName"]: json.loads(text(d["DashboardBody"])) for d in found}


def of_dashboards(template: Template) -> Iterator[Observed]:
    for name, body in dashboards(template).items():
        for widget in body["widgets"]:
            if widget["type"] == "metric":
                shown = widget["properties"]
                yield from _lines(f"{name}: {shown['title']}", shown)


def _lines(where: str, shown: dict[str, Any]) -> Iterator[Observed]:
    for line in shown["metrics"]:
        options = line[-1] if isinstance(line[-1], dict) else {}
        namespace, name, *pairs = [part for part in line if isinstance(part, str)]
        dimensions = frozenset(zip(pairs[::2], pairs[1::2], strict=True))
        statistic, period = options.get("stat", "Average"), options.get("period", 300)
        yield Observed(where, namespace, name, dimensions, statistic, period, shown["yAxis"]["left"]["label"])


def of_everything(assembly: Assembly) -> list[Observed]:
    return [*of_alarms(assembly), *of_dashboards(assembly.main)]
