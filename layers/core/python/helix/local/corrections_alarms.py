"""Corrections to alarms, their evaluation and notifications, and to provisioned concurrency. Part of
`helix.local.corrections`.

Law: an alarm evaluates one metric, identified by its name and exact set of dimensions, period by period.
`DatapointsToAlarm` of the last periods must breach the threshold. Here the last period ends now, rather than at a full
minute, so that tests do not have to wait.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html
"""

from __future__ import annotations

import datetime
import json
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from ministack.core import iam_actions
from ministack.core.responses import get_account_id, get_region, request_scope
from ministack.services import cloudwatch, sns

from helix.adapters.system import SystemClock

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
Point = Mapping[str, Any]
"""A data point, with a "Timestamp" in Unix seconds."""

LATE_S = 60.0
"""The maximum delay of a data point. Points arrive nearly in order of their timestamps."""
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


def evaluate_alarm(alarm: Mapping[str, Any], points: Sequence[Point], now: float) -> tuple[State, str] | None:
    """Return the alarm's new state and the reason, or None if its state does not change."""
    breaches = _COMPARE.get(alarm.get("ComparisonOperator", ""))
    if breaches is None:
        return None
    count = int(alarm.get("EvaluationPeriods", 1))
    wanted = int(alarm.get("DatapointsToAlarm") or count)
    statistic = alarm.get("ExtendedStatistic") or alarm.get("Statistic", "Average")
    threshold, treat = float(alarm["Threshold"]), alarm.get("TreatMissingData") or "missing"
    periods = _periods(points, float(alarm.get("Period", 60)), count, now)
    found = [
        cloudwatch._stat_value(cloudwatch._calc_stats(each), statistic, each) if each else None for each in periods
    ]
    known: list[float] = [datapoint for datapoint in found if datapoint is not None]
    if not known and treat == "ignore":
        return None
    if not known and treat == "missing":
        return "INSUFFICIENT_DATA", "Insufficient Data: no datapoints were received"
    missing = (len(found) - len(known)) if treat == "breaching" else 0
    breaching = [datapoint for datapoint in known if breaches(datapoint, threshold)]
    state: State = "ALARM" if len(breaching) + missing >= wanted else "OK"
    sign = alarm["ComparisonOperator"]
    return state, f"Threshold Crossed: of {count} datapoints {known}, {len(breaching) + missing} {sign} {threshold}"


def _periods(points: Sequence[Point], period: float, count: int, now: float) -> list[list[Point]]:
    """Return the points in each of the last `count` periods, newest first."""
    found: list[list[Point]] = [[] for _ in range(count)]
    oldest = now - period * count
    for point in reversed(points):
        age = now - float(point["Timestamp"])
        if age > now - oldest + LATE_S:
            break
        if 0 <= (index := int(max(age, 0.0) // period)) < count:
            found[index].append(point)
    return found


def alarm_notification(
    alarm: Mapping[str, Any], old: str, new: str, reason: str, now: float, account: str, region: str
) -> Any:
    """Return the notification for the topic, before it is serialised to JSON."""
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


EVERY_S = 1.0
_ACTIONS = {"ALARM": "AlarmActions", "OK": "OKActions", "INSUFFICIENT_DATA": "InsufficientDataActions"}
_PROVISIONED = "/provisioned-concurrency"
_OF_METHOD = {"PUT": "Put", "DELETE": "Delete", "GET": "Get"}
_clock = SystemClock()
_judging = threading.Lock()
F = TypeVar("F", bound=Callable[..., Any])


class Corrections(list[Callable[[], None]]):
    """The corrections, in the order in which they are applied. Each is a function without parameters."""

    def add(self, make: F) -> F:
        self.append(make)
        return make

    def replaces(self, module: Any, name: str) -> Callable[[F], F]:
        """Return a decorator that replaces MiniStack's function with the decorated one, which receives the original as its
        first argument."""

        def decorate(function: F) -> F:
            def make() -> None:
                setattr(module, name, partial(function, getattr(module, name)))

            make.__name__ = function.__name__
            self.append(make)
            return function

        return decorate


CORRECTIONS = Corrections()


@CORRECTIONS.replaces(cloudwatch, "_evaluate_alarm")
def alarms_look_at_their_own_metric(_: Any, alarm: dict[str, Any]) -> None:
    """Evaluate an alarm only on its own metric. One agent's alarm does not depend on another agent's metric,
    `DatapointsToAlarm` of its last periods must breach the threshold, and missing data is treated as the alarm specifies.
    MiniStack mixes all dimensions and periods."""

    dimensions = {d["Name"]: d["Value"] for d in alarm.get("Dimensions", [])}
    key = (alarm.get("Namespace"), alarm.get("MetricName"), cloudwatch._dims_key(dimensions))
    with _judging:
        found = evaluate_alarm(alarm, cloudwatch._metrics.get(key) or (), _clock.now())
        if found is None or found[0] == alarm["StateValue"]:
            return
        (new, reason), old = found, alarm["StateValue"]
        alarm |= {"StateValue": new, "StateReason": reason, "StateUpdatedTimestamp": int(_clock.now())}
        cloudwatch._record_history(alarm["AlarmName"], old, new, reason)
    cloudwatch._dispatch_alarm_actions(alarm, old, new, reason)
    cloudwatch._evaluate_parent_alarms(alarm)


@CORRECTIONS.add
def alarms_are_evaluated_as_time_passes() -> None:
    """Evaluate alarms regularly, even without new data, so that an alarm can return to OK by itself. MiniStack evaluates
    alarms only when a metric arrives."""

    def evaluate_regularly() -> None:
        never = threading.Event()
        while not never.wait(EVERY_S):
            _evaluate_all()

    threading.Thread(target=evaluate_regularly, daemon=True).start()


@CORRECTIONS.replaces(cloudwatch, "_dispatch_alarm_actions")
def alarms_speak_as_cloudwatch(_: Any, alarm: dict[str, Any], old: str, new: str, reason: str) -> None:
    """Send alarm notifications in CloudWatch's own format (`name` and `value` of dimensions), and only to a topic whose
    policy allows CloudWatch. MiniStack uses the format of the CloudWatch API and ignores the policy."""

    if not alarm.get("ActionsEnabled", True):
        return
    account, region = get_account_id(), get_region()
    text = json.dumps(alarm_notification(alarm, old, new, reason, _clock.now(), account, region))
    subject = f'{new}: "{alarm["AlarmName"]}" in {region}'[:100]
    for arn in alarm.get(_ACTIONS[new]) or []:
        allowed = sns.topic_policy_allows(arn, "cloudwatch.amazonaws.com", alarm.get("AlarmArn", ""), account)
        if cloudwatch._is_sns_action_arn(arn) and allowed:
            sns._fanout(arn, cloudwatch.new_uuid(), text, subject)


@CORRECTIONS.add
def provisioned_concurrency_is_a_right() -> None:
    """Require the specific permission on the alias to change provisioned concurrency. MiniStack requires the permission to
    update the function's code."""
    action, resource = iam_actions._lambda_action, iam_actions.extract_resource_arn

    def lambda_action(method: str, path: str) -> str | None:
        if path.endswith(_PROVISIONED) and method in _OF_METHOD:
            return f"{_OF_METHOD[method]}ProvisionedConcurrencyConfig"
        named: str | None = action(method, path)
        return named

    def resource_arn(
        service: str, method: str, path: str, headers: Any, body: Any, query: Any, region: str, account: str
    ) -> str:
        arn: str = resource(service, method, path, headers, body, query, region, account)
        asked = (query or {}).get("Qualifier") if service == "lambda" and path.endswith(_PROVISIONED) else None
        qualifier = asked[0] if isinstance(asked, list) else asked
        return f"{arn}:{qualifier}" if qualifier else arn

    iam_actions._lambda_action, iam_actions.extract_resource_arn = lambda_action, resource_arn


def _evaluate_all() -> None:
    """Evaluate the alarms of all accounts."""
    for account, region in {key[:2] for key in list(cloudwatch._alarms._data)}:
        with request_scope(account, region):
            cloudwatch._evaluate_all_alarms()
