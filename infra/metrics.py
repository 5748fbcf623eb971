"""Metrics that Helix emits, by the names, units and dimensions of `helix.core.measures`.

Law: an alarm or a dashboard gets its metric here, so it cannot name one that no code records.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from helix.core.measures import AGENT, NAMESPACE, STAGE, UNITS
from infra.names import Names

MINUTE = Duration.minutes(1)
HOUR = Duration.hours(1)


def helix_metric(
    names: Names, measure: str, statistic: str, *, agent: str | None = None, period: Duration = MINUTE, label: str = ""
) -> cloudwatch.Metric:
    """`measure` of one agent, or of the whole stage. Raises `KeyError` for one that is not measured."""
    UNITS[measure]
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=measure,
        dimensions_map={STAGE: names.stage, **({AGENT: agent} if agent else {})},
        statistic=statistic,
        period=period,
        label=label or None,
    )


def aws_metric(
    namespace: str, name: str, statistic: str, *, label: str = "", period: Duration = MINUTE, **dimensions: str
) -> cloudwatch.Metric:
    """A metric of AWS's own: `namespace` without "AWS/"."""
    return cloudwatch.Metric(
        namespace=f"AWS/{namespace}",
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        period=period,
        label=label or None,
    )
