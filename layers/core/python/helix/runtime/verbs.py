"""The verbs as functions, with their events and responses. Both contain only ids and counters."""

from __future__ import annotations

import math
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

LONGEST_PAUSE_S = 2.0
"""The longest pause before a model call, in seconds, that a function makes. Longer ones are the state machine's."""
LONGEST_WAIT_S = 60
"""The longest time, in seconds, that the state machine waits at once. The run then checks for an interrupt."""
FAILED = frozenset({"FAILED", "TIMED_OUT"})
"""The statuses of executions that the platform ended. ABORTED is not included, because a person stopped that execution."""


class Event(BaseModel):
    """An event of a verb. Its model is built on first use, because each function uses only one event."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class CallModelEvent(Event):
    """An event that requests the next step of a run."""

    session_id: str
    """The session of the run."""
    run_id: str
    """The run that the execution belongs to."""
    part: int = 1
    """The part of the run that this execution performs. It increases with each roll-over."""
    step: int
    """The step for which the model is called."""
    events: int = 0
    """An estimate of the execution's history events when this state was entered."""
    retries: int = 0
    """The number of deliveries of this event that have failed so far."""
    waits: bool = False
    """Whether the state machine has a state that waits. One of an earlier version does not, and the function waits."""


class CallRef(Event):
    step: int
    """The step that the call belongs to."""
    id: str
    """The call's id, unique within its session."""


class CallToolEvent(Event):
    session_id: str
    """The session of the run."""
    run_id: str
    """The run that the execution belongs to."""
    part: int = 1
    """The part of the run that this execution performs."""
    call: CallRef
    """The call to execute."""


class StartRunEvent(CallToolEvent):
    """An event that requests the start of a sub-agent's run."""

    token: str
    """The task token of Step Functions. It is returned once the parent has nothing left to wait for."""


class FinishRunEvent(Event):
    session_id: str
    """The session of the run."""
    run_id: str
    """The run that has ended."""


class CaughtError(Event):
    """An error that a state machine caught. Its `Cause`, the function's own report, is omitted and stays in the log."""

    error: str = Field(default="", alias="Error")
    """The name of the error, as Step Functions reports it. Empty if it is not known."""


class ExecutionInput(Event):
    session_id: str
    """The session of the run."""
    run_id: str
    """The run that the execution belongs to."""
    part: int = 1
    """The part of the run that the execution performed."""


class ExecutionDetail(Event):
    status: str
    """The execution's status: `FAILED`, `TIMED_OUT` or `ABORTED`."""
    input: Json[ExecutionInput]
    """The execution's input, which EventBridge sends as JSON text."""


class FailRunEvent(Event):
    """An execution's status event from EventBridge (`detail`), or the report of a state machine that has given up."""

    session_id: str | None = None
    """The session of the run. None if `detail` contains it."""
    run_id: str | None = None
    """The run that fails. None if `detail` contains it."""
    part: int = 1
    """The part of the run that fails. With `detail`, its input contains the part."""
    error: CaughtError = CaughtError()
    """The error that the state machine caught. Empty with `detail`."""
    detail: ExecutionDetail | None = None
    """The detail of EventBridge's event. None if a state machine sent this event."""

    @model_validator(mode="after")
    def _check_target(self) -> FailRunEvent:
        if self.detail is None and (self.session_id is None or self.run_id is None):
            raise ValueError("needs session_id and run_id, or the detail of an execution's status event")
        return self

    def position(self) -> tuple[Position, str]:
        """Return the position of the failed execution, and the cause."""
        if self.detail is not None:
            about = self.detail.input
            return Position(about.session_id, about.run_id, about.part, 0), self.detail.status
        assert self.session_id is not None and self.run_id is not None
        return Position(self.session_id, self.run_id, self.part, 0), self.error.error


class SweepEvent(Event):
    """The event of the schedule, which has no content."""


def prepare_call_model(app: Application) -> None:
    """Import the agents and the packages that call their models, and read the secrets of inline tools. A model from
    `import:` is omitted, because it may need its own secrets, which have not been read yet."""
    from helix.runtime.models import IMPORTED, prepare_models

    if not app.settings.model.startswith(IMPORTED):
        prepare_models(app.agents)
    app.refresh_secrets()


def prepare_call_tool(app: Application) -> None:
    """Read the tools' secrets, so that a missing one is logged before the first call."""
    app.refresh_secrets()


async def call_model(app: Application, event: CallModelEvent, delivery: Delivery) -> dict[str, Any]:
    """Call the model for the next steps. Return the event for the next `call_model`. `next` names the state to enter first,
    whose input is `call` or `calls`."""
    app.refresh_secrets()
    events = event.events + RETRY_EVENTS * event.retries
    position = Position(event.session_id, event.run_id, event.part, event.step, events)
    longest = LONGEST_PAUSE_S if event.waits else math.inf
    move = await deliver_model(app.engine, position, delivery, longest_pause_s=longest)
    after: dict[str, Any] = {**event.model_dump(include={"session_id", "run_id", "part"})}
    after |= {"step": move.step, "events": move.events}
    if move.kind != "on":
        return {**after, "next": "finish" if move.kind == "over" else "rolled"}
    if move.until:
        seconds = math.ceil(min(max(0.0, move.until - app.engine.clock.now()), LONGEST_WAIT_S))
        return {**after, "next": "wait", "seconds": seconds}
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
