"""Every metric of every alarm and dashboard in the templates, as (namespace, name, dimensions, statistic)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.infra.templates import Assembly, Template, text


@dataclass(frozen=True)
class Observed:
    """A metric in use. `dimensions` have references as text (`<LogicalId>`). `where` is the alarm's name, or the dashboard
    and the graph. `axis` is the label of the graph's axis."""

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
    """Return the alarms by name, with the template that has each."""
    return {a["AlarmName"]: (t, a) for t in assembly.templates for a in t.of("CloudWatch::Alarm").values()}


def of_alarms(assembly: Assembly) -> Iterator[Observed]:
    for name, (_, alarm) in alarms(assembly).items():
        dimensions = frozenset((d["Name"], text(d["Value"])) for d in alarm.get("Dimensions", []))
        statistic = alarm.get("Statistic") or alarm["ExtendedStatistic"]
        yield Observed(name, alarm["Namespace"], alarm["MetricName"], dimensions, statistic, alarm["Period"])


def dashboards(template: Template) -> dict[str, dict[str, Any]]:
    """Return the bodies of the dashboards by name."""
    found = template.of("CloudWatch::Dashboard").values()
    return {d["DashboardName"]: json.loads(text(d["DashboardBody"])) for d in found}


def of_dashboards(template: Template) -> Iterator[Observed]:
    for name, body in dashboards(template).items():
        yield from of_body(name, body)


def of_body(name: str, body: dict[str, Any]) -> Iterator[Observed]:
    for widget in body["widgets"]:
        if widget["type"] == "metric":
            shown = widget["properties"]
            yield from _lines(f"{name}: {shown['title']}", shown)


def _lines(where: str, shown: dict[str, Any]) -> Iterator[Observed]:
    for line in shown["metrics"]:
        if "expression" in line[0]:
            yield _found(where, line[0], shown["yAxis"]["left"]["label"])
            continue
        options = line[-1] if isinstance(line[-1], dict) else {}
        namespace, name, *pairs = [part for part in line if isinstance(part, str)]
        dimensions = frozenset(zip(pairs[::2], pairs[1::2], strict=True))
        statistic, period = options.get("stat", "Average"), options.get("period", 300)
        yield Observed(where, namespace, name, dimensions, statistic, period, shown["yAxis"]["left"]["label"])


def _found(where: str, line: dict[str, Any], axis: str) -> Observed:
    """Return the metrics that a search finds. A dimension that it does not name has the value `*`, or the words of a search
    by words."""
    pattern = r"SEARCH\('\{(.+)\} MetricName=\"(\w+)\" (.+)', '(\w+)', (\d+)\)"
    schema, name, terms, statistic, period = re.fullmatch(pattern, line["expression"]).groups()  # type: ignore[union-attr]
    namespace, *dimensions = schema.split(",")
    exactly: dict[str, str] = dict(re.findall(r'(\w+)="([^"]+)"', terms))
    known = frozenset((dimension, exactly.get(dimension, "*" if exactly else terms)) for dimension in dimensions)
    return Observed(where, namespace, name, known, statistic, int(period), axis)


def of_everything(assembly: Assembly) -> list[Observed]:
    return [*of_alarms(assembly), *of_dashboards(assembly.main)]
