"""A resource profile: the functions that execute its agents, and the state machine that calls them.

Law: agents that ask for nothing share the profile `default`; an agent that asks has a profile of its own, in a nested
stack, with the memory and the processor it asked for. Tools are executed here, so their settings and rights are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from aws_cdk import NestedStack
from constructs import Construct

from helix.core.resources import ResourceConfig
from helix.core.tool_settings import ToolSettings
from helix.infra.function import NO_TOOLS, Function, Kit
from helix.infra.layers import Layers
from helix.infra.machine import Machine
from helix.infra.tool_rights import grant_tools

PROFILE_VERBS = ("call_model", "call_tool")
MEMORY_PER_CORE_MB = 1769
MEMORY_LIMITS_MB = (128, 10_240)

Grant = Callable[[Function], None]
"""Gives a function the rights of its verb."""


@dataclass(frozen=True, slots=True)
class Profile:
    """memory_mb: 0 leaves each verb its own size. max_instances: 0 without resources. tools: what the project declares for
    them; declared: whether in a table of the agent's own; inline: whether `call_model` executes some of them."""

    name: str
    memory_mb: int = 0
    provisioned_concurrency: int = 0
    tools: ToolSettings = NO_TOOLS
    declared: bool = False
    inline: bool = False
    max_instances: int = 0

    def executes_tools(self, verb: str) -> bool:
        return verb == "call_tool" or (verb == "call_model" and self.inline)

    @classmethod
    def of(cls, name: str, resources: ResourceConfig, *, provision: bool) -> Profile:
        """An agent's own. Lambda gives processors with memory, so the larger of both wishes counts."""
        wished = max(resources.memory_limit_mb or 0, round((resources.cpu_limit or 0) * MEMORY_PER_CORE_MB))
        least, most = MEMORY_LIMITS_MB
        memory = min(max(wished, least), most) if wished else 0
        warm = resources.min_instances if provision else 0
        return cls(name, memory, warm, max_instances=resources.max_instances)


class ProfileFunctions(Construct):
    """`shared`: the functions of the whole stage, which every machine calls too."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        profile: Profile,
        kit: Kit,
        grant: Grant,
        shared: Mapping[str, Function],
    ) -> None:
        super().__init__(scope, construct_id)
        self.functions = {
            verb: Function(
                self,
                construct_name(verb),
                verb=verb,
                kit=kit,
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
            if profile.executes_tools(function.verb):
                grant_tools(function.role, profile.tools)
        self.machine = Machine(self, "Machine", kit=kit, profile=profile.name, functions={**shared, **self.functions})


class ProfileStack(NestedStack):
    """The profile of one agent, apart: agents come and go without touching the rest, or its 500 resources."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        profile: Profile,
        kit: Kit,
        grant: Grant,
        shared: Mapping[str, Function],
    ) -> None:
        super().__init__(scope, construct_id, description=f"Helix, stage {kit.settings.stage}: agent {profile.name}")
        if kit.settings.for_sam:  # which looks for layers only in the template that has the function
            kit = replace(kit, layers=Layers(self, "Layers", settings=kit.settings, project=kit.project))
        made = ProfileFunctions(self, "Profile", profile=profile, kit=kit, grant=grant, shared=shared)
        self.functions = made.functions


def construct_name(verb: str) -> str:
    """`call_model` -> `CallModel`: what a verb is called in templates and state machines."""
    return "".join(word.capitalize() for word in verb.split("_"))
