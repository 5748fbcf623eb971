"""The EventBridge rules that start functions each minute, and after executions that did not succeed. Alarms start `govern`
(topics.py).

Law: events are best effort and may arrive twice; `sweep` finds the work of lost events. An event that cannot be delivered
is kept and raises an alarm, and nothing waits for it. Each minute `govern` is started, which starts `sweep` unless the
stage is idle.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from helix.infra.executions import Executions
from helix.infra.function import Function
from helix.infra.nag import explain
from helix.infra.names import Names

ENDED_BADLY = ["FAILED", "TIMED_OUT", "ABORTED"]
EVERY = Duration.minutes(1)
RETAINED = Duration.days(14)
UNDELIVERED = "undelivered"


class Schedules(Construct):
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        names: Names,
        executions: Executions,
        sweep: Function,
        govern: Function,
        fail_run: Function,
    ) -> None:
        super().__init__(scope, construct_id)
        self.undelivered = sqs.Queue(
            self,
            "Undelivered",
            queue_name=names.of(UNDELIVERED),
            # Not the stage's key: EventBridge would need permission to use it, which any rule in the account could then
            # exploit.
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=RETAINED,
        )
        explain(self.undelivered, "SQS3", "This is the dead-letter queue, and an alarm watches it.")
        events.Rule(
            self,
            "Govern",
            rule_name=names.of("govern"),
            description="Sweep, record gauges, check limits and budgets, unless the stage is at rest",
            schedule=events.Schedule.rate(EVERY),
            # No retries: the next minute starts the next invocation anyway.
            targets=[targets.LambdaFunction(govern.live, retry_attempts=0, max_event_age=EVERY)],
        )
        sweep.live.configure_async_invoke(retry_attempts=0, max_event_age=EVERY)
        events.Rule(
            self,
            "Ended",
            rule_name=names.of("ended"),
            description="Executions that ended although their run has not ended",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={"status": ENDED_BADLY, "stateMachineArn": [{"prefix": executions.prefix}]},
            ),
            targets=[
                targets.LambdaFunction(
                    fail_run.live,
                    dead_letter_queue=self.undelivered,
                    retry_attempts=20,
                    max_event_age=Duration.hours(1),
                )
            ],
        )
        fail_run.live.configure_async_invoke(
            retry_attempts=2,
            max_event_age=Duration.hours(1),
            on_failure=destinations.SqsDestination(self.undelivered),
        )
