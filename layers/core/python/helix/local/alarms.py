"""CloudWatch's alarms, judged and told as CloudWatch does it.

Law: an alarm looks at one metric, which is a name and exactly its dimensions, period by period; so many of the last periods
must breach. Here the last period ends now, and not with the clock's minute, so that nobody waits for it.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
Point = Mapping[str, Any]
"""Has a "Timestamp", in Unix seconds; what else it has, `Value` understands."""
Value = Callable[[list[Any], str], float | None]
"""A period's points and a statistic -> the datapoint, None if there is none."""

LATE_S = 60.0
"""Points come nearly in the order of their time."""
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


def judge(alarm: Mapping[str, Any], points: Sequence[Point], now: float, value: Value) -> tuple[State, str] | None:
    """The state that the alarm is in now, and why; None if it stays as it is."""
    breaches = _COMPARE.get(alarm.get("ComparisonOperator", ""))
    if breaches is None:
        return None
    count = int(alarm.get("EvaluationPeriods", 1))
    wanted = int(alarm.get("DatapointsToAlarm") or count)
    statistic = alarm.get("ExtendedStatistic") or alarm.get("Statistic", "Average")
    threshold, treat = float(alarm["Threshold"]), alarm.get("TreatMissingData") or "missing"
    periods = _periods(points, float(alarm.get("Period", 60)), count, now)
    told = [value(period, statistic) if period else None for period in periods]
    known = [datapoint for datapoint in told if datapoint is not None]
    if not known and treat == "ignore":
        return None
    if not known and treat == "missing":
        return "INSUFFICIENT_DATA", "Insufficient Data: no datapoints were received"
    missing = (len(told) - len(known)) if treat == "breaching" else 0
    breaching = [datapoint for datapoint in known if breaches(datapoint, threshold)]
    state: State = "ALARM" if len(breaching) + missing >= wanted else "OK"
    sign = alarm["ComparisonOperator"]
    return state, f"Threshold Crossed: of {count} datapoints {known}, {len(breaching) + missing} {sign} {threshold}"


def _periods(points: Sequence[Point], period: float, count: int, now: float) -> list[list[Point]]:
    """The points of each of the last `count` periods, the newest first."""
    found: list[list[Point]] = [[] for _ in range(count)]
    oldest = now - period * count
    for point in reversed(points):
        age = now - float(point["Timestamp"])
        if age > now - oldest + LATE_S:
            break
        if 0 <= (index := int(max(age, 0.0) // period)) < count:
            found[index].append(point)
    return found


def message(alarm: Mapping[str, Any], old: str, new: str, reason: str, now: float, account: str, region: str) -> Any:
    """What the topic is told, as JSON will have it."""
    extended = alarm.get("ExtendedStatistic")
    statistic = (
        {"ExtendedStatistic": extended} if extended else {"Statistic": alarm.get("Statistic", "Average").upper()}
    )
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    same = ("MetricName", "Namespace", "Unit", "Period", "EvaluationPeriods", "DatapointsToAlarm", "ComparisonOperator")
    trigger = {name: alarm.get(name) for name in (*same, "Threshold", "TreatMissingData")}
    dimensions = [{"value": d["Value"], "name": d["Name"]} for d in alarm.get("Dimensions", [])]
    trigger |= {"StatisticType": next(iter(statistic)), **statistic, "Dimensions": dimensions}
    return {
        "AlarmName": alarm["AlarmName"],
        "AlarmDescription": alarm.get("AlarmDescription") or None,
        "AWSAccountId": account,
        "NewStateValue": new,
        "NewStateReason": reason,
        "StateChangeTime": moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}+0000",
        "Region": region,
        "AlarmArn": alarm.get("AlarmArn", ""),
        "OldStateValue": old,
        "OKActions": alarm.get("OKActions", []),
        "AlarmActions": alarm.get("AlarmActions", []),
        "InsufficientDataActions": alarm.get("InsufficientDataActions", []),
        "Trigger": trigger,
    }
