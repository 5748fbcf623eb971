"""Where MiniStack does otherwise than AWS in what a fleet is governed by: part of `helix.local.corrections`."""

from __future__ import annotations

import json
import threading
from typing import Any

from ministack.core import iam_actions
from ministack.core.responses import get_account_id, get_region, request_scope
from ministack.services import cloudwatch, sns

from helix.adapters.system import SystemClock
from helix.local.alarms import judge, message

EVERY_S = 1.0
_ACTIONS = {"ALARM": "AlarmActions", "OK": "OKActions", "INSUFFICIENT_DATA": "InsufficientDataActions"}
_PROVISIONED = "/provisioned-concurrency"
_OF_METHOD = {"PUT": "Put", "DELETE": "Delete", "GET": "Get"}
_clock = SystemClock()
_judging = threading.Lock()


def alarms_look_at_their_own_metric() -> None:
    """An alarm on one agent's metric is not moved by another's; so many of its last periods must breach; missing data is
    what the alarm says it is. MiniStack puts all dimensions and periods together."""

    def value(points: list[Any], statistic: str) -> float | None:
        found: float | None = cloudwatch._stat_value(cloudwatch._calc_stats(points), statistic, points)
        return found

    def evaluate(alarm: dict[str, Any]) -> None:
        dimensions = {d["Name"]: d["Value"] for d in alarm.get("Dimensions", [])}
        key = (alarm.get("Namespace"), alarm.get("MetricName"), cloudwatch._dims_key(dimensions))
        with _judging:
            found = judge(alarm, cloudwatch._metrics.get(key) or (), _clock.now(), value)
            if found is None or found[0] == alarm["StateValue"]:
                return
            (new, reason), old = found, alarm["StateValue"]
            alarm |= {"StateValue": new, "StateReason": reason, "StateUpdatedTimestamp": int(_clock.now())}
            cloudwatch._record_history(alarm["AlarmName"], old, new, reason)
        cloudwatch._dispatch_alarm_actions(alarm, old, new, reason)
        cloudwatch._evaluate_parent_alarms(alarm)

    cloudwatch._evaluate_alarm = evaluate


def alarms_are_evaluated_as_time_passes() -> None:
    """Also while nobody sends data: so an alarm ends by itself. MiniStack looks at alarms when a metric comes."""

    def look() -> None:
        never = threading.Event()
        while not never.wait(EVERY_S):
            _evaluate_all()

    threading.Thread(target=look, daemon=True).start()


def alarms_speak_as_cloudwatch() -> None:
    """The message is in CloudWatch's own spelling (`name` and `value` of dimensions), and a topic whose policy does not
    admit CloudWatch hears nothing. MiniStack spells as in its API, and asks no topic."""

    def dispatch(alarm: dict[str, Any], old: str, new: str, reason: str) -> None:
        if not alarm.get("ActionsEnabled", True):
            return
        account, region = get_account_id(), get_region()
        told = json.dumps(message(alarm, old, new, reason, _clock.now(), account, region))
        subject = f'{new}: "{alarm["AlarmName"]}" in {region}'[:100]
        for arn in alarm.get(_ACTIONS[new]) or []:
            allowed = sns.topic_policy_allows(arn, "cloudwatch.amazonaws.com", alarm.get("AlarmArn", ""), account)
            if cloudwatch._is_sns_action_arn(arn) and allowed:
                sns._fanout(arn, cloudwatch.new_uuid(), told, subject)

    cloudwatch._dispatch_alarm_actions = dispatch


def provisioned_concurrency_is_a_right() -> None:
    """Of its own, on the alias. MiniStack takes it for a change of the function's code."""
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
    """The alarms of all accounts."""
    for account, region in {key[:2] for key in list(cloudwatch._alarms._data)}:
        with request_scope(account, region):
            cloudwatch._evaluate_all_alarms()
