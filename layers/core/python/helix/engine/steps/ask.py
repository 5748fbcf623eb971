"""Asks the model: builds the request, chooses the route's model, streams the answer, and decides when to give up.

Law: `core.routing` makes the choice. This module supplies its inputs: the prompt's estimated size, windows and prices
from the catalog, the latency of each model in this process, and the used fraction of the run's budgets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from helix._log import describe
from helix.core.agents import AnyAgent
from helix.core.claim_plan import OpenRows
from helix.core.config import LLMConfig
from helix.core.errors import (
    AccessDeniedError,
    ContextTooLargeError,
    DefinitionError,
    HelixError,
    InvalidFileError,
    InvalidInputError,
    ModelError,
    WorkInProgressError,
)
from helix.core.estimating import estimate_request
from helix.core.folding import Fold
from helix.core.json import text_of
from helix.core.lost_caches import LostCache
from helix.core.messages import AnyMessage, UserMessage
from helix.core.planning import StepProcessingPlan
from helix.core.prompt import (
    build_effective_tools,
    build_messages_for_llm,
    request_end,
    resolve_system_prompt,
    show_changes,
)
from helix.core.routes import Route, RouteOption
from helix.core.routing import (
    BALANCED,
    DEFAULT_OUTPUT_TOKENS,
    InstanceInfo,
    Need,
    Order,
    by_cost,
    by_score,
    by_speed,
    decide,
    ranked,
)
from helix.core.rows import ErrorInfo, StopRow
from helix.core.session_row import SessionRow
from helix.core.states import refused_state, typed_state
from helix.core.steps import AnyStepResult, ErrorStepResult, storable
from helix.core.tool_choice import choice_of_step
from helix.core.tools import FINISH_TOOL_NAME
from helix.core.usage import Usage
from helix.core.verdicts import Verdict
from helix.core.views import RECALL_TOOL, show_history
from helix.engine.context import RunContext
from helix.engine.engine import Engine, logger
from helix.engine.facts import ModelAnswered, ModelAsked, ModelCallEnded
from helix.engine.money.reservations import budget_level
from helix.engine.observers import record, show
from helix.engine.observers.telemetry import within_chat
from helix.engine.steps.cached import find_cached, remember
from helix.engine.steps.reminders import remind
from helix.engine.steps.streamed import THROTTLED, AnswerStream
from helix.engine.steps.summary import summary_request
from helix.engine.steps.views import Prepared, plan_view
from helix.engine.stops import StopWatch
from helix.ports.catalog import ModelInfo
from helix.ports.model import (
    OUT_OF_TIME,
    PUT_OFF,
    LLMAdapter,
    LLMGenerateInput,
    LLMStreamCallbacks,
    ToolSpec,
)
from helix.services.retrying import retrying

LEVELS = ("", "warning", "critical", "exceeded")
LATEST_SHARE = 0.3
"""The weight of the latest call in the moving average of a model's latency."""


async def choose_model(engine: Engine, new: SessionRow, request: LLMGenerateInput) -> LLMGenerateInput:
    """Return the request with the best model of its route; the other models that fit are its fallbacks. `new` is the
    session with its budgets bound. Raises `ContextTooLargeError` if the prompt and its answer do not fit any model."""
    config = request.config
    route = config.route
    if route is None:
        return request
    need = Need(
        estimate_request(request.messages, request.tools, config.model),
        config.max_output_tokens or DEFAULT_OUTPUT_TOKENS,
    )
    offered = [_instance(engine, option) for option in route.models]
    level = "" if route.degrade_at is None else await budget_level(engine, new)
    degraded = route.degrade_at is not None and LEVELS.index(level) >= LEVELS.index(route.degrade_at)
    best, *others = ranked(offered, need, _order(route, offered, need, degraded))
    if degraded:  # a more expensive fallback would need a larger reservation than the budget allows
        others = []
    why = f"a budget is at {level}: the cheapest that fits" if degraded else _WHY[route.prefer]
    decision = decide(best, need, f"{why}, of {len(offered)} models for about {need.total} tokens", fallback=degraded)
    logger.info("run %s: %s by its route: %s", new.run_id, decision.model, decision.reason)
    fallbacks = dict.fromkeys([*(other.model for other in others), *config.fallbacks])
    chosen = config.model_copy(
        update={"model": best.model, "fallbacks": [name for name in fallbacks if name != best.model], "route": None}
    )
    return replace(request, config=chosen, chosen=decision.reason)


def note_latency(engine: Engine, model: str | None, seconds: float) -> None:
    """Remember how long a model took, for later choices in this process."""
    if model is not None:
        before = engine.latencies.get(model, seconds * 1000)
        engine.latencies[model] = before + LATEST_SHARE * (seconds * 1000 - before)


_WHY = {"balanced": "the best score", "cost": "the cheapest that fits", "speed": "the quickest that fits"}


def _order(route: Route, offered: list[InstanceInfo], need: Need, degraded: bool) -> Order:
    if degraded or route.prefer == "cost":
        return by_cost(need)
    return by_speed(need) if route.prefer == "speed" else by_score(offered, need, BALANCED)


def _instance(engine: Engine, option: RouteOption) -> InstanceInfo:
    info = ModelInfo(option.model) if engine.catalog is None else engine.catalog.info(option.model)
    seen = engine.latencies.get(option.model)
    return InstanceInfo(
        instance_id=option.model,
        model=option.model,
        max_context_tokens=option.window or info.max_input_tokens,
        max_output_tokens=info.max_output_tokens,
        avg_latency_ms=seen if option.latency_ms is None else option.latency_ms,
        input_usd=info.input_usd,
        output_usd=info.output_usd,
        bonus=option.bonus,
    )


TIMED_OUT = "model_timed_out"
MAX_LATE = 3
"""The number of attempts without an answer after which the run fails as `model_timed_out`. The worker of each such
attempt had no time left, or was silent."""
GRACE_S = 2.0
"""The number of seconds after the timeout during which an adapter may report the timeout itself."""
FUNCTION = LLMConfig(model="function")


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The model's answer, or the stop that came first."""

    result: AnyStepResult | None
    """The answer, which may be an error. None: the stop came first."""
    stop: StopRow | None = None
    """The interrupt or abort that cancelled the call. None: the model has answered."""
    verdicts: Sequence[Verdict] = ()
    """The verdicts of the agent's guards. They are stored with the answer."""
    plan: StepProcessingPlan | None = None
    """The plan of the step that guards and output checks allow. None: the answer has not been planned yet."""
    partial: str = ""
    """The text that readers had when the stop came. Empty without a stop."""
    lost_cache: LostCache | None = None
    """The reason why the provider's cache did not have the prompt. None if it did, or if nothing was expected."""


def reads_state(agent: AnyAgent) -> bool:
    """Return whether a request depends on the custom state."""
    return callable(agent.system_prompt) or callable(agent.llm_config) or any(map(callable, agent.reminders))


async def prepare(
    run: RunContext,
    session: SessionRow,
    folding: tuple[OpenRows, Fold] | None,
    new: SessionRow,
    arrived: Sequence[AnyMessage] = (),
) -> Prepared | ErrorInfo:
    """Build the request for the next step from the view of history, the fold's messages and those that `arrived` for the
    run. The request names the model
    that the agent's route chose, and includes the answer if it is cached. If history has outgrown the window, the
    request asks for a summary instead. Returns an error if an agent function raises, or if the prompt does not fit any
    model."""
    engine, agent = run.engine, run.agent
    history = [*await _history(engine, session, folding), *arrived]
    view = await engine.history.view(session)
    try:
        typed = await _typed_state(run, session, folding)
    except InvalidInputError as error:
        return ErrorInfo(code="invalid_agent", message=refused_state(agent, error))
    reminder = await remind(run, new, typed)
    if isinstance(reminder, ErrorInfo):
        return reminder
    try:
        config = agent.llm_config(typed) if callable(agent.llm_config) else agent.llm_config
        system = resolve_system_prompt(agent.system_prompt, typed)
        tools = build_effective_tools(agent, run.declared)

        def sent(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
            built = build_messages_for_llm(messages, system, paired=True)
            return [*built, *request_end(built, reminder, finish=new.forced or new.reminded)]

        config = engine.models(agent).configured((config or FUNCTION).model_copy(update=run.settings))
        plan = plan_view(run, view, new, history, config, lambda shown: estimate_request(sent(shown), tools))
    except Exception as error:
        logger.warning("run %s: a function of agent %r failed", session.run_id, agent.name, exc_info=True)
        return ErrorInfo(code="invalid_agent", message=f"a function of agent {agent.name!r} raised {describe(error)}")
    if isinstance(plan, ErrorInfo):
        return plan
    if (refused := engine.models(agent).refused_setting(config)) is not None:
        return ErrorInfo(code="unsupported_setting", message=refused)
    choice = choice_of_step(config.tool_choice, agent, {tool.name for tool in tools}, history)
    finish, recalls = agent.finish_tool, plan.recalls(agent)
    if recalls:
        tools.append(RECALL_TOOL)
    shown = build_messages_for_llm(show_history(plan.view, history, recall=recalls), system, paired=True)
    end = request_end(shown, reminder, finish=new.forced or new.reminded)
    request = LLMGenerateInput(
        messages=[*shown, *end],
        tools=[ToolSpec(t.name, t.description, t.parameters, t.strict) for t in tools],
        config=config,
        agent_id=session.session_id,
        agent_type=agent.name,
        tool_choice=FINISH_TOOL_NAME if new.forced and finish is not None else choice,
        output_schema=finish.parameters if finish is not None else None,
        passing=len(end),
        origin_id=session.origin_id,
    )
    tokens = 0
    if plan.summary is not None:
        tokens = estimate_request(request.messages, request.tools)
        request = summary_request(request, plan.view, history, plan.summary, recalls)
        request = replace(request, config=engine.models(agent).configured(request.config))
    try:
        request = await choose_model(engine, new, request)
        if (problem := engine.models(agent).unsupported(request, engine.catalog)) is not None:
            return ErrorInfo(code=InvalidFileError.code, message=problem)
        if engine.files is not None:
            messages, files = await engine.files.show(session.session_id, request.messages)
            request = replace(request, messages=messages, files=files)
        said = [message for message in history if isinstance(message, UserMessage) and message.id]
        reminders = [message.content for message in end] if plan.summary is None else []
        head = engine.heads.of(agent, request, run.declared, reminders, overridden=bool(run.settings))
        return Prepared(await find_cached(run, request), plan, head, said, tokens)
    except (ContextTooLargeError, InvalidInputError) as error:
        return ErrorInfo(code=error.code, message=str(error))


async def _typed_state(run: RunContext, session: SessionRow, folding: tuple[OpenRows, Fold] | None) -> Any:
    """Return the custom state in the agent's type, or None if the request does not depend on it. Raises
    `InvalidInputError` if the state does not have that type."""
    if not reads_state(run.agent):
        return None
    state = folding[1].state if folding is not None else None
    return typed_state(run.agent, await run.engine.history.state(session) if state is None else state)


async def _history(engine: Engine, session: SessionRow, folding: tuple[OpenRows, Fold] | None) -> list[AnyMessage]:
    """Return the whole history with the fold's messages, as the model sees them."""
    known = await engine.history.conversation(session)
    history: list[AnyMessage] = known.messages[: session.count]
    changed = [index for index in known.changed if index < len(history)]
    if folding is not None:
        changed.extend(range(len(history), len(history) + len(folding[1].messages)))
        history.extend(folding[1].messages)
    return show_changes(history, changed)


async def ask_model(
    run: RunContext, session: SessionRow, prepared: LLMGenerateInput, *, held: bool = False
) -> ModelAnswer:
    """7: call the model and stream its answer. A stop ends the call immediately. A cached answer is streamed like a new
    one. `held`: readers get the answer from the caller, once guards have judged it."""
    claim = session.claim
    assert claim is not None
    call = ModelCallEnded(claim, prepared, run.now(), cached=prepared.remembered is not None)
    stream = AnswerStream(run, call, has_output=prepared.output_schema is not None)
    callbacks = stream.callbacks()
    if claim.summary or held:  # readers see the summary only once it is written
        callbacks = LLMStreamCallbacks(on_error=callbacks.on_error)
    request = replace(prepared, callbacks=callbacks, timeout_s=run.model_time())
    await record(run, ModelAsked(request))
    if not run.may_ask() or request.timeout_s == 0:
        raise WorkInProgressError(f"step {claim.step} of session {session.session_id!r}", run.now())
    call.begun = run.now()
    result = request.remembered
    if result is not None:
        if not held:
            stream.show_parts(result)
        call.first, call.result = None, result
        show(run, call)
    else:
        result = await _observed(run, call, request)
        if result is None:
            return ModelAnswer(None, run.watch.stop, partial=stream.partial)
        if isinstance(result, ErrorStepResult) and result.code == OUT_OF_TIME and request.timeout_s is not None:
            return _late(run, result)
        if isinstance(result, ErrorStepResult) and result.code == PUT_OFF:
            return ModelAnswer(result)
        if request.chosen and not isinstance(result, ErrorStepResult):
            note_latency(run.engine, result.model, run.now() - call.begun)
        await remember(run, session, request, result)
    if not held:
        stream.show_output(result)
    await record(run, ModelAnswered(claim, result))
    return ModelAnswer(result)


def _late(run: RunContext, result: ErrorStepResult) -> ModelAnswer:
    """Handle a call that timed out. Raises `WorkInProgressError` so that another worker asks, unless this was attempt
    `MAX_LATE` without an answer."""
    if stop := run.late():
        return ModelAnswer(None, stop)
    late = hand_over(run, "its model call", result.error)
    text = (
        f"the model gave no answer in {late} attempts, each with all the time of its worker; the last: {result.error}"
    )
    return ModelAnswer(result.model_copy(update={"code": TIMED_OUT, "error": text}))


def hand_over(run: RunContext, what: str, why: str) -> int:
    """Raise `WorkInProgressError`, so that another worker repeats the step with more time. Returns the number of attempts
    that ran out of time, if this was number `MAX_LATE`."""
    claim = run.session.claim
    assert claim is not None
    late = claim.late + 1
    logger.warning("run %s: attempt %d at step %d: %s", run.run_id, claim.attempt, claim.step, why)
    if late < MAX_LATE:  # stored when the claim is released
        run.session.claim = claim.model_copy(update={"late": late})
        raise WorkInProgressError(f"a step of session {run.session_id!r}: {what}", run.now())
    return late


async def _observed(run: RunContext, call: ModelCallEnded, request: LLMGenerateInput) -> AnyStepResult | None:
    """Return the model's answer, or None if the stop came first. Either way, the call is recorded as a fact."""
    call.error = "cancelled"
    try:
        with within_chat(run, call.claim.attempt_id):
            call.result = await _race(retrying(run.engine.models(run.agent), run.engine.clock), request, run.watch)
        if call.result is not None:
            call.error = None
            call.throttled = call.throttled or (
                isinstance(call.result, ErrorStepResult) and call.result.code == THROTTLED
            )
        return call.result
    except AccessDeniedError as error:
        call.error = error.code
        raise
    finally:
        show(run, call)


async def _race(adapter: LLMAdapter, request: LLMGenerateInput, watch: StopWatch) -> AnyStepResult | None:
    """Return the model's answer, or None if the stop came first and cancelled the call."""
    call = asyncio.ensure_future(_guarded(adapter, request))
    watch.cancels(call)
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if watch.stop is None or (task is not None and task.cancelling()):
            raise
        return None


async def _guarded(adapter: LLMAdapter, request: LLMGenerateInput) -> AnyStepResult:
    """Call the adapter. If it raises, return a failed answer with the error's name and unknown usage, because a run
    must not end without a record. An adapter that continues after its timeout is cancelled. Raises `AccessDeniedError` if
    AWS denies this process the bytes of a file, as the run's other denied operations do."""
    most = None if request.timeout_s is None else request.timeout_s + GRACE_S
    usage = Usage() if request.config.model == FUNCTION.model else Usage(unknown_calls=1)
    try:
        async with asyncio.timeout(most) as limit:
            return storable(await adapter.generate_step(request))
    except AccessDeniedError:
        raise
    except DefinitionError as error:  # raised before anything is sent
        return ErrorStepResult(error=text_of(error), code=error.code)
    except ModelError as error:
        return ErrorStepResult(error=text_of(error), code=error.code, retryable=error.retryable, usage=usage)
    except HelixError as error:
        return ErrorStepResult(error=text_of(error), code=error.code, usage=usage)
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            text = f"no answer within the {request.timeout_s:g} s that were left"
            return ErrorStepResult(error=text, code=OUT_OF_TIME, retryable=True, usage=usage)
        logger.warning("the model adapter failed for agent %r", request.agent_type, exc_info=True)
        text = f"the model adapter raised {describe(error)}"
        return ErrorStepResult(error=text, code="adapter_failed", usage=usage)
