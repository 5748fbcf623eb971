"""The permissions to call models of Amazon Bedrock and to apply its guardrails.

Law: agents name models and guardrails in their code, in any region, so the permissions cover all of the account.
"""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from helix.infra.nag import explain_resource

OF_BEDROCK = {"region": "*", "service": "bedrock", "resource_name": "*"}


def grant_bedrock(role: iam.Role) -> None:
    """Let `role` call any model of Amazon Bedrock and apply guardrails. A cross-region inference profile forwards calls to
    models in other regions."""
    stack = Stack.of(role)
    models = [stack.format_arn(**OF_BEDROCK, account="", resource="foundation-model")]
    models += [
        stack.format_arn(**OF_BEDROCK, resource=kind) for kind in ("inference-profile", "application-inference-profile")
    ]
    _grant_in_any_region(role, "bedrock:InvokeModelWithResponseStream", models)
    grant_guardrails(role)


def grant_guardrails(role: iam.Role) -> None:
    """Let `role` apply guardrails of Amazon Bedrock. A guardrail profile forwards them to other regions."""
    stack = Stack.of(role)
    guardrails = [stack.format_arn(**OF_BEDROCK, resource=kind) for kind in ("guardrail", "guardrail-profile")]
    _grant_in_any_region(role, "bedrock:ApplyGuardrail", guardrails)


def _grant_in_any_region(role: iam.Role, action: str, arns: list[str]) -> None:
    iam.Grant.add_to_principal(grantee=role, actions=[action], resource_arns=arns)
    for arn in arns:
        explain_resource(
            role, arn, "Agents name models and guardrails in any region. Calls cost money and read no data."
        )
