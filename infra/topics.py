"""Two topics: CloudWatch publishes to `alarms`, to which `govern` subscribes; `govern` publishes to `notices`. People
may subscribe to both.

Law: topics are encrypted with the stage's key if it has one. Otherwise they have no key, because CloudWatch cannot publish
to a topic with the key `aws/sns`, and SNS encrypts its storage in any case. They accept only TLS. `govern` does not receive
the notices that it publishes, so it cannot wake itself.
"""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from helix.infra.config import Settings
from helix.infra.function import Function
from helix.infra.keys import Keys, alarms_of
from helix.infra.nag import explain_template
from helix.infra.names import Names

STALE = Duration.minutes(5)
"""The age at which an undelivered alarm is dropped. By then the schedule has started `govern` anyway."""


class Topics(Construct):
    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings, names: Names, keys: Keys) -> None:
        super().__init__(scope, construct_id)
        self._keys = keys
        self.alarms, self.notices = (
            sns.Topic(self, name.capitalize(), topic_name=names.of(name), master_key=keys.key, enforce_ssl=True)
            for name in ("alarms", "notices")
        )
        # A custom policy replaces the default topic policy, which would allow CloudWatch to publish.
        self.alarms.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AllowAlarms",
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[self.alarms.topic_arn],
                conditions=alarms_of(Stack.of(self), names),
            )
        )
        if settings.alarm_email:
            for topic in (self.alarms, self.notices):
                topic.add_subscription(subscriptions.EmailSubscription(settings.alarm_email))

    def grant_notify(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` publish notices."""
        arn = self.notices.topic_arn
        iam.Grant.add_to_principal(grantee=grantee, actions=["sns:Publish"], resource_arns=[arn])
        self._keys.grant_use(grantee, services=["sns"], actions=("kms:Decrypt", "kms:GenerateDataKey"))

    def wake(self, function: Function) -> None:
        """Let each alarm of the stage invoke `function`."""
        made = self.alarms.add_subscription(subscriptions.LambdaSubscription(function.live))
        explain_template(made, "W3694", "All callers use the alias, which is a valid target here.")
        function.live.configure_async_invoke(retry_attempts=2, max_event_age=STALE)
