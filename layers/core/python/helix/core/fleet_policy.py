"""An agent's own scaling options: `Agent(resources={"min": 1, "max": 8, "scaling": {"queue_depth_threshold": 3}})`.

Law: there is one place for each option. Bounds are `min_instances` and `max_instances` of the agent's resources.
Budgets are set where they are enforced. `scaling` has the rest, under the names of the policies.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.cost_status import CostThresholds
from helix.core.llm_scaling import CostAwareScalingPolicy, Targets, TokenAwareScalingPolicy
from helix.core.resources import ResourceConfig
from helix.core.scaling import Steps

LEAST = {"scale_up_cooldown": 10.0, "scale_down_cooldown": 30.0}
"""The shortest cooldowns that `Steps` takes."""


class FleetPolicy(Steps, Targets, CostThresholds):
    """The options that `scaling` takes, with the policies' defaults. Raises `ValueError` for an unknown option."""


def policy_of(resources: ResourceConfig, costs: Mapping[str, float], *, early_s: float = 0.0) -> CostAwareScalingPolicy:
    """Return the scaling policy of an agent with these resources.

    `costs` has the agent's budgets in US dollars, as `max_cost_per_hour`, `max_cost_per_day` and `max_cost_per_month`.
    `early_s` is the time by which pauses may be shorter than their cooldowns. The minimum is at least 1: a limit of 0
    saves nothing, and the next run would wait until a person looks.
    """
    policy = FleetPolicy.model_validate(resources.scaling)
    bounds = {"min_instances": max(resources.min_instances, 1), "max_instances": resources.max_instances}
    moves = policy.model_dump(exclude=set(CostThresholds.model_fields))
    for name in ("scale_up_cooldown", "scale_down_cooldown"):
        moves[name] = max(moves[name] - early_s, LEAST[name])
    thresholds = policy.model_dump(include=set(CostThresholds.model_fields))
    base = TokenAwareScalingPolicy.model_validate({**bounds, **moves})
    return CostAwareScalingPolicy.model_validate({**bounds, **thresholds, **costs, "base_scaling_policy": base})
