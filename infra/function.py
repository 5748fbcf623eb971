"""One Lambda function, with its role, log group, code, version and alias.

Law: a verb's folder contains its code, and callers use its alias `live`. Its role may write its own log, and receives
further permissions from the `grant_*` methods of other constructs. No permission is inherited or shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Annotations, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from helix.core.resources import DEFAULT_PROFILE
from helix.core.tool_settings import ToolSettings
from helix.infra.config import Settings
from helix.infra.environment_size import check_environment
from helix.infra.keys import Keys
from helix.infra.layers import RUNTIMES, Layers
from helix.infra.logs import log_group
from helix.infra.nag import explain
from helix.infra.names import ALIAS, Names
from helix.infra.verbs import WITHOUT_AGENTS, memory_of, size_of
from helix.runtime.cloud_settings import variable
from helix.runtime.project import HelixProject, shipped

SERVICE_NAME = "POWERTOOLS_SERVICE_NAME"


@dataclass(frozen=True, slots=True)
class FunctionInputs:
    """The shared inputs from which every function of a stage is created."""

    settings: Settings
    """The settings of the stage."""
    project: HelixProject
    """The project whose agents are deployed."""
    names: Names
    """The names of the stage's resources."""
    keys: Keys
    """The key that encrypts the functions' logs, or none with `key=aws`."""
    layers: Layers
    """The layers and container images with the functions' packages."""
    environment: Mapping[str, str]
    """The environment variables of every function."""
    own: Mapping[str, Mapping[str, str]]
    """The additional environment variables of one verb's function, by verb."""
    tools: ToolSettings
    """The project's declarations for the tools of agents that do not have their own table in `[tool.helix.agent]`."""


class Function(Construct):
    """The Lambda function of one verb. `live` is its alias.

    memory_mb: replaces the verb's own memory if it is larger. tools: the project's declarations for the agents of this
    function; by default the stage's. executes_tools: whether the function executes their tools.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        verb: str,
        inputs: FunctionInputs,
        profile: str = DEFAULT_PROFILE,
        memory_mb: int = 0,
        provisioned_concurrency: int = 0,
        reserved_concurrency: int = 0,
        tools: ToolSettings | None = None,
        executes_tools: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        declared = tools or inputs.tools
        settings, size = inputs.settings, size_of(verb)
        packages = declared.image if executes_tools and not settings.offline else None
        name = (inputs.names.image_function if packages else inputs.names.function)(verb, profile)
        arm = settings.target_architecture == "arm64"
        self.verb = verb
        self.role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=f"What {name} may do"
        )
        group = log_group(self, "Logs", f"/aws/lambda/{name}", settings=settings, keys=inputs.keys)
        group.grant_write(self.role)
        own = inputs.own.get(verb, {})
        environment = {
            **({} if verb in WITHOUT_AGENTS else declared.environment),
            **({variable("secrets"): _format_places(declared)} if executes_tools and declared.secrets else {}),
            **inputs.environment,
            **own,
            SERVICE_NAME: verb,
        }
        check_environment(name, Stack.of(self).resolve(environment), own)
        options: dict[str, Any] = {
            "function_name": name,
            "description": f"Helix {verb}" if profile == DEFAULT_PROFILE else f"Helix {verb}, for agent {profile}",
            "architecture": lambda_.Architecture.ARM_64 if arm else lambda_.Architecture.X86_64,
            "role": self.role,
            "log_group": group,
            "timeout": Duration.seconds((verb == "call_tool" and declared.timeout_s) or size.timeout_s),
            "memory_size": memory_of(verb, settings, memory_mb, (executes_tools and declared.memory_mb) or 0),
            "environment": environment,
            "reserved_concurrent_executions": reserved_concurrency or None,
        }
        self.function = (
            lambda_.DockerImageFunction(self, "Function", code=inputs.layers.image(profile, packages), **options)
            if packages
            else _make_zip_function(self, verb, inputs, options)
        )
        if executes_tools and declared.vpc is not None:
            place = {"subnet_ids": list(declared.vpc.subnets), "security_group_ids": list(declared.vpc.security_groups)}
            self.function.node.default_child.vpc_config = lambda_.CfnFunction.VpcConfigProperty(**place)
        built_for = (
            f"Layers and tests are made for Python {settings.python}. The context key `python` selects the version."
        )
        explain(self.function, "L1", built_for)
        self.live = lambda_.Alias(
            self,
            "Live",
            alias_name=ALIAS,
            version=self.function.current_version,
            provisioned_concurrent_executions=provisioned_concurrency or None,
        )


def _make_zip_function(
    scope: Construct, verb: str, inputs: FunctionInputs, options: Mapping[str, Any]
) -> lambda_.Function:
    settings = inputs.settings
    snap_start = settings.snap_start and verb == "call_model"
    function = lambda_.Function(
        scope,
        "Function",
        runtime=RUNTIMES[settings.python],
        handler="handler.handler",
        code=lambda_.Code.from_asset(str(shipped("functions") / verb), exclude=["__pycache__", "*.pyc"]),
        layers=inputs.layers.of(verb),
        snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if snap_start else None,
        **options,
    )
    if snap_start:
        warning = "@aws-cdk/aws-lambda:snapStartRequirePublish"
        Annotations.of(function).acknowledge_warning(warning, "The alias publishes a version.")
    return function


def _format_places(tools: ToolSettings) -> str:
    """Return the places of the secrets in the format of `CloudSettings.secrets`. The place itself is not secret."""
    return ",".join(f"{name}={place}" for name, place in tools.secrets.items())
