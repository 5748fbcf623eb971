"""The verbs as functions: what each is sent, and what it answers. Ids and counters only."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, Json, model_validator

from helix.core.delivery import Delivery, Position
from helix.engine.engine import logger
from helix.engine.verbs import (
    RETRY_EVENTS,
    deliver_call,
    deliver_child,
    deliver_end,
    deliver_failure,
    deliver_model,
)
from helix.runtime.cloud import Application
from helix.services.warnings import report_failures
from helix.sessions.sweep import sweep as sweep_runs

FAILED = frozenset({"FAILED", "TIMED_OUT"})
"""Executions that the machinery did not bring to their end; one that is ABORTED was stopped by a person."""


class Event(BaseModel):
    """Built when it is used: a function has use for one of these."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class CallModelEvent(Event):
    """`step` is the one to buy; `events` an estimate of the execution's history when this state was entered, and `retries`
    how many deliveries of it have failed since."""

    session_id: str
    run_id: str
    part: int = 1
    step: int
    events: int = 0
    retries: int = 0


class CallRef(Event):
    step: int
    id: str


class CallToolEvent(Event):
    session_id: str
    run_id: str
    part: int = 1
    call: CallRef


class StartRunEvent(CallToolEvent):
    """`token` is answered when the parent has nothing to wait for any more."""

    token: str


class FinishRunEvent(Event):
    session_id: str
    run_id: str


class CaughtError(Event):
    """What a state machine caught. `Cause` is the function's own report, which stays in its log."""

    error: str = Field(default="", alias="Error")


class ExecutionInput(Event):
    session_id: str
    run_id: str
    part: int = 1


class ExecutionDetail(Event):
    status: str
    input: Json[ExecutionInput]


class FailRunEvent(Event):
    """Either an execution's status event from EventBridge (`detail`), or a state machine that gives up."""

    session_id: str | None = None
    run_id: str | None = None
    part: int = 1
    error: CaughtError = CaughtError()
    detail: ExecutionDetail | None = None

    @model_validator(mode="after")
    def _named(self) -> FailRunEvent:
        if self.detail is None and (self.session_id is None or self.run_id is None):
            raise ValueError("needs session_id and run_id, or the detail of an execution's status event")
        return self

    def position(self) -> tuple[Position, str]:
        """And the cause."""
        if self.detail is not None:
            about = self.detail.input
            return Position(about.session_id, about.run_id, about.part, 0), self.detail.status
        assert self.session_id is not None and self.run_id is not None
        return Position(self.session_id, self.run_id, self.part, 0), self.error.error


class SweepEvent(Event):
    """What the schedule sends says nothing."""


def prepare_call_model(app: Application) -> None:
    """Import the agents and what calls their models; read the secrets of inline tools. A model from `import:` may want its
    own, which are not read yet."""
    from helix.runtime.models import IMPORTED, prepare_models

    if not app.settings.model.startswith(IMPORTED):
        prepare_models(app.agents)
    app.refresh_secrets()


def prepare_call_tool(app: Application) -> None:
    """Read the tools' secrets, so that a missing one is in the log before the first call."""
    app.refresh_secrets()


async def call_model(app: Application, event: CallModelEvent, delivery: Delivery) -> dict[str, Any]:
    """Answers the event for the next `call_model`, and what comes before it: `next`, with `call` or `calls`."""
    app.refresh_secrets()
    events = event.events + RETRY_EVENTS * event.retries
    position = Position(event.session_id, event.run_id, event.part, event.step, events)
    move = await deliver_model(app.engine, position, delivery)
    after: dict[str, Any] = {**event.model_dump(include={"session_id", "run_id", "part"})}
    after |= {"step": move.step, "events": move.events}
    if move.kind != "on":
        return {**after, "next": "finish" if move.kind == "over" else "rolled"}
    calls = [{"step": move.step - 1, "id": call.call_id, "kind": call.kind} for call in move.calls]
    if not calls:
        return {**after, "next": "call_model"}
    if len(calls) == 1:
        return {**after, "next": calls[0]["kind"], "call": calls[0]}
    return {**after, "next": "map", "calls": calls}


async def call_tool(app: Application, event: CallToolEvent, delivery: Delivery) -> dict[str, Any]:
    app.refresh_secrets()
    position = Position(event.session_id, event.run_id, event.part, event.call.step)
    return {"call": await deliver_call(app.engine, position, event.call.id, delivery)}


async def start_run(app: Application, event: StartRunEvent, delivery: Delivery) -> dict[str, Any]:
    position = Position(event.session_id, event.run_id, event.part, event.call.step)
    return {"call": await deliver_child(app.engine, position, event.call.id, event.token, delivery)}


async def finish_run(app: Application, event: FinishRunEvent, delivery: Delivery) -> dict[str, Any]:
    await deliver_end(app.engine, event.session_id, event.run_id, delivery)
    return {"session_id": event.session_id, "run_id": event.run_id}


async def fail_run(app: Application, event: FailRunEvent, delivery: Delivery) -> dict[str, Any]:
    position, cause = event.position()
    if cause in FAILED:
        report_failures(app.engine.metrics, {"executions-failed": f"{cause}: run {position.run_id}"})
    await deliver_failure(app.engine, position, cause, delivery)
    return {"session_id": position.session_id, "run_id": position.run_id}


async def sweep(app: Application, event: SweepEvent, delivery: Delivery) -> dict[str, int]:
    try:
        done = dict(await sweep_runs(app.engine, delivery))
    except Exception as error:
        report_failures(app.engine.metrics, {"sweep-fails": type(error).__name__})
        raise
    if failed := done.get("failed run"):
        report_failures(app.engine.metrics, {"executions-failed": f"{failed} runs, which sweep found"})
    logger.info("swept: %s", done or "no open runs")
    return done
