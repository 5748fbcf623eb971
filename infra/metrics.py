"""The metrics that Helix emits, with the names, units and dimensions in `helix.core.measures`.

Law: alarms and dashboards get their metrics from this module, so they cannot name a metric that no code records.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from helix.core.measures import AGENT, NAMESPACE, STAGE, UNITS
from helix.infra.names import Names

MINUTE = Duration.minutes(1)
HOUR = Duration.hours(1)


def helix_metric(
    names: Names, measure: str, statistic: str, *, agent: str | None = None, period: Duration = MINUTE, label: str = ""
) -> cloudwatch.Metric:
    """Return the metric for `measure`, of one agent or of the whole stage. Raises `KeyError` for an unknown measure."""
    UNITS[measure]
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=measure,
        dimensions_map={STAGE: names.stage, **({AGENT: agent} if agent else {})},
        statistic=statistic,
        period=period,
        label=label or None,
    )


def helix_metric_by_agent(names: Names, measure: str, statistic: str) -> cloudwatch.SearchExpression:
    """Return a search expression for `measure`, for every agent of the stage that has recorded it in the last two weeks."""
    UNITS[measure]
    return _search(NAMESPACE, (AGENT, STAGE), measure, f'{STAGE}="{names.stage}"', statistic)


def aws_metrics(
    namespace: str, name: str, statistic: str, names: Names, dimension: str, *, label: str = ""
) -> cloudwatch.SearchExpression:
    """Return a search expression for an AWS metric, for every resource whose name contains the words `helix` and the
    stage's name."""
    return _search(f"AWS/{namespace}", (dimension,), name, names.prefix.replace("-", " "), statistic, label)


def _search(
    namespace: str, dimensions: tuple[str, ...], name: str, terms: str, statistic: str, label: str = ""
) -> cloudwatch.SearchExpression:
    """Return a search expression: one line in the dashboard for up to 500 time series, regardless of the number of agents.
    Words in quotation marks match exactly:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/search-expression-syntax.html."""
    schema = ",".join((namespace, *dimensions))
    found = f"SEARCH('{{{schema}}} MetricName=\"{name}\" {terms}', '{statistic}', {MINUTE.to_seconds():.0f})"
    return cloudwatch.SearchExpression(expression=found, label=label, period=MINUTE)


def aws_metric(
    namespace: str, name: str, statistic: str, *, label: str = "", period: Duration = MINUTE, **dimensions: str
) -> cloudwatch.Metric:
    """Return an AWS metric. `namespace` omits the prefix "AWS/"."""
    return cloudwatch.Metric(
        namespace=f"AWS/{namespace}",
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        period=period,
        label=label or None,
    )
