"""Asking the model: what is sent, what is streamed, and when to give up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from helix.core.agents import AnyAgent
from helix.core.chunks import ErrorChunk, StepDiscardedChunk, TextDeltaChunk, ThinkingChunk
from helix.core.claiming import OpenRows
from helix.core.config import LLMConfig
from helix.core.errors import ContextTooLargeError, HelixError, InvalidInputError, ModelError
from helix.core.folding import Fold
from helix.core.json import JsonObject, clean_text
from helix.core.messages import AnyMessage
from helix.core.prompt import build_effective_tools, build_messages_for_llm
from helix.core.rows import AnyEntry, ErrorInfo, SessionRow, StopRow, message_of
from helix.core.states import typed_state
from helix.core.steps import AnyStepResult, ErrorStepResult, TextStepResult, ToolCallsStepResult, storable
from helix.core.tools import FINISH_TOOL_NAME
from helix.core.usage import Usage
from helix.engine.engine import Engine
from helix.engine.hooking import call_hook
from helix.engine.measuring import measured
from helix.engine.remembering import recall, remember
from helix.engine.routing import choose_model, note_latency
from helix.engine.run_stream import RunStream
from helix.engine.stops import StopWatch
from helix.engine.traced import tell_remembered, traced_model
from helix.ports.model import ChoosesModel, LLMAdapter, LLMGenerateInput, LLMStreamCallbacks, ToolSpec

FUNCTION = LLMConfig(model="function")


@dataclass(frozen=True, slots=True)
class Answer:
    """`result` is None where the stop came first."""

    result: AnyStepResult | None
    stop: StopRow | None = None


async def prepare(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    folding: tuple[OpenRows, Fold] | None,
    new: SessionRow,
    state: JsonObject,
) -> LLMGenerateInput | ErrorInfo:
    """The request for the next step, from history plus what the fold adds: with the model of the agent's route, and the
    answer if the cache has it. An agent function that raises is a failure, and so is a prompt that fits no model."""
    messages = await engine.history.messages(session)
    history: list[AnyMessage] = list(messages)
    if folding is not None:
        rows, fold = folding
        added: list[AnyEntry] = [rows.answer, *fold.calls]
        for entry in added:
            history.append(message_of(entry, session.lineage, len(history)))
    try:
        dynamic = callable(agent.system_prompt) or callable(agent.llm_config)
        typed = typed_state(agent, state) if dynamic else None
        config = agent.llm_config(typed) if callable(agent.llm_config) else agent.llm_config
        sent = build_messages_for_llm(history, agent.system_prompt, typed, force_finish=new.forced, paired=True)
    except Exception as error:
        return ErrorInfo(
            code="invalid_agent", message=f"a function of agent {agent.name!r} raised {type(error).__name__}: {error}"
        )
    tools = build_effective_tools(agent)
    finish = agent.finish_tool
    request = LLMGenerateInput(
        messages=sent,
        tools=[ToolSpec(t.name, t.description, t.parameters, t.strict) for t in tools],
        config=_effective(engine, agent, config or FUNCTION),
        agent_id=session.session_id,
        agent_type=agent.name,
        tool_choice=FINISH_TOOL_NAME if new.forced and finish is not None else "auto",
        output_schema=finish.parameters if finish is not None else None,
    )
    try:
        request = await choose_model(engine, new, request)
        return await recall(engine, agent, new, request)
    except (ContextTooLargeError, InvalidInputError) as error:
        return ErrorInfo(code=error.code, message=str(error))


def _effective(engine: Engine, agent: AnyAgent, config: LLMConfig) -> LLMConfig:
    """The settings that the agent's adapter goes by: it may have a model of its own."""
    adapter = engine.models(agent)
    return adapter.configured(config) if isinstance(adapter, ChoosesModel) else config


async def ask_model(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    prepared: LLMGenerateInput,
    stream: RunStream,
    watch: StopWatch,
) -> Answer:
    """7: call the model and stream what it says; a stop ends the call at once. An answer that is remembered is told like
    one that was given."""
    claim = session.claim
    assert claim is not None
    shown = False

    def show(chunk: TextDeltaChunk | ThinkingChunk) -> None:
        nonlocal shown
        shown = True
        stream.put("attempt", [chunk], step=claim.step, attempt=claim.attempt)

    def failed_try(error: Exception) -> None:
        nonlocal shown
        chunks = [
            ErrorChunk(error=clean_text(str(error)), code=getattr(error, "code", "model_error"), recoverable=True)
        ]
        discard = [StepDiscardedChunk(reason="the model call failed and is repeated")] if shown else []
        stream.put("attempt", [*chunks, *discard], step=claim.step, attempt=claim.attempt)
        shown = False

    callbacks = LLMStreamCallbacks(
        on_text_delta=lambda delta: show(TextDeltaChunk(delta=clean_text(delta))) if delta else None,
        on_thinking=lambda content, done: show(ThinkingChunk(content=clean_text(content), is_complete=done)),
        on_error=failed_try,
    )
    request = replace(prepared, callbacks=callbacks)
    told = {"step": claim.step, "attempt": claim.attempt, "model": request.config.model, "messages": request.messages}
    await call_hook(engine, agent, session, "before_llm_call", told, stream)
    result = request.remembered
    if result is not None:
        _tell(result, show)
        tell_remembered(engine, agent, session, request)
    else:
        model = traced_model(engine, agent, session, engine.models(agent))
        begun = engine.clock.now()
        result = await _race(measured(engine, agent, session, model), request, watch)
        if result is None:
            return Answer(None, watch.stop)
        if request.chosen and not isinstance(result, ErrorStepResult):
            note_latency(engine, result.model, engine.clock.now() - begun)
        await remember(engine, agent, session, request, result)
    after = {
        "step": claim.step,
        "attempt": claim.attempt,
        "result": result,
        "usage": result.usage,
        "model": result.model,
    }
    await call_hook(engine, agent, session, "after_llm_call", after, stream)
    return Answer(result)


def _tell(result: AnyStepResult, show: Callable[[TextDeltaChunk | ThinkingChunk], None]) -> None:
    """A remembered answer, each part at once."""
    for block in result.thinking:
        show(ThinkingChunk(content=clean_text(block.text), is_complete=True))
    if isinstance(result, TextStepResult | ToolCallsStepResult) and result.content:
        show(TextDeltaChunk(delta=clean_text(result.content)))


async def _race(adapter: LLMAdapter, request: LLMGenerateInput, watch: StopWatch) -> AnyStepResult | None:
    """The model's answer, or None if the stop came first: it cancels the call."""
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
    """An adapter that raises is a failed answer, named: a run must not die of it without a record. What it had used by then
    nobody knows."""
    usage = Usage() if request.config.model == FUNCTION.model else Usage(unknown_calls=1)
    try:
        return storable(await adapter.generate_step(request))
    except ModelError as error:
        return ErrorStepResult(error=str(error), code=error.code, retryable=error.retryable, usage=usage)
    except HelixError as error:
        return ErrorStepResult(error=str(error), code=error.code, usage=usage)
    except Exception as error:
        told = f"the model adapter raised {type(error).__name__}: {error}"
        return ErrorStepResult(error=told, code="adapter_failed", usage=usage)
