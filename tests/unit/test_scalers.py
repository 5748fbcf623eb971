"""`Scaler` and `LLMScaler`: their policies, and the decisions that were applied.

The rules: docs/appendix/semantics.md#scaling and docs/appendix/semantics.md#scaling-llm.
"""

from __future__ import annotations

import asyncio

import pytest

from helix.adapters.memory import MemoryStateStore
from helix.compat.scaling import LLMScaler, Reading, Scaler, create_llm_scaler, get_llm_scaler
from helix.core.cost_status import Spending
from helix.core.errors import InvalidInputError, StoreError
from helix.core.llm_metrics import LLMMetrics
from helix.core.llm_scaling import CostAwareScalingPolicy, TokenAwareScalingPolicy
from helix.core.scaling import ScalingDecision, ScalingMetrics, ScalingPolicy
from helix.testing.clocks import SetClock

BUSY, IDLE = ScalingMetrics(cpu_percent=90), ScalingMetrics(cpu_percent=5, memory_percent=5)
QUEUE = LLMMetrics(queue_depth=5)


async def test_a_scaler_says_what_to_do_and_records_what_was_done() -> None:
    clock = SetClock(1000)
    scaler = Scaler(clock=clock)
    await scaler.register_policy("a", ScalingPolicy())
    assert (await scaler.evaluate_scaling("a", BUSY, 3)).after == 4
    clock.advance(1)
    assert (await scaler.evaluate_scaling("a", BUSY, 3)).after == 4, "nothing was applied yet"
    row = await scaler.record_scaling_action("a")
    assert row is not None and (row.before, row.after) == (3, 4)
    clock.advance(59)
    assert (await scaler.evaluate_scaling("a", BUSY, 4)).blocked_by == "cooldown"
    clock.advance(1)
    assert (await scaler.evaluate_scaling("a", BUSY, 4)).after == 5


async def test_the_history_has_what_was_done_and_what_was_blocked() -> None:
    scaler = Scaler(clock=SetClock(1000))
    await scaler.register_policy("a", ScalingPolicy())
    await scaler.evaluate_scaling("a", BUSY, 3)
    await scaler.record_scaling_action("a")
    for _ in range(3):
        await scaler.evaluate_scaling("a", BUSY, 4)
    assert [(row.action, row.blocked_by) for row in await scaler.scaling_history("a")] == [
        ("up", None),
        ("hold", "cooldown"),
    ]


async def test_without_a_policy_nothing_is_done() -> None:
    scaler = Scaler()
    assert (await scaler.evaluate_scaling("a", BUSY, 3)).reason == "no policy is registered"
    await scaler.register_policy("a", ScalingPolicy())
    await scaler.unregister_policy("a")
    await scaler.unregister_policy("a")
    assert (await scaler.evaluate_scaling("a", BUSY, 3)).action == "hold"
    assert scaler.policies == {}


async def test_there_is_nothing_to_record_before_a_decision() -> None:
    scaler = Scaler()
    with pytest.raises(InvalidInputError, match="no decision for 'a' was made"):
        await scaler.record_scaling_action("a")
    await scaler.register_policy("a", ScalingPolicy())
    await scaler.evaluate_scaling("a", ScalingMetrics(cpu_percent=50), 3)
    assert await scaler.record_scaling_action("a") is None, "a hold is not an action"


async def test_llm_scaling_keeps_to_the_bounds_and_the_pace_of_the_targets_policy() -> None:
    scaler = Scaler(llm=LLMScaler(), clock=SetClock(1000))
    assert (await scaler.evaluate_llm_scaling("a", QUEUE, 3)).after == 4
    await scaler.register_policy("a", ScalingPolicy(max_instances=3))
    assert (await scaler.evaluate_llm_scaling("a", QUEUE, 3)).action == "hold"
    await scaler.register_policy("a", ScalingPolicy(scale_up_step=3))
    assert (await scaler.evaluate_llm_scaling("a", QUEUE, 3)).after == 6
    costly = Scaler(llm=create_llm_scaler(max_cost_per_hour=10))
    await costly.register_policy("a", ScalingPolicy(min_instances=2))
    assert (await costly.evaluate_llm_scaling("a", LLMMetrics(cost_per_hour=9.6), 3)).rule == "budget critical"
    assert (await costly.evaluate_llm_scaling("a", LLMMetrics(cost_per_hour=9.6), 2)).after == 2
    spent = await costly.evaluate_llm_scaling("a", LLMMetrics(), 2, Spending(hour=10))
    assert (spent.after, spent.rule) == (0, "budget stop")


async def test_an_llm_scaler_counts_from_what_was_applied_by_anybody() -> None:
    """The sources counted from the time of the decision. Here a second scaler on the store knows what was applied."""
    store, clock = MemoryStateStore(), SetClock(1000)
    one, two = (LLMScaler(store=store, clock=clock) for _ in range(2))
    assert (await one.evaluate_scaling("a", QUEUE, 3)).after == 4
    assert (await two.evaluate_scaling("a", QUEUE, 3)).after == 4
    await one.record_scaling_action("a")
    assert (await two.evaluate_scaling("a", QUEUE, 4)).blocked_by == "cooldown"
    await two.reset_cooldown("a")
    assert (await one.evaluate_scaling("a", QUEUE, 4)).after == 5


async def test_history_and_statistics() -> None:
    clock = SetClock(1000)
    scaler = LLMScaler(clock=clock)
    for instances in range(1, 5):
        await scaler.evaluate_scaling("a", QUEUE, instances)
        await scaler.record_scaling_action("a")
        clock.advance(60)
    assert [row.after for row in await scaler.get_scaling_history("a", limit=2)] == [4, 5]
    told = await scaler.get_statistics()
    assert (told["tracked_agents"], told["total_scaling_events"], told["cost_policy"]) == (1, 4, None)
    assert told["token_policy"]["target_tokens_per_second"] == 1000


def test_create_llm_scaler_takes_options_of_both_policies() -> None:
    scaler = create_llm_scaler(500, 10, 2, 8, queue_depth_threshold=3, max_cost_per_day=50, scale_up_step=2)
    assert scaler.token_policy == TokenAwareScalingPolicy(
        min_instances=2, max_instances=8, target_tokens_per_second=500, queue_depth_threshold=3, scale_up_step=2
    )
    assert scaler.cost_policy == CostAwareScalingPolicy(
        min_instances=2,
        max_instances=8,
        max_cost_per_hour=10,
        max_cost_per_day=50,
        base_scaling_policy=scaler.token_policy,
    )
    assert create_llm_scaler().cost_policy is None
    with pytest.raises(InvalidInputError, match="no scaling policy has 'target_tps'"):
        create_llm_scaler(target_tps=1)


def test_a_process_has_one_scaler() -> None:
    assert get_llm_scaler() is get_llm_scaler()


class Target:
    """A source of two agents. Reading `b` fails."""

    def __init__(self) -> None:
        self.instances, self.looks = 3, asyncio.Queue[str]()
        self.metrics: ScalingMetrics | LLMMetrics = BUSY

    async def read(self, target_id: str) -> Reading | None:
        self.looks.put_nowait(target_id)
        if target_id == "b":
            raise StoreError("not now")
        return Reading(self.metrics, self.instances) if target_id == "a" else None

    async def apply(self, target_id: str, decision: ScalingDecision) -> None:
        self.instances = decision.after


async def test_monitoring_looks_every_30_seconds_and_acts() -> None:
    clock, target = SetClock(1000), Target()
    scaler = Scaler(clock=clock)
    for name in ("b", "gone", "a"):
        await scaler.register_policy(name, ScalingPolicy())
    await scaler.start_monitoring(target)
    await scaler.start_monitoring(target)

    async def minute_half() -> None:
        while not clock.sleepers:
            await asyncio.sleep(0)
        clock.advance(30)
        for name in ("b", "gone", "a"):
            assert await target.looks.get() == name
        while not clock.sleepers:
            await asyncio.sleep(0)

    await minute_half()
    assert target.instances == 4
    await minute_half()
    assert target.instances == 4, "cooldown"
    target.metrics = QUEUE
    await minute_half()
    assert target.instances == 5
    assert [row.trigger for row in await scaler.scaling_history("a") if row.applied] == ["monitor", "monitor"]
    await scaler.stop_monitoring()
    await scaler.stop_monitoring()
    assert clock.sleepers == 0 and target.looks.empty()
