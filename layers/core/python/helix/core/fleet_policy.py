"""An agent's own scaling options: `Agent(resources={"min": 1, "max": 8, "scaling": {"queue_depth_threshold": 3}})`.

Law: each option is set in exactly one place. The bounds are `min_instances` and `max_instances` in the agent's
resources, and budgets are set where they are enforced. `scaling` takes all other options, under the names that the
policies use.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.cost_status import CostThresholds
from helix.core.llm_scaling import CostAwareScalingPolicy, Targets, TokenAwareScalingPolicy
from helix.core.resources import ResourceConfig
from helix.core.scaling import Steps

LEAST = {"scale_up_cooldown": 10.0, "scale_down_cooldown": 30.0}
"""The shortest cooldowns that `Steps` accepts."""


class FleetPolicy(Steps, Targets, CostThresholds):
    """The options that `scaling` accepts, with the policies' defaults. Raises `ValueError` for an unknown option."""


def policy_of(resources: ResourceConfig, costs: Mapping[str, float], *, early_s: float = 0.0) -> CostAwareScalingPolicy:
    """Return the scaling policy of an agent with these resources.

    `costs` has the agent's budgets in US dollars, as `max_cost_per_hour`, `max_cost_per_day` and `max_cost_per_month`.
    `early_s` shortens the cooldowns by that many seconds, but not below `LEAST`. The minimum is at least 1: a limit of
    0 saves nothing, and the next run would wait until a person intervenes.
    """
    policy = FleetPolicy.model_validate(resources.scaling)
    bounds = {"min_instances": max(resources.min_instances, 1), "max_instances": resources.max_instances}
    moves = policy.model_dump(exclude=set(CostThresholds.model_fields))
    for name in ("scale_up_cooldown", "scale_down_cooldown"):
        moves[name] = max(moves[name] - early_s, LEAST[name])
    thresholds = policy.model_dump(include=set(CostThresholds.model_fields))
    base = TokenAwareScalingPolicy.model_validate({**bounds, **moves})
    return CostAwareScalingPolicy.model_validate({**bounds, **thresholds, **costs, "base_scaling_policy": base})
