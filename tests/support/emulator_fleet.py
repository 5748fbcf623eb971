"""Checks of the emulator for `tests/integration/test_emulator.py`: the services that govern a fleet behave as on AWS."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.support.emulator_desk import ACCOUNT, REGION, Desk, until


def _alarm(desk: Desk, *, period: int = 60, topics: list[str] | None = None, **dimensions: str) -> Callable[[], str]:
    """Create an alarm with a threshold of 5, and return its state."""
    name, cloudwatch = desk.name(), desk.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName=name,
        Namespace="Check",
        MetricName="Depth",
        Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
        Statistic="Maximum",
        Period=period,
        EvaluationPeriods=1,
        Threshold=5,
        ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="notBreaching",
        AlarmActions=topics or [],
    )
    return lambda: str(cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]["StateValue"])


def _depth(desk: Desk, value: float, **dimensions: str) -> None:
    named = [{"Name": key, "Value": of} for key, of in dimensions.items()]
    datum = {"MetricName": "Depth", "Dimensions": named, "Value": value}
    desk.client("cloudwatch").put_metric_data(Namespace="Check", MetricData=[datum])


def alarms_look_at_their_own_metric(desk: Desk) -> None:
    ours, other = desk.name(), desk.name()
    state = _alarm(desk, agent=ours)
    _depth(desk, 9, agent=other)
    _depth(desk, 9)
    _depth(desk, 1, agent=ours)
    assert state() == "OK"
    _depth(desk, 9, agent=ours)
    assert state() == "ALARM"


def alarms_are_evaluated_as_time_passes(desk: Desk) -> None:
    agent = desk.name()
    state = _alarm(desk, period=1, agent=agent)
    _depth(desk, 9, agent=agent)
    assert state() == "ALARM"
    until(lambda: state() == "OK")


def alarms_speak_as_cloudwatch(desk: Desk) -> None:
    """An alarm notifies a topic that admits CloudWatch. Another topic, whose policy does not, receives nothing."""
    agent, topics, queues = desk.name(), desk.client("sns"), desk.client("sqs")
    open_ = topics.create_topic(Name=desk.name())["TopicArn"]
    closed = topics.create_topic(Name=desk.name())["TopicArn"]
    queue = queues.create_queue(QueueName=desk.name())["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

    def policy(principal: Any, action: str, resource: str) -> str:
        said = {"Effect": "Allow", "Principal": principal, "Action": action, "Resource": resource}
        return json.dumps({"Version": "2012-10-17", "Statement": [said]})

    admitted = policy({"Service": "sns.amazonaws.com"}, "sqs:SendMessage", arn)
    queues.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": admitted})
    for topic, service in ((open_, "cloudwatch"), (closed, "s3")):
        said = policy({"Service": f"{service}.amazonaws.com"}, "sns:Publish", topic)
        topics.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=said)
        topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    state = _alarm(desk, agent=agent, topics=[closed, open_])
    _depth(desk, 9, agent=agent)
    assert state() == "ALARM"
    heard = [json.loads(m["Body"]) for m in until(lambda: queues.receive_message(QueueUrl=queue).get("Messages"))]
    assert [one["TopicArn"] for one in heard] == [open_]
    trigger = json.loads(heard[0]["Message"])["Trigger"]
    assert (trigger["Dimensions"], trigger["Statistic"]) == ([{"value": agent, "name": "agent"}], "MAXIMUM")
    assert not queues.receive_message(QueueUrl=queue).get("Messages")


def provisioned_concurrency_is_a_right(desk: Desk) -> None:
    """A role that has the right on an alias may set it there, and on no other alias."""
    functions, iam, user = desk.client("lambda"), desk.client("iam"), desk.name()
    function = desk.function()
    version = functions.publish_version(FunctionName=function)["Version"]
    for alias in ("live", "other"):
        functions.create_alias(FunctionName=function, Name=alias, FunctionVersion=version)
    arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function}:live"
    allow = {"Effect": "Allow", "Action": "lambda:PutProvisionedConcurrencyConfig", "Resource": arn}
    iam.create_user(UserName=user)
    document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    iam.put_user_policy(UserName=user, PolicyName="warm", PolicyDocument=document)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    credentials = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    put = desk.client("lambda", **credentials).put_provisioned_concurrency_config
    try:
        put(FunctionName=function, Qualifier="live", ProvisionedConcurrentExecutions=1)
    except ClientError as error:
        raise AssertionError(f"denied: {error}") from error
    with pytest.raises(ClientError, match="PutProvisionedConcurrencyConfig"):
        put(FunctionName=function, Qualifier="other", ProvisionedConcurrentExecutions=1)


def schedules_have_a_time_zone(desk: Desk) -> None:
    """The input of a schedule's call has its due time. `tests/unit/test_zoned_schedules.py` tests when schedules are
    due."""
    name, queues = desk.name(), desk.client("sqs")
    url = queues.create_queue(QueueName=name)["QueueUrl"]
    desk.client("scheduler").create_schedule(
        Name=name,
        ScheduleExpression="cron(0 8 * * ? *)",
        ScheduleExpressionTimezone="Europe/Berlin",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}",
            "RoleArn": desk.role(),
            "Input": "at <aws.scheduler.scheduled-time>",
        },
    )
    desk.emulator.ask("tick")
    (message,) = until(lambda: queues.receive_message(QueueUrl=url).get("Messages"))
    assert message["Body"].startswith("at 20") and message["Body"].endswith("Z")
