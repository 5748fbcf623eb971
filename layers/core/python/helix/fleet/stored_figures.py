"""Figures for `/metrics` from the store: what all processes together did, so that no restart takes anything back."""

from __future__ import annotations

from dataclasses import dataclass

from helix.adapters.row_slots import RowSlots
from helix.engine.rollup import UsageCount, read_totals
from helix.fleet.prometheus import ModelTotals, Queue
from helix.ports.state_store import StateStore


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """`runs`: those that have ended, of all agents; `failed`: of these, in an error of their own."""

    models: list[ModelTotals]
    runs: int
    failed: int


async def stored_usage(store: StateStore) -> StoredUsage:
    """All-time totals, by agent and model. What a run used is counted when it has ended."""
    counts = await read_totals(store)
    found: dict[tuple[str, str], list[UsageCount]] = {}
    for one in counts:
        if one.calls or one.tokens or one.micros:
            found.setdefault((one.agent, one.model), []).append(one)
    models = [
        ModelTotals(
            agent=agent,
            model=model,
            requests=sum(one.calls for one in several),
            input_tokens=sum(one.input for one in several),
            output_tokens=sum(one.output for one in several),
            cost_micros=sum(one.micros for one in several),
        )
        for (agent, model), several in sorted(found.items())
    ]
    return StoredUsage(models, sum(one.runs for one in counts), sum(one.failed for one in counts))


async def model_totals(store: StateStore) -> list[ModelTotals]:
    return (await stored_usage(store)).models


async def queues(store: StateStore) -> list[Queue]:
    """Of each agent that is, or was, limited."""
    counters = await RowSlots(store).counters()
    return [
        Queue(agent, counter.queued, counter.running, counter.bound)
        for agent, counter in sorted((a, c) for a, c in counters.items() if a is not None)
    ]
