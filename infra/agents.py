"""Which resource profiles a deployment needs: its agents' modules say so, as they do in the functions.

Law: the modules are imported from the project's source, with nothing but the registry looked at; one that cannot be
imported stops the synthesis, as it would stop every function.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from helix.core.agents import AnyAgent
from helix.core.registry import default_registry
from helix.core.resources import DEFAULT_PROFILE, ResourceConfig
from helix.infra.config import Settings, SettingsError
from helix.runtime.project import HelixProject

if TYPE_CHECKING:
    from helix.infra.profile import Profile

LONGEST_NAME = 64
"""Of a Lambda function."""


def profiles(settings: Settings, project: HelixProject) -> list[Profile]:
    """`default` first, then one for each agent, or sub-agent of one, that asks for resources."""
    from helix.infra.profile import Profile  # CDK, which takes seconds to import

    own = {agent.name: agent for agent in deployed_agents(settings, project) if agent.profile != DEFAULT_PROFILE}
    for name in own:
        if len(f"helix-{settings.stage}-{name}-call_model") > LONGEST_NAME:
            raise SettingsError(
                f"agent {name!r}: its functions' names are too long for Lambda; shorten it, or the stage's"
            )
        if name == DEFAULT_PROFILE:
            raise SettingsError(f"agent {name!r}: an agent with resources cannot have the shared profile's name")
    return [
        Profile(DEFAULT_PROFILE, provisioned_concurrency=settings.provisioned_concurrency),
        *(
            Profile.of(
                name, ResourceConfig.of(own[name].resources, f"agent {name!r}"), provision=settings.provision_agents
            )
            for name in sorted(own)
        ),
    ]


def deployed_agents(settings: Settings, project: HelixProject) -> Iterator[AnyAgent]:
    """Every agent that the modules register, and every sub-agent of one, once."""
    if (source := str(project.source)) not in sys.path:
        sys.path.insert(0, source)
    for module in settings.agents.split(","):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise SettingsError(f"context key 'agents': {module!r} cannot be imported: {error}") from error
    waiting = [default_registry.resolve(name) for name in default_registry.registered_types()]
    seen: set[str] = set()
    while waiting:
        agent = waiting.pop()
        if agent.name not in seen:
            seen.add(agent.name)
            yield agent
            waiting += [tool.agent for tool in agent.tools if tool.agent is not None]
