"""An agent's own scaling settings, and the policy made of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support_run import agent

from helix.core.errors import DefinitionError
from helix.core.fleet_policy import FleetPolicy, policy_of
from helix.core.llm_scaling import CostAwareScalingPolicy, TokenAwareScalingPolicy
from helix.core.resources import ResourceConfig


def test_without_options_the_policies_are_the_defaults_within_the_bounds() -> None:
    policy = policy_of(ResourceConfig(min_instances=2, max_instances=6), {})
    base = TokenAwareScalingPolicy(min_instances=2, max_instances=6)
    assert policy == CostAwareScalingPolicy(min_instances=2, max_instances=6, base_scaling_policy=base)


def test_options_and_budgets_reach_the_policies() -> None:
    scaling = {"queue_depth_threshold": 2, "scale_up_step": 3, "cost_warning_threshold": 0.5, "oscillation_lock": 0}
    policy = policy_of(ResourceConfig(max_instances=6, scaling=scaling), {"max_cost_per_day": 20.0})
    assert (policy.cost_warning_threshold, policy.max_cost_per_day, policy.max_cost_per_hour) == (0.5, 20, None)
    base = policy.base_scaling_policy
    assert base is not None
    assert (base.queue_depth_threshold, base.scale_up_step, base.oscillation_lock) == (2, 3, 0)


def test_one_run_may_always_begin() -> None:
    assert policy_of(ResourceConfig(min_instances=0, max_instances=4), {}).min_instances == 1


def test_every_option_of_the_policies_can_be_given() -> None:
    bounds = {"min_instances", "max_instances"}
    money = {"max_cost_per_hour", "max_cost_per_day", "max_cost_per_month", "base_scaling_policy"}
    options = (
        (TokenAwareScalingPolicy.model_fields.keys() | CostAwareScalingPolicy.model_fields.keys()) - bounds - money
    )
    assert FleetPolicy.model_fields.keys() == options


@pytest.mark.parametrize(
    ("scaling", "field"),
    [
        ({"target_tps": 1}, "resources.scaling.target_tps"),
        ({"min_instances": 1}, "resources.scaling.min_instances"),
        ({"scale_up_cooldown": 1}, "resources.scaling.scale_up_cooldown"),
        ({"cost_warning_threshold": 0.99}, "resources.scaling"),
        ("fast", "resources.scaling"),
    ],
)
def test_what_is_wrong_is_named_when_the_agent_is_defined(scaling: Any, field: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        agent("worker", resources={"min": 1, "max": 4, "scaling": scaling})
    assert raised.value.field == field
