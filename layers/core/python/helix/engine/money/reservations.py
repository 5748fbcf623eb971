"""Reserves a call's worst case from the run's own blocks, and settles the call's actual usage
(docs/protocol.md#budgets).

Law: reserving and settling change only the session row, which the step's transactions write anyway; only a new block
touches a budget. `spent + assumed` of a run is never less than the amount actually spent. A block belongs to the window
in which it was drawn. A call is settled against the open blocks that it was reserved from. A run never returns to an
earlier window, so a block is final once the row says that it is closed and the run has a later block of the same
budget. It is then returned and dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from helix.core.agents import AnyAgent
from helix.core.budget import LEVELS, AlertLevel, BudgetDefinition, OnExceeded
from helix.core.run_row import RunRow
from helix.core.session_row import Block, SessionRow, StepClaim
from helix.core.usage import Usage
from helix.engine.engine import Engine, Worst
from helix.engine.guards.judge_agent import worst_of_judges
from helix.engine.money.bounds import Estimate, amount, bounded, budget_states, definitions_of, raise_alerts, shorter
from helix.ports.model import Allowance, LLMGenerateInput
from helix.services.budget_rows import BudgetState, Demand

ROUNDS = 16
"""The maximum number of draws per claim. A retry after a crash finds the earlier draws, and draws only what is still
missing."""
ATTEMPTS = 2
"""The number of attempts whose worst case is reserved if the run's own blocks have room, since an attempt may fail and
be retried."""
KEEP_S = 30 * 24 * 3600
NOTHING = Worst(0, 0)


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation, and the request that it allows."""

    request: LLMGenerateInput
    """The request that may be sent, with its allowance."""
    micros: int = 0
    """The reserved cost in micro-dollars, for one or two attempts. 0: no budget bounds the call."""
    tokens: int = 0
    """The reserved tokens, for one or two attempts. 0: no budget bounds the call."""
    cut: bool = False
    """Whether the answer must be shorter than the agent's own limit."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal: a budget has no room for the call, so the run fails or pauses."""

    on_exceeded: OnExceeded
    """The consequence for the run: it pauses if every exhausted budget (or else the agent) is set to pause, and
    fails otherwise."""
    message: str
    """The message of the run's error. It names the budget, the amount that the call may use, and the amount left."""
    budget: str
    """The name of the window without room, `<scope>/<period>/<unit>/<window key>`."""


@dataclass(slots=True)
class _BudgetBlock:
    """A budget's current window, and the run's block in it."""

    definition: BudgetDefinition
    """The budget."""
    block: Block
    """The run's block in the window, an element of `new.blocks`."""
    at: float
    """A time within the window, in Unix seconds."""

    @property
    def used(self) -> int:
        return self.block.spent + self.block.assumed

    @property
    def free(self) -> int:
        return self.block.drawn - self.used

    def need(self, worst: Worst) -> int:
        return worst.micros if self.block.unit == "micros" else worst.tokens


async def reserve(
    engine: Engine,
    agent: AnyAgent,
    new: SessionRow,
    request: LLMGenerateInput,
    on_budget: Literal["fail", "pause"],
) -> Reserved | Refused | None:
    """Make room for the call in `new.blocks`, drawing from budgets if the run's own blocks are too small. Return None if
    the budgets that bind the session have changed; the caller then reads the session again. `on_budget`: the policy for
    budgets without one."""
    await _drop_passed(engine, new)
    for block in new.blocks:
        block.closed = True
    definitions = definitions_of(new)
    judges = worst_of_judges(engine, agent) if agent.guards and definitions else NOTHING
    cached = request.remembered is not None or agent.function is not None
    if not definitions or (cached and judges == NOTHING):
        return Reserved(request)  # no provider is called, so nothing is billed
    now = engine.clock.now()
    held = [_open_block(new, definition, now) for definition in definitions]
    request, estimate, own = (request, None, NOTHING) if cached else _worst(engine, request)
    worst = _sum(own, judges)
    cut, rounds = False, 0
    drawn: dict[str, _BudgetBlock] = {}
    while short := [h for h in held if h.free < h.need(worst)]:
        demands = [
            Demand(h.block.budget, h.block.unit, h.need(worst) - h.free, used=h.used - h.block.reported) for h in short
        ]
        # The draw's number is derived from the session's version, so a retry after a crash finds its own rows.
        taken = (
            await engine.budgets.draw(new.run_id, new.version * ROUNDS + rounds, demands) if rounds < ROUNDS else None
        )
        if taken is not None:
            rounds += 1
            for h in short:
                h.block.drawn += taken[h.block.budget]
                h.block.draws, h.block.reported = new.version, h.used
            drawn |= {h.block.budget: h for h in short}
            continue
        states = await engine.budgets.get([h.block.budget for h in short])
        missing = [h for h, state in zip(short, states, strict=True) if state is None]
        if missing:
            if not await _open_windows(engine, new, missing):
                return None
            continue
        known = [state for state in states if state is not None]
        tight = [(h, s) for h, s in zip(short, known, strict=True) if s.remaining < h.need(worst) - h.free]
        if not tight and rounds < ROUNDS:
            continue  # another run has since returned its unused amount
        room = {h.block.budget: h.free - h.need(judges) for h in held}
        for state in known:
            room[state.budget] += max(0, state.remaining)
        output = _affordable(engine, estimate, held, room)
        if estimate is None or output is None or rounds == ROUNDS:
            return await _refuse(engine, on_budget, new, tight or list(zip(short, known, strict=True)), worst)
        request, estimate = shorter(request, estimate, output)
        own, cut = estimate.worst, True
        worst = _sum(own, judges)
    if drawn:
        await _alert(engine, new, list(drawn.values()))
    repeats = not request.batch and (request.config.max_retries or request.config.fallbacks)
    factor = ATTEMPTS if repeats and all(h.free >= ATTEMPTS * h.need(worst) for h in held) else 1
    micros, tokens = factor * own.micros, factor * own.tokens
    allowance = Allowance(tokens, micros, own.tokens, own.micros)
    return Reserved(replace(request, allowance=allowance), micros + judges.micros, tokens + judges.tokens, cut)


def _sum(one: Worst, other: Worst) -> Worst:
    return Worst(one.tokens + other.tokens, one.micros + other.micros)


async def _open_windows(engine: Engine, new: SessionRow, missing: Sequence[_BudgetBlock]) -> bool:
    """Open the windows that do not exist yet. Return False if the budgets that bind the session have changed."""
    assert new.bounds is not None
    for h in missing:
        if not await engine.budgets.open(h.definition, h.at, new.bounds.version):
            return False
    return True


async def _drop_passed(engine: Engine, new: SessionRow) -> None:
    """Return the unused amounts of closed blocks in past windows, and drop these blocks, because a run may last for
    weeks. The blocks are final, so a repeat, or a worker that has lost the run, returns the same amounts."""
    latest = {_name(block): block.budget for block in sorted(new.blocks, key=lambda block: block.budget)}
    passed = {b.budget: b.spent + b.assumed for b in new.blocks if b.closed and b.budget < latest[_name(b)]}
    if passed:
        expires = int(engine.clock.now() + KEEP_S)
        await engine.budgets.give_back(new.run_id, passed, part=True, expires=expires)
        new.blocks = [block for block in new.blocks if block.budget not in passed]


def _name(block: Block) -> str:
    """Return the name of the block's budget, without its window. The names of a period's windows sort by time."""
    return block.budget.rpartition("/")[0]


def _open_block(new: SessionRow, definition: BudgetDefinition, now: float) -> _BudgetBlock:
    budget, window = definition.window(now)
    latest = max((block.budget for block in new.blocks if _name(block) == definition.name), default=budget)
    while budget < latest:  # the previous step's worker has a fast clock
        assert window.end is not None
        now = window.end
        budget, window = definition.window(now)
    block = next((b for b in new.blocks if b.budget == budget), None)
    if block is None:
        block = Block(budget=budget, unit=definition.unit)
        new.blocks.append(block)
    block.closed = False
    return _BudgetBlock(definition, block, now)


def _worst(engine: Engine, request: LLMGenerateInput) -> tuple[LLMGenerateInput, Estimate | None, Worst]:
    if engine.worst_case is not None:
        return request, None, engine.worst_case(request)
    request, estimate = bounded(engine, request)
    return request, estimate, estimate.worst


def _affordable(
    engine: Engine, estimate: Estimate | None, held: Sequence[_BudgetBlock], room: dict[str, int]
) -> int | None:
    """Return the length, in tokens, of a shorter answer that the budgets allow. It is at least `least_output_tokens`.
    Return None if they allow no such answer, or if the answer cannot be shortened."""
    if estimate is None or not estimate.shrinks:
        return None
    tokens = min((room[h.block.budget] for h in held if h.block.unit == "tokens"), default=None)
    micros = min((room[h.block.budget] for h in held if h.block.unit == "micros"), default=None)
    output = estimate.output_within(tokens=tokens, micros=micros)
    return output if engine.settings.least_output_tokens <= output < estimate.output else None


async def _refuse(
    engine: Engine, on_budget: str, new: SessionRow, tight: Sequence[tuple[_BudgetBlock, BudgetState]], worst: Worst
) -> Refused:
    """Refuse the call, and name the first budget without room. The run pauses only if all such budgets (or else the
    agent) are set to pause."""
    for h, state in tight:
        await raise_alerts(engine, h.definition, state, because="a call was refused")
    _note(new, "exceeded")
    h, state = tight[0]
    _, window = h.definition.window(h.at)
    wants = amount(h.block.unit, h.need(worst))
    left = amount(h.block.unit, max(0, state.remaining) + max(0, h.free))
    message = (
        f"budget {h.definition.name!r} has no room for the next model call: the call may use up to {wants}, but the budget "
        f"has only {left} left"
    )
    if window.end is not None:
        message += f" in window {window.key}"
    pauses = all((h.definition.on_exceeded or on_budget) == "pause" for h, _ in tight)
    return Refused("pause" if pauses else "fail", message, state.budget)


async def _alert(engine: Engine, new: SessionRow, drawn: Sequence[_BudgetBlock]) -> None:
    """Raise the alerts that the draws from these windows trigger. The states are read after the draws, so the last of
    several concurrent workers sees all draws."""
    states = await budget_states(engine, [h.definition for h in drawn], [h.block.budget for h in drawn])
    worst: AlertLevel | Literal[""] = ""
    for h, state in zip(drawn, states, strict=True):
        if state is not None:
            worst = _worse(worst, await raise_alerts(engine, h.definition, state))
    _note(new, worst)


def _note(new: SessionRow, level: AlertLevel | Literal[""]) -> None:
    if new.bounds is not None and new.bounds.level != level:
        new.bounds = new.bounds.model_copy(update={"level": level})


def _worse(one: AlertLevel | Literal[""], other: AlertLevel | None) -> AlertLevel | Literal[""]:
    ranks = ("", *LEVELS)
    return max((one, other or ""), key=ranks.index)


async def budget_level(engine: Engine, new: SessionRow) -> AlertLevel | Literal[""]:
    """Return the highest alert level of the session's budgets that the run knows of. If the run has not drawn from
    their current windows yet, their states are read."""
    if new.bounds is None:
        return ""
    now = engine.clock.now()
    definitions = definitions_of(new)
    names = [definition.window(now)[0] for definition in definitions]
    if {block.budget for block in new.blocks if block.drawn}.issuperset(names):
        return new.bounds.level
    worst: AlertLevel | Literal[""] = ""
    for definition, state in zip(definitions, await budget_states(engine, definitions, names), strict=True):
        if state is not None:
            worst = _worse(worst, definition.level(state.limit, state.remaining))
    return worst


def charged(engine: Engine, claim: StepClaim, usage: Usage) -> Worst:
    """Return the amounts to charge to the budgets for the claimed call: what was billed, regardless of the reservation.

    If an attempt may have used more than was reported, everything that was reserved for it is charged. Without a known
    price, the settings' worst-case price applies, up to the reserved amount. If more tokens were used than reserved,
    this limit grows in proportion.
    """
    tokens, micros = usage.total_tokens, usage.cost_micros
    if usage.unknown_calls or (not usage.priced and not tokens):
        return Worst(max(tokens, claim.tokens), max(micros, claim.micros))
    if not usage.priced:
        ceiling = tokens * engine.settings.worst_case_micros_per_token
        beyond = max(tokens, claim.tokens) / max(1, claim.tokens)  # use beyond the reservation is charged in proportion
        micros = max(micros, min(ceil(claim.micros * beyond), ceiling))
    return Worst(tokens, micros)


def settle(engine: Engine, new: SessionRow, usage: Usage) -> None:
    """Replace the claim's reservation with the actual usage, and add it to the usage of the run and the session."""
    if new.claim is not None:
        cost = charged(engine, new.claim, usage)
        for block in new.blocks:
            if not block.closed:
                block.spent += cost.micros if block.unit == "micros" else cost.tokens
    new.claim = None
    new.usage = new.usage + usage
    new.run_usage = new.run_usage + usage


def overrun(engine: Engine, claim: StepClaim, usage: Usage) -> dict[str, int]:
    """Return the amount by which a late answer exceeded its reservation. The run treats this amount as spent."""
    cost = charged(engine, claim, usage)
    over = {"over_micros": cost.micros - claim.micros, "over_tokens": cost.tokens - claim.tokens}
    bound = claim.micros or claim.tokens
    return {name: value for name, value in over.items() if bound and value > 0}


def assume_dead(new: SessionRow) -> None:
    """Treat a dead attempt's reservation as spent, because its usage is unknown."""
    claim = new.claim
    if claim is None:
        return
    _assume(new.blocks, claim.micros, claim.tokens)
    new.claim = None


def assume_dead_run(run: RunRow) -> list[Block]:
    """Return the blocks of an ended run. An open attempt's reservation is treated as spent, and so are the amounts
    by which late answers exceeded their reservations."""
    blocks = [block.model_copy() for block in run.blocks]
    if run.claim is not None:
        _assume(blocks, run.claim.micros, run.claim.tokens)
    _assume(blocks, run.over_micros, run.over_tokens)
    return blocks


def _assume(blocks: Sequence[Block], micros: int, tokens: int) -> None:
    for block in blocks:
        if not block.closed:
            block.assumed += micros if block.unit == "micros" else tokens


async def return_draws(engine: Engine, session: SessionRow, run: RunRow) -> None:
    """Return the unused draws of the ended run to their budgets. This applies even if the run's row has no block,
    because a worker may have died between a draw and the claim that would have recorded it."""
    if run.blocks or session.bounds is not None:
        blocks = assume_dead_run(run)
        used = {block.budget: block.spent + block.assumed for block in blocks}
        await engine.budgets.give_back(run.run_id, used, expires=int(engine.clock.now() + KEEP_S))
        over = {block.budget for block in blocks if used[block.budget] > block.drawn}
        if over:  # more was used than drawn, so less of the window is left
            now = engine.clock.now()
            windows = {definition.window(now)[0]: definition for definition in definitions_of(session)}
            passed = sorted(over & windows.keys())
            passed_by = [windows[budget] for budget in passed]
            for definition, state in zip(passed_by, await budget_states(engine, passed_by, passed), strict=True):
                if state is not None:
                    await raise_alerts(engine, definition, state)
