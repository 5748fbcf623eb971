"""Whose a run's usage is: of the model its agent was set to call, of other models, of tools, of sub-agents.

Law: a row says only what is not the agent's own model, so the common run stores nothing; `shares` of a run add up to its
usage without its sub-agents', which is counted where they ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from helix.core.agents import AnyAgent
from helix.core.config import LLMConfig
from helix.core.entries import CallRow
from helix.core.rows import AttemptRow, RunRow, SessionRow, StepClaim
from helix.core.usage import Usage

TOOLS, AGENTS, ASSUMED = "~tools", "~agents", "~assumed"
"""Parts that are no model: what tools and sub-agents reported, and what was assumed of calls without an answer."""
FUNCTION_MODEL = "function"
COMPLETION, TOOL = "completion", "tool"
Parts = dict[str, Usage]
_NUMBERS = tuple(name for name in Usage.model_fields if name != "priced")


@dataclass(frozen=True, slots=True)
class Share:
    """What one model (`-`: not known) did in an operation. `assumed_*`: of calls whose usage nobody knows. `failed`: of the
    `runs`, those that ended in an error of their own, not by an abort."""

    model: str
    operation: str
    usage: Usage
    runs: int = 0
    failed: int = 0
    assumed_micros: int = 0
    assumed_tokens: int = 0


def static_model(agent: AnyAgent) -> str:
    """The one model that the agent is set to call; empty where that is decided at each call."""
    if agent.function is not None:
        return FUNCTION_MODEL
    model: object = agent.llm_config.model if isinstance(agent.llm_config, LLMConfig) else ""
    return model if isinstance(model, str) else ""


def plus(parts: Parts, name: str, usage: Usage) -> Parts:
    return {**parts, name: parts.get(name, Usage()) + usage}


def with_answer(parts: Parts, agent: AnyAgent, model: str | None, usage: Usage) -> Parts:
    """After a call that `model` answered, which may not be the agent's own: a fallback, a route, a function's choice."""
    return parts if model is None or model == static_model(agent) else plus(parts, model, usage)


def with_calls(parts: Parts, calls: Iterable[CallRow]) -> Parts:
    """After a fold of these tool calls."""
    for row in calls:
        if row.usage is not None:
            parts = plus(parts, AGENTS if row.by == "child" else TOOLS, row.usage)
    return parts


def assume(new: SessionRow, claim: StepClaim) -> None:
    """Nobody will know what the claimed call used: its worst case counts as spent."""
    worst = Usage(prompt_tokens=claim.tokens, cost_micros=claim.micros, calls=1)
    new.run_parts = plus(new.run_parts, ASSUMED, worst)


def shares(
    run: RunRow, attempts: Sequence[AttemptRow] = (), reported: Mapping[str | None, Usage] | None = None
) -> list[Share]:
    """A run's own usage by model and operation. `attempts`: its attempt rows, needed where answers were lost.
    `reported`: its
    answers' usage by model, needed where the agent changed in mid-run; else what is not in `parts` is `run.model`'s."""
    assumed = run.parts.get(ASSUMED, Usage())
    if run.claim is not None and not any(_same(row, run.claim) for row in attempts):
        assumed += Usage(prompt_tokens=run.claim.tokens, cost_micros=run.claim.micros, calls=1)
    models: Parts = {}
    if reported is not None:
        for model, usage in reported.items():
            models = plus(models, model or run.model, usage)
    else:
        rest = run.usage
        for name, usage in run.parts.items():
            if name != ASSUMED:
                rest = minus(rest, usage)
            if not name.startswith("~"):
                models = plus(models, name, usage)
        models = plus(models, run.model, rest)
    micros, tokens = assumed.cost_micros, assumed.prompt_tokens
    for row in attempts:
        if row.outcome == "lost":
            models = plus(models, row.model or run.model, row.usage)
            micros, tokens = micros - row.assumed_micros, tokens - row.assumed_tokens
    own = models.pop(run.model, Usage())
    failed = run.status == "failed" and (run.error is None or run.error.code != "aborted")
    found = [Share(run.model or "-", COMPLETION, own, 1, int(failed), max(micros, 0), max(tokens, 0))]
    found += [Share(model, COMPLETION, usage) for model, usage in sorted(models.items())]
    if (tools := run.parts.get(TOOLS)) is not None:
        found.append(Share("-", TOOL, tools))
    return found


def minus(whole: Usage, part: Usage) -> Usage:
    """What is left; never below 0."""
    left = {name: max(0, getattr(whole, name) - getattr(part, name)) for name in _NUMBERS}
    return Usage(**left, priced=whole.priced or not part.priced)


def _same(row: AttemptRow, claim: StepClaim) -> bool:
    return (row.run_id, row.step, row.attempt) == (claim.run_id, claim.step, claim.attempt)
