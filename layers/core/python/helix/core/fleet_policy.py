"""What an agent says of its own scaling: `Agent(resources={"min": 1, "max": 8, "scaling": {"queue_depth_threshold": 3}})`.

Law: there is one place for each thing. Bounds are `min_instances` and `max_instances` of its resources, budgets are set
where they are enforced, and `scaling` has the rest, under the names of the policies.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.cost_status import CostThresholds
from helix.core.llm_scaling import CostAwareScalingPolicy, Targets, TokenAwareScalingPolicy
from helix.core.resources import ResourceConfig
from helix.core.scaling import Steps


class FleetPolicy(Steps, Targets, CostThresholds):
    """Every option has the policies' default. Raises `ValueError` for one that they do not have."""


def policy_of(resources: ResourceConfig, costs: Mapping[str, float]) -> CostAwareScalingPolicy:
    """The policy of the limit of an agent with these resources. `costs`: its budgets in US dollars, as `max_cost_per_hour`,
    `max_cost_per_day` and `max_cost_per_month`.

    One run may always begin: a limit of 0 saves nothing, and the next run would wait until a person looks.
    """
    policy = FleetPolicy.model_validate(resources.scaling)
    bounds = {"min_instances": max(resources.min_instances, 1), "max_instances": resources.max_instances}
    moves = policy.model_dump(exclude=set(CostThresholds.model_fields))
    thresholds = policy.model_dump(include=set(CostThresholds.model_fields))
    base = TokenAwareScalingPolicy.model_validate({**bounds, **moves})
    return CostAwareScalingPolicy.model_validate({**bounds, **thresholds, **costs, "base_scaling_policy": base})
