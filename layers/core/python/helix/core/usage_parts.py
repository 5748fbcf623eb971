"""The parts of a run's usage: the agent's configured model, other models, tools and sub-agents.

Law: a row does not store the part of the agent's own model, so most runs store nothing. The `shares` of a run add up to
its usage without its sub-agents, whose usage counts in their own sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from helix.core.agents import AnyAgent
from helix.core.config import LLMConfig
from helix.core.entries import CallRow
from helix.core.rows import AttemptRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow, StepClaim
from helix.core.usage import Usage

TOOLS, AGENTS, ASSUMED = "~tools", "~agents", "~assumed"
"""The names of parts that are not models: usage reported by tools and sub-agents, and usage assumed for calls without
an answer."""
FUNCTION_MODEL = "function"
COMPLETION, TOOL = "completion", "tool"
Parts = dict[str, Usage]
_NUMBERS = tuple(name for name in Usage.model_fields if name != "priced")


@dataclass(frozen=True, slots=True)
class Share:
    """The usage of one model in one operation."""

    model: str
    """The name of the model. `-` if not known or not a model."""
    operation: str
    """`completion` for model calls, `tool` for usage that tools reported."""
    usage: Usage
    """The reported usage."""
    runs: int = 0
    """1 in the share of the agent's configured model, otherwise 0, so that sums count each run once."""
    failed: int = 0
    """The number of these runs that failed with an error other than an abort."""
    assumed_micros: int = 0
    """The micro-dollars assumed for calls whose usage is not known. A negative amount reverses an earlier
    assumption."""
    assumed_tokens: int = 0
    """The tokens assumed for calls whose usage is not known, negative as for `assumed_micros`."""


def static_model(agent: AnyAgent) -> str:
    """Return the agent's configured model. Empty if the agent chooses a model for each call."""
    if agent.function is not None:
        return FUNCTION_MODEL
    model: object = agent.llm_config.model if isinstance(agent.llm_config, LLMConfig) else ""
    return model if isinstance(model, str) else ""


def add_usage(parts: Parts, name: str, usage: Usage) -> Parts:
    return {**parts, name: parts.get(name, Usage()) + usage}


def with_answer(parts: Parts, agent: AnyAgent, model: str | None, usage: Usage) -> Parts:
    """Return the parts after a call that `model` answered. It may differ from the agent's own model because of a
    fallback, a route or a function."""
    return parts if model is None or model == static_model(agent) else add_usage(parts, model, usage)


def with_calls(parts: Parts, calls: Iterable[CallRow]) -> Parts:
    """Return the parts after folding these tool calls."""
    for row in calls:
        if row.usage is not None:
            parts = add_usage(parts, AGENTS if row.by == "child" else TOOLS, row.usage)
    return parts


def assume(new: SessionRow, claim: StepClaim) -> None:
    """Count the reservation of the claimed call as spent, because its usage will never be known."""
    worst = Usage(prompt_tokens=claim.tokens, cost_micros=claim.micros, calls=1)
    new.run_parts = add_usage(new.run_parts, ASSUMED, worst)


def shares(
    run: RunRow, attempts: Sequence[AttemptRow] = (), reported: Mapping[str | None, Usage] | None = None
) -> list[Share]:
    """Return a run's own usage by model and operation. `attempts` are its attempt rows, required if answers were lost.
    `reported` is the usage of its answers by model, required if the agent changed during the run. Otherwise, usage that
    is not in `parts` counts toward `run.model`."""
    assumed = run.parts.get(ASSUMED, Usage())
    if run.claim is not None and not any(_same(row, run.claim) for row in attempts):
        assumed += Usage(prompt_tokens=run.claim.tokens, cost_micros=run.claim.micros, calls=1)
    models: Parts = {}
    if reported is not None:
        for model, usage in reported.items():
            models = add_usage(models, model or run.model, usage)
    else:
        rest = run.usage
        for name, usage in run.parts.items():
            if name != ASSUMED:
                rest = subtract(rest, usage)
            if not name.startswith("~"):
                models = add_usage(models, name, usage)
        models = add_usage(models, run.model, rest)
    micros, tokens = assumed.cost_micros, assumed.prompt_tokens
    for row in attempts:
        if row.outcome == "lost":
            models = add_usage(models, row.model or run.model, row.usage)
            micros, tokens = micros - row.assumed_micros, tokens - row.assumed_tokens
    own = models.pop(run.model, Usage())
    failed = run.status == "failed" and (run.error is None or run.error.code != "aborted")
    found = [Share(run.model or "-", COMPLETION, own, 1, int(failed), max(micros, 0), max(tokens, 0))]
    found += [Share(model, COMPLETION, usage) for model, usage in sorted(models.items())]
    if (tools := run.parts.get(TOOLS)) is not None:
        found.append(Share("-", TOOL, tools))
    return found


def subtract(whole: Usage, part: Usage) -> Usage:
    """Subtract `part` from `whole`. No number falls below 0."""
    left = {name: max(0, getattr(whole, name) - getattr(part, name)) for name in _NUMBERS}
    return Usage(**left, priced=whole.priced or not part.priced)


def _same(row: AttemptRow, claim: StepClaim) -> bool:
    return (row.run_id, row.step, row.attempt) == (claim.run_id, claim.step, claim.attempt)
