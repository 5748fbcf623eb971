"""The budgets that bind a session, the worst case of a call, and the alerts that a draw raises
(docs/protocol.md#budgets).

Law: the budgets that were defined when a step began bind its call. One number, read with the session, shows whether a
definition has changed since. No block is drawn before the session's row says that a budget binds it, so the end of the
run knows that there may be draws to return.

A worst case is never less than the provider can bill for one attempt, as far as the request determines the bill. Each
window of a budget raises one alert per level, in the process that first reaches the level, and another one after its
limit is raised.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from typing import Any, Protocol

from helix.core.budget import (
    LEVELS,
    MICROS,
    AlertLevel,
    BudgetDefinition,
    TokenAlert,
    Unit,
    packed,
    scopes_of,
    unpacked,
)
from helix.core.config import LENGTHS, THINKING_TOKENS, LLMConfig
from helix.core.file_tokens import most_file_tokens
from helix.core.json import dumps
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, files_of
from helix.core.server_tools import most_fees
from helix.core.session_row import Bounds, SessionRow
from helix.engine.context import RunContext
from helix.engine.engine import AlertListener, Engine, Worst, logger
from helix.engine.writing import at_version, no_outcome_check, session_put
from helix.ports.catalog import ModelInfo
from helix.ports.clock import Clock
from helix.ports.model import LLMGenerateInput, ToolSpec
from helix.services.budget_rows import BudgetState
from helix.services.row_budgets import RowBudgets


async def bind(run: RunContext, session: SessionRow, new: SessionRow, count: int) -> bool:
    """Set `new.bounds` for the session's next call. `count` is the number of budget changes, as read with `session`.
    False: the session has just become bounded, or another writer changed it; read it again."""
    known, budgets = session.bounds, run.engine.budgets
    declared = budgets.declared if session.user_id is not None else ""
    if (count, declared) == ((known.version, session.user_budgets) if known is not None else (0, "")):
        return True
    definitions = await budgets.definitions(scopes_of(session))
    if declared:
        await budgets.fit_windows(definitions, run.now(), count)
    level = known.level if known is not None else ""
    new.bounds = Bounds(version=count, level=level, budgets=[packed(definition) for definition in definitions])
    new.user_budgets = declared
    if known is not None or not definitions:
        return True  # the step's claim writes it
    first = run.next_version(session, bounds=new.bounds, user_budgets=declared)
    await run.commit("bind_budgets", [session_put(first, at_version(session))], no_outcome_check, first)
    return False


def definitions_of(session: SessionRow) -> list[BudgetDefinition]:
    """Return the budgets that bind the session."""
    return [unpacked(short, session) for short in session.bounds.budgets] if session.bounds is not None else []


KEEP_S = 90 * 24 * 3600


class Charges(Protocol):
    """A component that charges budgets and publishes their alerts: an engine, or a token tracker."""

    @property
    def budgets(self) -> RowBudgets: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def on_alert(self) -> list[AlertListener]: ...


async def budget_states(
    engine: Charges, definitions: Sequence[BudgetDefinition], budgets: Sequence[str]
) -> list[BudgetState | None]:
    """Return the states of these windows, precise enough to decide which alerts to raise. The shards of a divided
    window are read only if its own row has reached the level of an alert that has not been raised yet."""
    states = await engine.budgets.at_least(budgets)
    near = [s.budget for d, s in zip(definitions, states, strict=True) if s is not None and s.bound and _due(d, s)]
    exact = dict(zip(near, await engine.budgets.get(near) if near else [], strict=True))
    return [exact.get(budget, state) for budget, state in zip(budgets, states, strict=True)]


def _due(definition: BudgetDefinition, state: BudgetState) -> bool:
    level = definition.level(state.limit, state.remaining)
    return level is not None and level not in state.reported


async def raise_alerts(
    engine: Charges, definition: BudgetDefinition, state: BudgetState, *, because: str = ""
) -> AlertLevel | None:
    """Raise the alerts of this window that have not been raised yet, and return the level that it has reached.
    `because` is an event that makes the level `exceeded` regardless of usage: a call found no room, or an agent was
    stopped."""
    reached = definition.level(state.limit, state.remaining)
    due = list(LEVELS[: LEVELS.index(reached) + 1]) if reached is not None else []
    if because and reached != "exceeded":
        due.append("exceeded")
    for level in due:
        if level in state.reported:
            continue
        now = engine.clock.now()
        alert = _alert(definition, state, level, now, f"; {because}" if because and level == "exceeded" else "")
        if await engine.budgets.alert(state.budget, alert, int(now + KEEP_S)):
            await _publish(engine, alert)
    return due[-1] if due else None


async def _publish(engine: Charges, alert: TokenAlert) -> None:
    logger.warning("%s", alert.message)
    for listener in list(engine.on_alert):
        try:
            answer = listener(alert)
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            logger.exception("a listener to budget alerts raised; dropped")


def _alert(
    definition: BudgetDefinition, state: BudgetState, level: AlertLevel, now: float, more: str = ""
) -> TokenAlert:
    window = state.budget.rpartition("/")[2]  # maybe not the current one: a run never returns to an earlier window
    current = state.limit - state.remaining
    used = f"{amount(definition.unit, current)} of {amount(definition.unit, state.limit)} are used or set aside"
    said = f"budget {definition.name!r}, window {window}: {level}: {used}{more}"
    moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return TokenAlert(
        alert_id=f"{moment}#{state.budget}#{LEVELS.index(level)}{level}",
        level=level,
        message=said,
        scope=definition.scope,
        period=definition.period,
        window=window,
        unit=definition.unit,
        current=current,
        limit=state.limit,
        utilization=current / state.limit if state.limit > 0 else 1.0,
        timestamp=now,
    )


def amount(unit: Unit, value: int) -> str:
    """Format an amount as human-readable text, in dollars or tokens."""
    return f"{value / MICROS:.6f}".rstrip("0").rstrip(".") + " USD" if unit == "micros" else f"{value} tokens"


PER_MESSAGE = 32
PER_TOOL = 64
WITH_TOOLS = 1024
"""The number of tokens that providers add for roles and separators, for each tool's framing, and for instructions on
how to call tools."""
LARGEST_WINDOW = 2_000_000
"""The context window, in tokens, that is assumed for a model whose window is unknown."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_FIXED = frozenset({*_LIMITS, "n", "thinking", "reasoning", "reasoning_effort"})
"""The provider options that set the answer's length, or a part that must fit into it. With any of them, answers are not
shortened."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The worst case of one attempt at a call."""

    prompt: int
    """The maximum number of tokens in the prompt."""
    output: int
    """The maximum number of tokens in the answer, all copies together."""
    input_micros: float
    """The price of a prompt token in micro-dollars: the highest of the models that may be called."""
    output_micros: float
    """The price of an answer token in micro-dollars: the highest of the models that may be called."""
    shrinks: bool = False
    """Whether a shorter answer may be requested. False if the provider options set its length."""
    fees_micros: int = 0
    """The fees of the provider's own tools, in micro-dollars."""
    percent: int = 100
    """The percentage of the worst case that is reserved. 100: no margin."""

    @property
    def worst(self) -> Worst:
        micros = self.prompt * self.input_micros + self.output * self.output_micros + self.fees_micros
        return Worst(-(-(self.prompt + self.output) * self.percent // 100), ceil(micros * self.percent / 100))

    def output_within(self, *, tokens: int | None, micros: int | None) -> int:
        """Return the length, in tokens, of the longest answer that these amounts allow."""
        found = [self.output]
        micros = None if micros is None else micros * 100 // self.percent - self.fees_micros
        if tokens is not None:
            found.append(tokens * 100 // self.percent - self.prompt)
        if micros is not None and self.output_micros > 0:
            found.append(int((micros - self.prompt * self.input_micros) / self.output_micros))
        elif micros is not None and self.prompt * self.input_micros > micros:
            return 0
        return max(0, min(found))


def bounded(engine: Engine, request: LLMGenerateInput) -> tuple[LLMGenerateInput, Estimate]:
    """Return the request with an output limit, and the worst case of one attempt at it."""
    config, catalog = request.config, engine.catalog
    infos = [ModelInfo(model) if catalog is None else catalog.info(model) for model in models_of(config)]
    ceiling = float(engine.settings.worst_case_micros_per_token)
    inputs = [_micros(info.worst_input_usd, info.input_usd, ceiling) for info in infos]
    outputs = [_micros(info.worst_output_usd, info.output_usd, ceiling) for info in infos]
    if any(file.kind == "audio" for file in files_of(request.messages)):
        inputs += [info.audio_usd * MICROS for info in infos if info.audio_usd is not None]
    if request.batch:
        inputs, outputs = ([micros / 2 for micros in prices] for prices in (inputs, outputs))
    known = [info.max_output_tokens for info in infos if info.max_output_tokens is not None]
    options = config.provider_options
    limit = _option(options, _LIMITS) or config.max_output_tokens
    if limit is None:
        limit = min([engine.settings.default_output_tokens + _thinking(config), *known])
        config = config.model_copy(update={"max_output_tokens": limit})
        request = replace(request, config=config)
    copies = max(1, _option(options, ("n",)) or 1)
    prompt = prompt_tokens(request.messages, request.tools, infos) + _bytes(LENGTHS.get(config.verbosity or "", ""))
    if config.server_tools:  # what they find is read by the same call
        prompt = max([prompt, *(info.max_input_tokens or LARGEST_WINDOW for info in infos)])
    estimate = Estimate(
        prompt,
        limit * copies,
        max(inputs),
        max(outputs),
        shrinks=not _FIXED & options.keys(),
        fees_micros=most_fees(config.server_tools),
        percent=100 + engine.settings.worst_case_margin_percent,
    )
    return request, estimate


def shorter(request: LLMGenerateInput, estimate: Estimate, output: int) -> tuple[LLMGenerateInput, Estimate]:
    """Return the request and its estimate for an answer of at most `output` tokens."""
    config = request.config.model_copy(update={"max_output_tokens": output})
    return replace(request, config=config), replace(estimate, output=output)


def models_of(config: LLMConfig) -> Sequence[str]:
    """Return the models that an adapter may call for this request. Its route has already been resolved."""
    return [config.model, *config.fallbacks]


def prompt_tokens(messages: Sequence[AnyMessage], tools: Sequence[ToolSpec], infos: Sequence[ModelInfo] = ()) -> int:
    """Return an upper bound on the prompt's tokens: the bytes of its text, and the most that its files can take for any
    of the models. No provider reads or bills more tokens than fit in the model's window."""
    models = [info.model for info in infos]
    files = sum(most_file_tokens(file, models) for file in files_of(messages))
    windows = [info.max_input_tokens or LARGEST_WINDOW for info in infos] or [LARGEST_WINDOW]
    total = min(files, max(windows)) + sum(_message_bytes(message) + PER_MESSAGE for message in messages)
    total += sum(_bytes(t.name) + _bytes(t.description) + _bytes(dumps(t.parameters)) + PER_TOOL for t in tools)
    return total + (WITH_TOOLS if tools else 0)


def _message_bytes(message: AnyMessage) -> int:
    total = _bytes(message.content or "")
    match message:
        case AssistantMessage():
            for call in message.tool_calls:
                total += _bytes(call.id) + _bytes(call.name) + _bytes(dumps(call.arguments)) + PER_MESSAGE
            for block in message.thinking:
                total += sum(_bytes(text or "") for text in (block.text, block.signature, block.redacted))
            total += sum(_bytes(dumps(block.raw)) for block in message.server_blocks)
            total += sum(_bytes(dumps(citation.raw)) for citation in message.citations if citation.raw)
        case ToolResultMessage():
            total += _bytes(message.tool_call_id) + _bytes(message.tool_name)
        case _:
            pass
    return total


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _micros(worst: float | None, price: float | None, ceiling: float) -> float:
    dollars = worst if worst is not None else price
    return ceiling if dollars is None else dollars * 1_000_000


def _option(options: dict[str, Any], names: Sequence[str]) -> int | None:
    found = [value for name in names if isinstance(value := options.get(name), int) and value > 0]
    return max(found, default=None)


def _thinking(config: LLMConfig) -> int:
    """Return the thinking budget in tokens, for providers whose output limit must exceed it."""
    thinking = config.provider_options.get("thinking")
    asked = _option(thinking, ("budget_tokens",)) if isinstance(thinking, dict) else None
    return asked or (THINKING_TOKENS[config.reasoning] if config.reasoning is not None else 0)
