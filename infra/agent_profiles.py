"""The resource profiles that a deployment needs, computed from its agents' modules and `[tool.helix]`.

Law: the modules are imported from the project's source, and afterwards only the registry is read. A module that cannot be
imported stops the synthesis, because it would break every function.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from helix.core.agents import AnyAgent
from helix.core.config import LLMConfig
from helix.core.registry import default_registry
from helix.core.resources import DEFAULT_PROFILE, IMAGE_SUFFIX, ResourceConfig, profile_digest
from helix.core.spelling import did_you_mean
from helix.core.tool_settings import WHERE, ToolSettings
from helix.core.tools import AnyTool
from helix.core.verdicts import PLACES
from helix.guards import BedrockGuardrail
from helix.infra.config import Settings, SettingsError
from helix.infra.image_packages import hide_packages, in_images_only
from helix.infra.imports import check_imports, lock_problem, unlocked
from helix.infra.locks import lock_of
from helix.runtime.project import HelixProject

LONGEST_NAME, LONGEST_S = 64, 900
"""The limits on a Lambda function's name, in characters, and on its timeout, in seconds."""
SPARE_S = 15
"""The number of seconds that a function needs beyond its tool or model call, to claim the work and record its result."""


MEMORY_PER_CORE_MB = 1769
MEMORY_LIMITS_MB = (128, 10_240)
NO_TOOLS = ToolSettings()


@dataclass(frozen=True, slots=True)
class Profile:
    """A resource profile of a stage."""

    name: str
    """The name of the profile: `default`, or the name of the one agent in it."""
    memory_mb: int = 0
    """The memory that the agent's resources request, in MB. With 0, each verb keeps its own size."""
    provisioned_concurrency: int = 0
    """The provisioned concurrency of its `call_model`. 0 keeps none warm."""
    tools: ToolSettings = NO_TOOLS
    """The project's declarations for the tools of its agents."""
    declared: bool = False
    """Whether the agent has its own table in `[tool.helix.agent]`."""
    inline: bool = False
    """Whether `call_model` executes some of the tools."""
    guardrails: frozenset[str] = frozenset()
    """The verbs whose functions apply guardrails of Amazon Bedrock, because a guard of an agent does."""
    max_instances: int = 0
    """The maximum number of the agent's instances, which scales its token rate threshold. 0: the agent does not request
    resources and has no alarms."""

    def executes_tools(self, verb: str) -> bool:
        return verb == "call_tool" or (verb == "call_model" and self.inline)

    @classmethod
    def of(cls, name: str, resources: ResourceConfig, *, provision: bool) -> Profile:
        """Return the profile of one agent. Lambda allocates CPU in proportion to memory, so the larger of the two requests
        is used."""
        wished = max(resources.memory_limit_mb or 0, round((resources.cpu_limit or 0) * MEMORY_PER_CORE_MB))
        least, most = MEMORY_LIMITS_MB
        memory = min(max(wished, least), most) if wished else 0
        warm = resources.min_instances if provision else 0
        return cls(name, memory, warm, max_instances=resources.max_instances)


def find_profiles(settings: Settings, project: HelixProject) -> list[Profile]:
    """Return `default` first, then one profile for each agent or sub-agent that requests resources or has its own table.

    Raises `SettingsError` for an agent that cannot be deployed, or a table or trigger that names an unknown agent.
    """
    declared = project.tools
    os.environ.update(declared.of(settings.stage).environment)  # the agents' modules may read it on import
    agents = {agent.name: agent for agent in deployed_agents(settings, project)}
    tables = declared.agents(settings.stage)
    if unknown := [name for name in tables if name not in agents]:
        raise _unknown_agent_error(f"tool.helix.agent.{unknown[0]}", unknown[0], agents)
    for name, trigger in settings.stage_triggers.items():
        if trigger.agent and not default_registry.has(trigger.agent):
            raise _unknown_agent_error(
                f"tool.helix.triggers.{name}", trigger.agent, default_registry.registered_types()
            )
    own = {name: agent for name, agent in agents.items() if agent.profile != DEFAULT_PROFILE or name in tables}
    _check_digests(tables, [name for name in agents if name not in own])
    for name in own:
        image = IMAGE_SUFFIX if declared.of(settings.stage, name).image else ""
        if len(f"helix-{settings.stage}-{name}-call_model{image}") > LONGEST_NAME:
            raise SettingsError(
                f"agent {name!r}: its functions' names are too long for Lambda; shorten it, or the stage's"
            )
        if name == DEFAULT_PROFILE:
            raise SettingsError(f"agent {name!r}: an agent with resources cannot have the shared profile's name")
    shared = Profile(DEFAULT_PROFILE, provisioned_concurrency=settings.provisioned_concurrency)
    made = [_add_tools(shared, declared.of(settings.stage), [a for a in agents.values() if a.name not in own])]
    for name in sorted(own):
        resources = ResourceConfig.of(own[name].resources, f"agent {name!r}") if own[name].resources else None
        profile = Profile.of(name, resources, provision=settings.provision_agents) if resources else Profile(name)
        profile = replace(profile, declared=name in tables)
        made.append(_add_tools(profile, declared.of(settings.stage, name), [own[name]]))
    return made


def _check_digests(declared: Collection[str], others: Collection[str]) -> None:
    """Check that no agent without a table has the same digest as one with a table. Functions identify the agents in
    `[tool.helix.agent]` by their digests. Raises `SettingsError`."""
    known = {profile_digest(name): name for name in declared}
    for name in others:
        if (same := known.get(profile_digest(name))) is not None:
            raise SettingsError(f"agents {same!r} and {name!r} have the same digest by chance: rename one of them")


def _unknown_agent_error(place: str, agent: str, known: Collection[str]) -> SettingsError:
    listed = ", ".join(sorted(known)) or "none"
    return SettingsError(
        f"{WHERE}: {place}: there is no agent {agent!r}; there are {listed}{did_you_mean(agent, known)}"
    )


def _add_tools(profile: Profile, tools: ToolSettings, agents: list[AnyAgent]) -> Profile:
    """Return the profile with its tools. Raises `SettingsError` for a model or tool that may take longer than its
    function, and for an inline tool of an agent with a container image."""
    for agent in agents:
        check_times(agent, tools.timeout_s)
        if tools.image and (beside := [tool.name for tool in agent.tools if agent.is_inline(tool)]):
            problem = f"tool {beside[0]!r} of agent {agent.name!r} is inline, so call_model would execute it"
            advice = "call_model is not a container image: remove inline, or set image for other agents only"
            raise SettingsError(f"{WHERE}: tool.helix: image: {problem}; {advice}")
    inline = any(agent.is_inline(tool) for agent in agents for tool in agent.tools)
    return replace(profile, tools=tools, inline=inline, guardrails=frozenset(_guardrail_verbs(agents)))


def _guardrail_verbs(agents: list[AnyAgent]) -> Iterator[str]:
    """Yield the verbs whose functions apply guardrails of Amazon Bedrock. `call_tool` judges results, which may be an
    agent's output; `call_model` judges everything else, and the results of inline tools."""
    for agent in agents:
        for guard in agent.guards:
            if any(isinstance(getattr(guard, place), BedrockGuardrail) for place in PLACES):
                yield "call_model"
            if isinstance(guard.result, BedrockGuardrail) or isinstance(guard.output, BedrockGuardrail):
                yield "call_tool"


def ends_calls_elsewhere() -> bool:
    """Return whether a tool of a registered agent lets other systems end its calls."""
    return any(tool.later for agent in registered_agents() for tool in agent.tools)


def check_times(agent: AnyAgent, declared_s: int | None) -> None:
    """Check the timeouts of the agent's model and tools. `declared_s`: `timeout_s` of `[tool.helix]`.

    Raises `SettingsError` for a tool that may take longer than its function. One delivery executes a tool with all its
    retries. If the delivery timed out, every redelivery would fail in the same way. One model attempt must fit too; its
    retries use the remaining time.
    """
    longest = LONGEST_S - SPARE_S
    if isinstance(agent.llm_config, LLMConfig) and agent.llm_config.timeout_s > longest:
        problem = f"the model of agent {agent.name!r} may take {agent.llm_config.timeout_s:g} s for one try"
        raise SettingsError(f"{problem}, and call_model has {LONGEST_S} s: lower timeout_s of LLMConfig to {longest}")
    for tool in agent.tools:
        if tool.execute is not None:
            _check_time(agent, tool, declared_s)


def _check_time(agent: AnyAgent, tool: AnyTool, declared_s: int | None) -> None:
    limit = LONGEST_S if declared_s is None or agent.is_inline(tool) else declared_s
    takes = (tool.retries + 1) * tool.timeout_s + sum(0.5 * 2**n for n in range(tool.retries))
    if takes + SPARE_S <= limit:
        return
    repeats = f", {tool.retries} repeats included," if tool.retries else ""
    problem = f"tool {tool.name!r} of agent {agent.name!r} may take {takes:g} s{repeats} and its function has {limit} s"
    advice = "lower its timeout_s or retries" if tool.retries else "lower its timeout_s"
    if limit < LONGEST_S and not agent.is_inline(tool):
        advice += f", or raise timeout_s of tool.helix, to {LONGEST_S} at most"
    raise SettingsError(f"{WHERE}: {problem}, {SPARE_S} of them for other work: {advice}")


def deployed_agents(settings: Settings, project: HelixProject) -> Iterator[AnyAgent]:
    """Import the modules, and yield every agent that they register and every sub-agent, once."""
    if (source := str(project.source)) not in sys.path:
        sys.path.insert(0, source)
    absent = frozenset[str]()
    if not (settings.offline or settings.deps):  # otherwise the functions' packages differ from the lock's
        lock = lock_of(project, settings)
        check_imports(settings, project, lock)
        absent = unlocked(settings, project, lock)
    with (
        hide_packages(absent, f"would not be in the functions, because {lock_problem(project)}"),
        hide_packages(in_images_only(settings, project)),
    ):
        for module in settings.agents.split(","):
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise SettingsError(f"context key 'agents': {module!r} cannot be imported: {error}") from error
    yield from registered_agents()


def registered_agents() -> Iterator[AnyAgent]:
    """Yield every agent in the registry and every sub-agent, once."""
    waiting = [default_registry.resolve(name) for name in default_registry.registered_types()]
    seen: set[str] = set()
    while waiting:
        agent = waiting.pop()
        if agent.name not in seen:
            seen.add(agent.name)
            yield agent
            waiting += [tool.agent for tool in agent.tools if tool.agent is not None]
