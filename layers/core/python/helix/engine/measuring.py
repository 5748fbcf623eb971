"""What the engine measures: model calls, tool calls, runs.

Law: what happened is told once, by whoever did it: a delivery that finds its work done tells nothing. Whatever is told,
nothing that is measured waits for it or fails because of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.measures import Measures
from helix.core.rows import CallRow, RunRow, SessionRow
from helix.core.steps import AnyStepResult
from helix.engine.engine import Engine
from helix.ports.model import LLMAdapter, LLMGenerateInput, LLMStreamCallbacks

THROTTLED = "rate_limited"
"""The code of a provider's 429."""


def measured(engine: Engine, agent: AnyAgent, session: SessionRow, model: LLMAdapter) -> LLMAdapter:
    """The same model, told of for the call that the session has claimed. The "model" of a function agent is none."""
    return model if agent.function is not None else _Measured(engine, session, model)


class _Measured:
    def __init__(self, engine: Engine, session: SessionRow, model: LLMAdapter) -> None:
        self._engine, self._session, self._model = engine, session, model
        self._first: float | None = None
        self._throttled = False

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        begun = self._engine.clock.now()
        asked = request.config.model
        try:
            result = await self._model.generate_step(replace(request, callbacks=self._callbacks(request.callbacks)))
        except asyncio.CancelledError:
            self._tell(asked, "cancelled", {"ModelErrors": 0})
            raise
        except Exception as error:
            self._throttled = self._throttled or getattr(error, "code", None) == THROTTLED
            self._tell(asked, "failed", {"ModelErrors": 1} | self._latency(begun, failed=True))
            raise
        failed = result.type == "error"
        self._throttled = self._throttled or getattr(result, "code", None) == THROTTLED
        usage = result.usage
        values = {
            "ModelErrors": int(failed),
            "InputTokens": usage.prompt_tokens,
            "OutputTokens": usage.completion_tokens,
            "CachedTokens": usage.cached_tokens,
            "TotalTokens": usage.total_tokens,
            "CostUsd": usage.cost_usd,
        } | self._latency(begun, failed=failed)
        if self._first is not None and not failed:
            values["TimeToFirstToken"] = (self._first - begun) * 1000
        self._tell(result.model or asked, "failed" if failed else "answered", values)
        return result

    def _latency(self, begun: float, *, failed: bool) -> dict[str, float]:
        """Of a call that was throttled to its end there is none: it says nothing of how fast the model is."""
        return {} if failed and self._throttled else {"ModelLatency": (self._engine.clock.now() - begun) * 1000}

    def _tell(self, model: str, outcome: str, values: dict[str, float]) -> None:
        claim = self._session.claim
        details: dict[str, str | int | float] = {"model": model, "outcome": outcome}
        details |= {"session_id": self._session.session_id, "run_id": self._session.run_id}
        if claim is not None:
            details |= {"step": claim.step, "attempt": claim.attempt}
        told = {"ModelCalls": 1, "ModelThrottles": int(self._throttled), **values}
        self._engine.metrics.record(Measures(told, self._session.agent_type, details))

    def _callbacks(self, inner: LLMStreamCallbacks) -> LLMStreamCallbacks:
        """The same, noting when the first piece of the answer came. What came of a failed try is discarded."""

        def noting(callback: Callable[..., Any] | None) -> Callable[..., Any]:
            def note(*arguments: object) -> Any:
                if self._first is None:
                    self._first = self._engine.clock.now()
                return callback(*arguments) if callback is not None else None

            return note

        def on_error(error: Exception) -> Any:
            self._first = None
            self._throttled = self._throttled or getattr(error, "code", None) == THROTTLED
            return inner.on_error(error) if inner.on_error is not None else None

        return LLMStreamCallbacks(
            on_text_delta=noting(inner.on_text_delta),
            on_thinking=noting(inner.on_thinking),
            on_tool_start=noting(inner.on_tool_start),
            on_tool_call=noting(inner.on_tool_call),
            on_error=on_error,
        )


def measure_tool(engine: Engine, session: SessionRow, row: CallRow, success: bool, duration_s: float) -> None:
    """One execution of a tool."""
    values = {"ToolCalls": 1, "ToolErrors": int(not success), "ToolLatency": duration_s * 1000}
    details: dict[str, str | int | float] = {"tool": row.tool_name, "call_id": row.call_id, "step": row.step}
    details |= {"session_id": session.session_id, "run_id": session.run_id}
    engine.metrics.record(Measures(values, session.agent_type, details))


def measure_start(engine: Engine, run: RunRow) -> None:
    """A run was claimed."""
    engine.metrics.record(Measures({"RunsStarted": 1}, run.agent_type, _of_run(run) | {"mode": run.mode}))


def measure_end(engine: Engine, session: SessionRow, run: RunRow) -> None:
    """A run's effects were completed. What a person stopped, or waits for people, is not a failure."""
    aborted = run.error is not None and run.error.code == "aborted"
    if run.status == "failed" and not aborted:
        name = "RunsFailed"
    else:
        name = "RunsCompleted" if run.status == "completed" else "RunsStopped"
    values = {name: 1, "RunDuration": ((run.ended_at or run.started_at) - run.started_at) * 1000}
    details = _of_run(run) | {"status": run.status, "steps": run.steps}
    if run.error is not None:
        details["error"] = run.error.code
    engine.metrics.record(Measures(values, session.agent_type, details))


def _of_run(run: RunRow) -> dict[str, str | int | float]:
    return {"session_id": run.session_id, "run_id": run.run_id, "turn": run.turn}
