"""A `StepFunctionsExecutor` on the offline cloud, with the settings of its functions and the administrator's
credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support.cloud_agents.cast import EDITION
from tests.support.offline_cloud import CloudForTests

from helix.runtime.cloud import Application
from helix.runtime.cloud_settings import read_cloud_settings
from helix.runtime.launching import StepFunctionsExecutor

AGENTS = "tests.support.cloud_agents"
STEP_VERBS = ("call_model", "call_tool")


class AdminApplication(Application):
    """An application outside of Lambda, whose clients are the administrator's."""

    def __init__(self, cloud: CloudForTests) -> None:
        told = variables_of(cloud, "ws_message")
        super().__init__(replace(read_cloud_settings(told), agents=(AGENTS,), model=""), told)
        self._cloud = cloud

    def client(self, service: str, *, endpoint: str | None = None, config: Any = None) -> Any:
        return self._cloud.aws(service)


def cloud_executor(cloud: CloudForTests) -> StepFunctionsExecutor:
    return AdminApplication(cloud).executor


def variables_of(cloud: CloudForTests, verb: str) -> dict[str, str]:
    found = cloud.aws("lambda").get_function_configuration(FunctionName=cloud.cloud.function(verb), Qualifier="live")
    told: dict[str, str] = found["Environment"]["Variables"]
    return told


def deploy_edition(cloud: CloudForTests, name: str) -> None:
    """Publish a new version of each step function and move its alias there, as `cdk deploy` does when only the agents
    changed."""
    for verb in STEP_VERBS:
        configure(cloud, verb, variables={EDITION: name})


def configure(cloud: CloudForTests, verb: str, *, variables: Mapping[str, str] | None = None, **more: Any) -> None:
    """Change a function, publish it, and move its alias there at once. `variables` are added to its environment."""
    functions, name = cloud.aws("lambda"), cloud.cloud.function(verb)
    if variables:
        more["Environment"] = {"Variables": {**variables_of(cloud, verb), **variables}}
    functions.update_function_configuration(FunctionName=name, **more)
    version = functions.publish_version(FunctionName=name)["Version"]
    functions.update_alias(FunctionName=name, Name="live", FunctionVersion=version)
