"""Triggers: schedules, queues, objects and events, for which one function starts runs, and the run routes of the HTTP API.

Law: a stage has only the resources of the triggers that it declares. Each event waits in a queue until its run is claimed.
A full stage, a busy session or a failing function delays the event, but it is not lost. Events that cannot start a run go
to the dead-letter queue, which an alarm watches. Only this stage's rules and schedules may send to the queue that they
share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from helix.core.triggers import Trigger, dump_starts
from helix.infra.alarm_rules import Rule
from helix.infra.config import Settings
from helix.infra.endpoints import Endpoints
from helix.infra.function import Function
from helix.infra.metrics import aws_metric
from helix.infra.nag import explain, explain_resource
from helix.infra.names import Names
from helix.infra.verbs import TRIGGER_SIZES

RETAINED = Duration.days(14)
QUEUE, FAILED = "triggers", "trigger-failures"
BATCH = 10
HIDDEN = Duration.seconds(6 * TRIGGER_SIZES["start_triggered"].timeout_s)
"""The visibility timeout of messages: six times the function's timeout, see
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html"""
AT_ONCE = 10
"""The maximum number of concurrent invocations for one queue, so that a backlog does not use up the account's concurrency.
Starting a run takes a fraction of a second, so this is enough for hundreds of runs per second."""
TRIES = 480
"""The number of deliveries of an event: about a day, if each one finds the session busy or the stage full. SQS allows
1,000."""
SCHEDULED_TIME = "<aws.scheduler.scheduled-time>"
"""A placeholder that EventBridge Scheduler replaces with the time of the schedule:
https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html"""
RECEIVE = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]


class Triggers(Construct):
    """The triggers of a stage. `ends_calls`: whether a tool lets other systems end its calls, for which the stage has the
    call routes. `failed`: the dead-letter queue; None unless a trigger uses a queue."""

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: Settings, names: Names, ends_calls: bool
    ) -> None:
        super().__init__(scope, construct_id)
        self._names, self._triggers, self._ends_calls = names, settings.stage_triggers, ends_calls
        self.http = {name: each for name, each in self._triggers.items() if each.http}
        self.queued = {name: each for name, each in self._triggers.items() if not each.http}
        self.failed: sqs.Queue | None = None
        self._queues: dict[str, sqs.IQueue] = {}
        self._role: iam.Role | None = None
        if not self.queued:
            return
        self.failed = self._queue("Failed", FAILED)
        explain(self.failed, "SQS3", "This is the dead-letter queue, and an alarm watches it.")
        for name, trigger in self.queued.items():
            match trigger.queue:
                case None if trigger.timezone:
                    self._schedule(name, trigger)
                case None:
                    self._rule(name, trigger)
                case True:
                    self._queues[name] = self._queue(f"{_id(name)}Queue", f"trigger-{name}", self.failed)
                case str(arn):
                    self._queues[name] = sqs.Queue.from_queue_arn(self, f"{_id(name)}Queue", arn)

    @property
    def verbs(self) -> list[str]:
        """Return the verbs of the functions that the stage has for its triggers."""
        has_http = self.http or self._ends_calls
        return [verb for verb, has in (("start_triggered", self.queued), ("serve_http", has_http)) if has]

    @property
    def environment(self) -> dict[str, dict[str, str]]:
        """Return the environment variables of the functions, by verb and field of `CloudSettings`."""
        failed = self.failed.queue_url if self.failed else ""
        return {
            "start_triggered": {"triggers": dump_starts(self.queued), "dead_letters": failed},
            "serve_http": {"triggers": dump_starts(self.http)},
        }

    def grant_consume(self, role: iam.Role) -> None:
        """Let `role` receive events, set aside those that cannot start a run, and read the objects to attach. The event
        source mapping uses this role to receive events."""
        assert self.failed is not None, "nothing is sent to a queue"
        arns = [queue.queue_arn for queue in self._queues.values()]
        iam.Grant.add_to_principal(grantee=role, actions=RECEIVE, resource_arns=arns)
        iam.Grant.add_to_principal(grantee=role, actions=["sqs:SendMessage"], resource_arns=[self.failed.queue_arn])
        for trigger in self.queued.values():
            if trigger.attach:
                self._grant_objects(role, str(trigger.bucket), _keys_of(trigger))

    def _grant_objects(self, role: iam.Role, bucket: str, keys: str) -> None:
        """Let `role` read the objects whose keys match the pattern, and learn which of them exist. Without the second,
        it could not tell a deleted object from one that it may not read."""
        place = Stack.of(self).format_arn(service="s3", region="", account="", resource=bucket)
        objects = f"{place}/{keys}"
        iam.Grant.add_to_principal(grantee=role, actions=["s3:GetObject"], resource_arns=[objects])
        explain_resource(role, objects, "The trigger's prefix and suffix limit the objects that it attaches.")
        under = {"StringLike": {"s3:prefix": keys}}
        iam.Grant.add_to_principal(grantee=role, actions=["s3:ListBucket"], resource_arns=[place], conditions=under)

    def serve(self, functions: Mapping[str, Function], endpoints: Endpoints) -> None:
        if self.http:
            endpoints.serve_runs(functions["serve_http"])
        if self._ends_calls:
            endpoints.serve_calls(functions["serve_http"])
        if self.queued:
            self._feed(functions["start_triggered"])

    def rules(self) -> Iterator[Rule]:
        if self.queued:
            yield Rule(
                "triggers-failed",
                "Events of triggers could not start a run. They are in the dead-letter queue, with the reason.",
                aws_metric("SQS", "ApproximateNumberOfMessagesVisible", "Maximum", QueueName=self._names.of(FAILED)),
            )

    def outputs(self, endpoints: Endpoints) -> dict[str, tuple[str, str]]:
        made = {
            f"{_id(name)}QueueUrl": (queue.queue_url, f"Each message {_effect(self.queued[name])}")
            for name, queue in self._queues.items()
            if name in self.queued and self.queued[name].queue is True
        }
        if self.http:
            made["HttpUrl"] = (endpoints.url, "POST /run, GET /sessions/ID and GET /sessions/ID/stream")
        if self._ends_calls:
            made["CallsUrl"] = (f"{endpoints.url}/calls", "Other systems report results: POST /calls/TOKEN")
        if self.failed:
            made["TriggerFailuresUrl"] = (self.failed.queue_url, "Events that could not start a run, with the reason")
        return made

    def _feed(self, function: Function) -> None:
        for name, queue in self._queues.items():
            source = lambda_.CfnEventSourceMapping(
                self,
                f"{_id(name)}Source",
                function_name=function.live.function_arn,
                event_source_arn=queue.queue_arn,
                batch_size=BATCH,
                scaling_config=lambda_.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=AT_ONCE),
                function_response_types=["ReportBatchItemFailures"],
            )
            source.node.add_dependency(
                function.role
            )  # and on its policies, because Lambda checks the permission when it creates the mapping

    def _rule(self, name: str, trigger: Trigger) -> None:
        assert self.failed is not None
        queue = self._provide_queue(self.failed)
        target = events.CfnRule.TargetProperty(
            arn=queue.queue_arn,
            id="queue",
            dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=self.failed.queue_arn),
            input_transformer=events.CfnRule.InputTransformerProperty(
                # Without quotation marks, because EventBridge inserts the whole event as JSON.
                input_template=f'{{"trigger":{json.dumps(name)},"event":<aws.events.event.json>}}'
            ),
        )
        rule = events.CfnRule(
            self,
            f"{_id(name)}Rule",
            name=self._rule_name(name),
            description=f"Helix: {_effect(trigger)}",
            schedule_expression=trigger.schedule,
            event_bus_name=None if trigger.schedule else trigger.bus,
            event_pattern=_pattern(trigger),
            targets=[target],
        )
        rule.node.add_dependency(queue)

    def _schedule(self, name: str, trigger: Trigger) -> None:
        """Create a schedule in EventBridge Scheduler, because rules support only UTC. Its event has the same format as a
        rule's."""
        assert self.failed is not None
        queue = self._provide_queue(self.failed)
        event = {"detail-type": "Scheduled Event", "source": "aws.scheduler", "time": SCHEDULED_TIME}
        schedule = scheduler.CfnSchedule(
            self,
            f"{_id(name)}Schedule",
            name=self._rule_name(name),
            description=f"Helix: runs agent {trigger.agent}",
            schedule_expression=trigger.schedule,
            schedule_expression_timezone=trigger.timezone,
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=queue.queue_arn,
                role_arn=self._provide_role(queue, self.failed).role_arn,
                input=json.dumps({"trigger": name, "event": event}),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=self.failed.queue_arn),
            ),
        )
        schedule.node.add_dependency(queue, self._provide_role(queue, self.failed))

    def _provide_role(self, *queues: sqs.IQueue) -> iam.Role:
        """Return the role that the stage's schedules use to send to the queues. The first call creates it."""
        if self._role is None:
            account = {"StringEquals": {"aws:SourceAccount": Stack.of(self).account}}
            assumed_by = iam.ServicePrincipal("scheduler.amazonaws.com", conditions=account)
            self._role = iam.Role(
                self, "Sender", assumed_by=assumed_by, description="Permissions of the schedules that start runs"
            )
            arns = [queue.queue_arn for queue in queues]
            iam.Grant.add_to_principal(grantee=self._role, actions=["sqs:SendMessage"], resource_arns=arns)
        return self._role

    def _provide_queue(self, failed: sqs.Queue) -> sqs.IQueue:
        if QUEUE in self._queues:
            return self._queues[QUEUE]
        queue = self._queues[QUEUE] = self._queue("Queue", QUEUE, failed)
        for each in (queue, failed):
            self._allow_rules(each)
        return queue

    def _allow_rules(self, queue: sqs.Queue) -> None:
        """Let this stage's rules send to the queue. The ARN of a rule on a custom bus has the bus before the name."""
        stack, name = Stack.of(self), self._rule_name("*")
        rules = [stack.format_arn(service="events", resource="rule", resource_name=n) for n in (name, f"*/{name}")]
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"],
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                resources=[queue.queue_arn],
                conditions={"ArnLike": {"aws:SourceArn": rules}},
            )
        )

    def _queue(self, construct_id: str, name: str, failed: sqs.Queue | None = None) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            queue_name=self._names.of(name),
            # Not the stage's key: EventBridge would need permission to use it, which any rule in the account could then
            # exploit.
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=RETAINED,
            visibility_timeout=HIDDEN if failed else None,
            dead_letter_queue=sqs.DeadLetterQueue(queue=failed, max_receive_count=TRIES) if failed else None,
        )

    def _rule_name(self, name: str) -> str:
        return self._names.of(f"trigger-{name}")


def _pattern(trigger: Trigger) -> dict[str, object] | None:
    if trigger.bucket is None:
        return trigger.event
    key = [{"prefix": trigger.prefix}] if trigger.prefix else []
    if trigger.suffix:
        # One match in a list of conditions is enough, so a wildcard combines both.
        key = [{"wildcard": f"{trigger.prefix}*{trigger.suffix}"}] if trigger.prefix else [{"suffix": trigger.suffix}]
    detail: dict[str, object] = {"bucket": {"name": [trigger.bucket]}}
    if key:
        detail["object"] = {"key": key}
    return {"source": ["aws.s3"], "detail-type": ["Object Created"], "detail": detail}


def _keys_of(trigger: Trigger) -> str:
    """Return the pattern of the keys of a trigger's objects, for an ARN in a policy."""
    prefix, suffix = (re.sub(r"[*?$]", r"${\g<0>}", text) for text in (trigger.prefix, trigger.suffix))
    return f"{prefix}*{suffix}"


def _effect(trigger: Trigger) -> str:
    return "reports a call" if trigger.calls else f"runs agent {trigger.agent}"


def _id(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))
