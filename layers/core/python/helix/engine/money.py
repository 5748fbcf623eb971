"""Reserving a call's worst case from the run's own blocks, and settling what it really used (PROTOCOL 7a).

Law: all of it happens on the session row that the step's transactions write anyway; only a new block touches a budget.
`spent + assumed` of a run is never less than what was really spent.
"""

from __future__ import annotations

from dataclasses import dataclass

from helix.core.budget import block_size
from helix.core.json import size
from helix.core.rows import Block, RunRow, SessionRow
from helix.core.usage import Usage
from helix.engine.engine import Engine, Worst
from helix.ports.budgets import Demand
from helix.ports.model import LLMGenerateInput


@dataclass(frozen=True, slots=True)
class Reserved:
    micros: int
    tokens: int


def worst_case(engine: Engine, request: LLMGenerateInput) -> Worst:
    """The most this call can use: an unknown price is taken at the configured ceiling, so that budgets fail safe."""
    if engine.worst_case is not None:
        return engine.worst_case(request)
    prompt = sum(size(m.model_dump(mode="json")) for m in request.messages) // 3 + 200 * len(request.tools)
    output = request.config.max_output_tokens or engine.settings.default_output_tokens
    tokens = prompt + output
    return Worst(tokens, tokens * engine.settings.worst_case_micros_per_token)


async def reserve(engine: Engine, new: SessionRow, request: LLMGenerateInput) -> Reserved | None:
    """Make room for the call in `new.blocks`, drawing where the run's own blocks do not hold it. None: over the line."""
    applied = engine.applied_budgets(new)
    if not applied:
        return Reserved(0, 0)
    worst = worst_case(engine, request)
    demands: list[Demand] = []
    for budget in applied:
        block = next((b for b in new.blocks if b.budget == budget.budget), None)
        if block is None:
            block = Block(budget=budget.budget, unit=budget.unit)
            new.blocks.append(block)
        need = worst.micros if budget.unit == "micros" else worst.tokens
        short = need - (block.drawn - block.spent - block.assumed)
        if short > 0:
            state = await engine.budgets.get(budget.budget)
            if state is None:
                continue
            demands.append(Demand(budget.budget, budget.unit, short, block_size(state.remaining, short)))
    if demands:
        # The number of the draw is the session version: a repeat after a crash finds its own row.
        drawn = await engine.budgets.draw(new.run_id, new.version, demands)
        if drawn is None:
            return None
        for block in new.blocks:
            if block.budget in drawn:
                block.drawn += drawn[block.budget]
                block.draws = new.version
    return Reserved(worst.micros, worst.tokens)


def settle(new: SessionRow, usage: Usage) -> None:
    """The claim's reservation becomes what was really used; the run's and session's usage grow."""
    for block in new.blocks:
        block.spent += usage.cost_micros if block.unit == "micros" else usage.total_tokens
    new.claim = None
    new.usage = new.usage + usage
    new.run_usage = new.run_usage + usage


def assume_dead(new: SessionRow) -> None:
    """A dead attempt's reservation is assumed spent: nobody knows what it used."""
    claim = new.claim
    if claim is None:
        return
    for block in new.blocks:
        block.assumed += claim.micros if block.unit == "micros" else claim.tokens
    new.claim = None


def assume_dead_run(run: RunRow) -> list[Block]:
    """The blocks of an ended run with an attempt left open assumed spent."""
    blocks = [block.model_copy() for block in run.blocks]
    if run.claim is not None:
        for block in blocks:
            block.assumed += run.claim.micros if block.unit == "micros" else run.claim.tokens
    return blocks


async def return_draws(engine: Engine, session: SessionRow, run: RunRow) -> None:
    """Return what the ended run drew and did not use. Asked even where the run knows of no block: a worker may have died
    between a draw and the claim that would have recorded it."""
    if run.blocks or engine.applied_budgets(session):
        used = {block.budget: block.spent + block.assumed for block in assume_dead_run(run)}
        await engine.budgets.give_back(run.run_id, used)
