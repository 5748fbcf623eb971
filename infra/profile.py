"""A resource profile: the functions that execute its agents, and the state machine that calls them.

Law: agents that do not request resources share the profile `default`. An agent that requests resources, or has a table in
`[tool.helix.agent]`, has its own profile in a nested stack, with the requested memory and CPU. Profiles execute tools, so
they have the settings and permissions of the tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from aws_cdk import NestedStack
from constructs import Construct

from helix.infra.agent_profiles import Profile
from helix.infra.bedrock_rights import grant_guardrails
from helix.infra.function import Function, FunctionInputs
from helix.infra.layers import Layers
from helix.infra.machine import Machine
from helix.infra.tool_rights import grant_tools
from helix.infra.verbs import PROFILE_VERBS

Grant = Callable[[Function], None]
"""A callback that grants a function the permissions of its verb."""


class ProfileFunctions(Construct):
    """The functions and the state machine of one profile. `shared`: the stage-wide functions, which every state machine
    also calls."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        profile: Profile,
        inputs: FunctionInputs,
        grant: Grant,
        shared: Mapping[str, Function],
    ) -> None:
        super().__init__(scope, construct_id)
        self.functions = {
            verb: Function(
                self,
                construct_name(verb),
                verb=verb,
                inputs=inputs,
                profile=profile.name,
                memory_mb=profile.memory_mb,
                provisioned_concurrency=profile.provisioned_concurrency if verb == "call_model" else 0,
                tools=profile.tools,
                executes_tools=profile.executes_tools(verb),
            )
            for verb in PROFILE_VERBS
        }
        for function in self.functions.values():
            grant(function)
            if function.verb in profile.guardrails:
                grant_guardrails(function.role)
            if profile.executes_tools(function.verb):
                grant_tools(function.role, profile.tools)
        self.machine = Machine(
            self, "Machine", inputs=inputs, profile=profile.name, functions={**shared, **self.functions}
        )


class ProfileStack(NestedStack):
    """A nested stack for the profile of one agent. It allows agents to be added and removed without changing the rest of
    the stage, and their resources do not count toward the stage's limit of 500."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        profile: Profile,
        inputs: FunctionInputs,
        grant: Grant,
        shared: Mapping[str, Function],
    ) -> None:
        super().__init__(scope, construct_id, description=f"Helix, stage {inputs.settings.stage}: agent {profile.name}")
        if inputs.settings.for_sam:  # sam looks for layers only in the function's own template
            inputs = replace(inputs, layers=Layers(self, "Layers", settings=inputs.settings, project=inputs.project))
        made = ProfileFunctions(self, "Profile", profile=profile, inputs=inputs, grant=grant, shared=shared)
        self.functions = made.functions


def construct_name(verb: str) -> str:
    """Return the construct name of a verb in templates and state machines: `call_model` -> `CallModel`."""
    return "".join(word.capitalize() for word in verb.split("_"))
