"""Graph widgets for the dashboards.

Law: a graph has one unit, and its axis is labelled with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import aws_cloudwatch as cloudwatch

from helix.core.measures import UNITS
from helix.infra.metrics import helix_metric, helix_metric_by_agent
from helix.infra.names import Names

THIRD, HEIGHT = 8, 6
"""The width of a graph, in columns of 24, and its height in rows."""
AXES: Mapping[str, str] = {"Count": "count", "Milliseconds": "ms", "None": "USD", "Percent": "%"}
"""The label of an axis by unit. Only measures in dollars have no unit in CloudWatch."""


def graph(title: str, metrics: Sequence[cloudwatch.IMetric], unit: str = "Count") -> cloudwatch.GraphWidget:
    axis = cloudwatch.YAxisProps(label=AXES[unit], show_units=False, min=0)
    return cloudwatch.GraphWidget(title=title, left=list(metrics), left_y_axis=axis, width=THIRD, height=HEIGHT)


def heading(text: str) -> cloudwatch.TextWidget:
    return cloudwatch.TextWidget(
        markdown=f"## {text}", width=24, height=1, background=cloudwatch.TextWidgetBackground.TRANSPARENT
    )


class Lines:
    """Creates graphs of Helix's measures, for the whole stage, or for the stage and each agent."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def total(self, title: str, *measures: tuple[str, str]) -> cloudwatch.GraphWidget:
        """Return a graph of measures of the whole stage. `measures`: (measure, statistic), all in one unit."""
        (unit,) = {UNITS[measure] for measure, _ in measures}
        several = len({measure for measure, _ in measures}) > 1
        lines = [
            helix_metric(self._names, measure, statistic, label=measure if several else statistic)
            for measure, statistic in measures
        ]
        return graph(title, lines, unit)

    def by_agent(self, title: str, measure: str, statistic: str) -> cloudwatch.GraphWidget:
        lines = [
            helix_metric(self._names, measure, statistic, label="all"),
            helix_metric_by_agent(self._names, measure, statistic),
        ]
        return graph(title, lines, UNITS[measure])
