"""One state machine, with its definition, role and error log.

Law: its role may only invoke the aliases that the definition uses. Its log does not contain execution data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from helix.infra.definition import VERBS, definition, substitutions
from helix.infra.function import Function, FunctionInputs
from helix.infra.logs import VENDED, log_group
from helix.infra.nag import explain

HOUR_S = 3600


class Machine(Construct):
    """The state machine of one profile. `functions`: every function that `definition.VERBS` names, by verb."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        inputs: FunctionInputs,
        profile: str,
        functions: Mapping[str, Function],
    ) -> None:
        super().__init__(scope, construct_id)
        settings, name = inputs.settings, inputs.names.machine(profile)
        arns = {verb: function.live.function_arn for verb, function in functions.items()}
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
            description=f"Permissions of the state machine {name}",
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["lambda:InvokeFunction"], resources=list(dict.fromkeys(arns[verb] for verb in VERBS.values()))
            )
        )
        asl = definition(run_s=settings.run_days * 24 * HOUR_S, child_s=settings.child_hours * HOUR_S)
        group = log_group(self, "Logs", f"{VENDED}/states/{name}", settings=settings, keys=inputs.keys)
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            state_machine_name=name,
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(json.dumps(asl, separators=(",", ":"))),
            definition_substitutions=substitutions(arns, Aws.PARTITION),
            role=role,
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=group, level=sfn.LogLevel.ERROR, include_execution_data=False),
        )
        why = "The actions that deliver logs and traces do not support resource ARNs."
        explain(role, "IAM5[Resource::*]", why)
        why = "Only errors are logged. Step Functions has the full history, and logging it would double the cost."
        explain(self.machine, "SF1", why)
