"""The alarms, created from their rules. Each alarm notifies the alarm topic when it goes off and when it returns to OK.

Law: periods are as short as the resolution of CloudWatch's metrics. Missing data does not set off an alarm, unless its rule
is about missing data.
"""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from constructs import Construct

from helix.infra.alarm_rules import Rule
from helix.infra.names import Names
from helix.infra.topics import Topics

MORE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
REACHED = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
LESS = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
MISSING = {False: cloudwatch.TreatMissingData.NOT_BREACHING, True: cloudwatch.TreatMissingData.BREACHING}


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
                comparison_operator=LESS if rule.silent else REACHED if rule.reached else MORE,
                evaluation_periods=rule.minutes,
                datapoints_to_alarm=rule.minutes,
                treat_missing_data=MISSING[rule.silent],
            )
            alarm.add_alarm_action(report)
            alarm.add_ok_action(report)
