"""The permissions of a project's tools, in the roles of the functions that execute them.

Law: a helper grants exactly the actions that its name says, on exactly one resource. `statements` are used unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam

from helix.core.tool_settings import Rights, ToolSettings
from helix.infra.nag import explain, explain_resource

READ_TABLE = ("BatchGetItem", "ConditionCheckItem", "DescribeTable", "GetItem", "Query", "Scan")
WRITE_TABLE = ("BatchWriteItem", "DeleteItem", "DescribeTable", "PutItem", "UpdateItem")
NETWORK = (
    "AssignPrivateIpAddresses",
    "CreateNetworkInterface",
    "DeleteNetworkInterface",
    "DescribeNetworkInterfaces",
    "DescribeSubnets",
    "UnassignPrivateIpAddresses",
)
"""The EC2 actions that Lambda performs with the function's role to connect it to a VPC. They are those of
AWSLambdaVPCAccessExecutionRole."""
DECLARED = "The project's [tool.helix.rights] declares it for its tools."

Grant = tuple[list[str], list[str]]
"""Actions, and the ARNs that they apply to."""


def grant_tools(role: iam.Role, tools: ToolSettings) -> None:
    stack = Stack.of(role)
    for actions, arns in [*_secret_grants(stack, tools), *_helper_grants(stack, tools.rights)]:
        iam.Grant.add_to_principal(grantee=role, actions=actions, resource_arns=arns)
        _explain(role, actions, arns)
    for statement in tools.rights.statements:
        actions, arns = list(statement.actions), list(statement.resources)
        role.add_to_principal_policy(
            iam.PolicyStatement(actions=actions, resources=arns, conditions=statement.conditions or None)
        )
        _explain(role, actions, arns)
    if tools.vpc is not None:
        actions = [f"ec2:{verb}" for verb in NETWORK]
        iam.Grant.add_to_principal(grantee=role, actions=actions, resource_arns=["*"])
        explain_resource(
            role, "*", "Lambda creates the function's network interfaces, whose names are not known before."
        )


def _secret_grants(stack: Stack, tools: ToolSettings) -> Iterator[Grant]:
    for place in tools.secrets.values():
        yield [place.action], [place.resource(stack.partition, stack.region, stack.account)]


def _helper_grants(stack: Stack, rights: Rights) -> Iterator[Grant]:
    def arn(name: str, service: str, resource: str = "") -> str:
        if name.startswith("arn:"):
            return name
        form = ArnFormat.COLON_RESOURCE_NAME if service == "lambda" else ArnFormat.SLASH_RESOURCE_NAME
        named = {"resource": resource, "resource_name": name, "arn_format": form}
        plain = {"resource": name, "arn_format": ArnFormat.NO_RESOURCE_NAME}
        place = {"region": "", "account": ""} if service == "s3" else {}
        return str(stack.format_arn(service=service, **place, **(named if resource else plain)))

    for name in rights.read_buckets:
        yield ["s3:ListBucket"], [arn(name, "s3")]
        yield ["s3:GetObject"], [f"{arn(name, 's3')}/*"]
    for name in rights.write_buckets:
        yield ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject"], [f"{arn(name, 's3')}/*"]
    for names, verbs in ((rights.read_tables, READ_TABLE), (rights.write_tables, WRITE_TABLE)):
        for name in names:
            table = arn(name, "dynamodb", "table")
            indexes = [f"{table}/index/*"] if verbs is READ_TABLE else []
            yield [f"dynamodb:{verb}" for verb in verbs], [table, *indexes]
    for name in rights.send_queues:
        yield ["sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"], [arn(name, "sqs")]
    for name in rights.publish_topics:
        yield ["sns:Publish"], [arn(name, "sns")]
    for name in rights.invoke_functions:
        function = arn(name, "lambda", "function")
        yield ["lambda:InvokeFunction"], [function, f"{function}:*"]
    for key in rights.use_keys:
        yield ["kms:Decrypt", "kms:GenerateDataKey"], [key]


def _explain(role: iam.Role, actions: list[str], arns: list[str]) -> None:
    for action in actions:
        if "*" in action:
            explain(role, f"IAM5[Action::{action}]", DECLARED)
    for arn in arns:
        if "*" in arn:
            explain_resource(role, arn, DECLARED)
