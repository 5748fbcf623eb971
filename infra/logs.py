"""Log groups. They have fixed names, and are encrypted with the stage's key or with CloudWatch's own. Their lines expire
after the configured time."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from helix.infra.config import Settings
from helix.infra.keys import Keys
from helix.infra.nag import explain_resource
from helix.infra.names import Names

VENDED = "/aws/vendedlogs"
"""The name prefix of each group that an AWS service writes to. Groups with other names are listed individually in an
account-level resource policy, which is limited to 5,120 characters. Beyond that, no further stage or state machine can be
created (https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/AWS-logs-and-resource-policy.html)."""
_RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    731: logs.RetentionDays.TWO_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
}


def log_group(scope: Construct, construct_id: str, name: str, *, settings: Settings, keys: Keys) -> logs.LogGroup:
    """Create a log group. It is deleted with the stack even if data is retained, because logs are not durable data."""
    return logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        retention=_RETENTION[settings.log_retention_days],
        encryption_key=keys.key,
        removal_policy=RemovalPolicy.DESTROY,
    )


def grant_search(grantee: iam.Role, names: Names) -> None:
    """Let `grantee` search the log groups of the stage's functions, by their common prefix. A stage's name does not
    contain a dash, so the prefix is that of no other stage."""
    arn = names.log_groups_arn(Stack.of(grantee))
    iam.Grant.add_to_principal(grantee=grantee, actions=["logs:FilterLogEvents"], resource_arns=[arn])
    explain_resource(grantee, arn, "The functions of agents with resources are named after the agents.")
