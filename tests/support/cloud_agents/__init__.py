"""The agents and the model that the e2e tests deploy: HELIX_AGENTS=cloud_agents, HELIX_MODEL=import:cloud_agents:model."""

from helix.core.registry import default_registry

from .cast import CAST
from .crashes import arm_this_process
from .planned import PlannedModel

model = PlannedModel()

for agent in CAST:
    default_registry.replace(agent)
arm_this_process()
