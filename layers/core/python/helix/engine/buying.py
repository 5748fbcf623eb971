"""Asking the model: what is sent, what is streamed, and when to give up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from helix.core.agents import AnyAgent
from helix.core.chunks import ErrorChunk, StepDiscardedChunk, TextDeltaChunk, ThinkingChunk
from helix.core.claiming import OpenRows
from helix.core.config import LLMConfig
from helix.core.errors import HelixError, ModelError
from helix.core.folding import Fold
from helix.core.json import JsonObject, clean_text
from helix.core.messages import AnyMessage
from helix.core.prompt import build_effective_tools, build_messages_for_llm
from helix.core.rows import AnyEntry, ErrorInfo, SessionRow, StopRow, message_of
from helix.core.states import typed_state
from helix.core.steps import AnyStepResult, ErrorStepResult, storable
from helix.core.tools import FINISH_TOOL_NAME
from helix.engine.engine import Engine
from helix.engine.hooking import call_hook
from helix.engine.run_stream import RunStream
from helix.engine.stops import StopWatch
from helix.ports.model import LLMAdapter, LLMGenerateInput, LLMStreamCallbacks, ToolSpec

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
    """The request for the next step, from history plus what the fold adds. An agent function that raises is a failure."""
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
    return LLMGenerateInput(
        messages=sent,
        tools=[ToolSpec(t.name, t.description, t.parameters, t.strict) for t in tools],
        config=config or FUNCTION,
        agent_id=session.session_id,
        agent_type=agent.name,
        tool_choice=FINISH_TOOL_NAME if new.forced and finish is not None else "auto",
        output_schema=finish.parameters if finish is not None else None,
    )


async def ask_model(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    prepared: LLMGenerateInput,
    stream: RunStream,
    watch: StopWatch,
) -> Answer:
    """7: call the model and stream what it says; a stop ends the call at once."""
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
    result = await _race(engine.models(agent), request, watch)
    if result is None:
        return Answer(None, watch.stop)
    after = {
        "step": claim.step,
        "attempt": claim.attempt,
        "result": result,
        "usage": result.usage,
        "model": result.model,
    }
    await call_hook(engine, agent, session, "after_llm_call", after, stream)
    return Answer(result)


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
    """An adapter that raises is a failed answer, named: a run must not die of it without a record."""
    try:
        return storable(await adapter.generate_step(request))
    except ModelError as error:
        return ErrorStepResult(error=str(error), code=error.code, retryable=error.retryable)
    except HelixError as error:
        return ErrorStepResult(error=str(error), code=error.code)
    except Exception as error:
        return ErrorStepResult(error=f"the model adapter raised {type(error).__name__}: {error}", code="adapter_failed")
