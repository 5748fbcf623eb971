"""Alarms, made of their rules: each notifies the alarm topic when it goes off.

Law: periods are as short as CloudWatch's metrics are fine, and no data is no fault: a fleet that rests is silent.
"""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from constructs import Construct

from infra.alarm_rules import Rule
from infra.names import Names
from infra.topics import Topics

MORE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
REACHED = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD


class Alarms(Construct):
    def __init__(
        self, scope: Construct, construct_id: str, *, names: Names, topics: Topics, rules: Iterable[Rule]
    ) -> None:
        super().__init__(scope, construct_id)
        report = actions.SnsAction(topics.alarms)
        for rule in rules:
            alarm = cloudwatch.Alarm(
                self,
                "".join(word.capitalize() for word in rule.name.split("-")),
                alarm_name=names.of(rule.alarm),
                alarm_description=rule.description,
                metric=rule.metric,
                threshold=rule.threshold,
                comparison_operator=REACHED if rule.reached else MORE,
                evaluation_periods=rule.minutes,
                datapoints_to_alarm=rule.minutes,
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            )
            alarm.add_alarm_action(report)
