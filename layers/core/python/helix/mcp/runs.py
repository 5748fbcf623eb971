"""The operations of an MCP server on runs: start them, find them again by a task id, wait for them and answer their calls.

Law: a task is a run and all runs that continue it, after an answer, a resume, or its worker's death. The session's next
message begins another task. The session's rows contain everything about a task, so any process can find a task by its id. A
request for a task whose worker died takes over its run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from helix.client import HelixClient
from helix.client.link import fields_of
from helix.client.remote_handle import RemoteHandle
from helix.core.chunks import StreamChunk
from helix.core.errors import AgentAlreadyRunningError, CannotResumeError, InvalidInputError
from helix.core.handles import AgentResult, CanResumeResult, SessionState
from helix.core.json import JsonObject, JsonValue
from helix.core.rows import Pending

logger = logging.getLogger("helix.mcp")
RUNS = 100
BETWEEN_S = 0.25
LAST_WORDS_S = 1.0
Report = Callable[[StreamChunk], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RunRef:
    """A reference to a run. Its string form, `<session id>/<run id>`, is the id of a task."""

    session_id: str
    """The session of the run."""
    run_id: str
    """The run that began the task."""

    def __str__(self) -> str:
        return f"{self.session_id}/{self.run_id}"


def ref_of(text: str) -> RunRef:
    """Parse the id of a task. Raises `InvalidInputError`."""
    session_id, slash, run_id = text.partition("/")
    if not (slash and session_id and run_id):
        raise InvalidInputError("a task's id is <session id>/<run id>")
    return RunRef(session_id, run_id)


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for a person, in the task's session or in a session of one of its sub-agents."""

    session_id: str
    """The session of the call."""
    run_id: str
    """The session's run that is waiting for the answer."""
    call: Pending
    """The call as the session's state shows it."""

    @property
    def key(self) -> str:
        """The question's id, which is unique in its task and stays the same while the question is open. Call ids are not
        reused. An unknown outcome is asked about again in a later run, so its key also contains the run's id. A tool may
        ask several rounds of questions, so their key contains the round."""
        again = f".{self.run_id}" if self.call.kind == "unknown" else f".{self.call.round}" if self.call.round else ""
        return f"{self.session_id}.{self.call.kind}.{self.call.call_id}{again}"


@dataclass(frozen=True, slots=True)
class Found:
    """A task as it was found. Times are in Unix seconds."""

    ref: RunRef
    """The run that began the task."""
    run_id: str
    """The newest run of the task: the one that began it, or a later one that continues it."""
    status: str
    """The status of the newest run. It is also `running` while a paused run only waits for running sub-agents or for
    other systems."""
    agent: str
    """The name of the session's agent."""
    started_at: float
    """The start time of the run that began the task, or of the session if that run is not among the newest."""
    updated_at: float
    """The time of the session's last change. For an earlier message, the end of its last run."""
    result: AgentResult[JsonValue] | None = None
    """The result of the newest run. None while it runs, and for earlier messages in a list of tasks."""
    questions: list[Question] = field(default_factory=list)
    """The open questions for a person, including those of sub-agents. Empty unless the task is paused."""


async def start(client: HelixClient, agent: str, fields: JsonObject, key: str) -> RunRef:
    """Start a run of the agent. `fields` contains `message` or `input`, and `session_id`. A repeat with the same
    idempotency key (`key`) returns the same run."""
    asked: JsonObject = {"agent": agent, "subscribe": False, "key": key, **fields}
    begun = await client.ask("run", asked)
    return RunRef(str(begun["session_id"]), str(begun["run_id"]))


async def find(client: HelixClient, ref: RunRef) -> Found:
    """Find a task. If its worker died, take over its run. Raises `SessionNotFoundError`, even for another user's session,
    and `HelixError` for a run that does not exist."""
    found = await _read(client, ref, ref.run_id, 1)
    state = SessionState.model_validate(found["session"])
    if state.current_run_id != ref.run_id:
        found = await _read(client, ref, ref.run_id, RUNS)
        last = _find_continuation(ref.run_id, found)
        if last != ref.run_id:
            found = {**found, "run": (await _read(client, ref, last, 0))["run"]}
        state = SessionState.model_validate(found["session"])
    run, can = fields_of(found["run"]), CanResumeResult.model_validate(found["can_resume"])
    run_id, status = str(run["run_id"]), str(run["status"])
    newest = run_id == state.current_run_id
    if newest and status == "running" and can.can_resume and await _take_over(client, ref, run_id):
        return await find(client, ref)
    questions = await _questions(client, state) if newest and status == "paused" else []
    begun = next((fields_of(row) for row in _list(found, "runs") if fields_of(row)["run_id"] == ref.run_id), {})
    goes_on = status == "paused" and newest and not questions and bool(state.pending)
    return Found(
        ref=ref,
        run_id=run_id,
        status="running" if goes_on else status,
        agent=state.agent_type,
        started_at=float(begun.get("started_at") or state.created_at),
        updated_at=state.updated_at,
        result=None if status == "running" else AgentResult[JsonValue].model_validate(run),
        questions=questions,
    )


async def tasks_in(client: HelixClient, session_id: str) -> list[Found]:
    """Return the tasks of a session's newest runs, newest first. Each message is one task. Only the newest has its
    result."""
    found = await client.ask("get_session", {"session_id": session_id, "runs": RUNS})
    agent = str(fields_of(found["session"])["agent_type"])
    tasks: list[Found] = []
    later: dict[str, Any] | None = None  # the last run of the same message
    for row in map(fields_of, _list(found, "runs")):
        later = later or dict(row)
        if row.get("mode", "execute") == "execute":
            ref, ended = RunRef(session_id, str(row["run_id"])), later.get("ended_at") or later["started_at"]
            begun = float(str(row["started_at"]))
            older = Found(ref, str(later["run_id"]), str(later["status"]), agent, begun, float(ended))
            tasks.append(older if tasks else await find(client, ref))
            later = None
    return tasks


async def _read(client: HelixClient, ref: RunRef, run_id: str, runs: int) -> JsonObject:
    return await client.ask("get_session", {"session_id": ref.session_id, "run_id": run_id, "runs": runs})


def _list(found: JsonObject, name: str) -> list[JsonValue]:
    rows = found.get(name)
    return rows if isinstance(rows, list) else []


def _find_continuation(run_id: str, found: JsonObject) -> str:
    """Return the newest run that continues this one."""
    later: list[dict[str, Any]] = []
    for row in map(fields_of, _list(found, "runs")):  # the newest first
        if row["run_id"] == run_id:
            break
        later.append(row)
    else:
        return run_id
    for row in reversed(later):
        if row.get("mode", "execute") == "execute":
            break
        run_id = str(row["run_id"])
    return run_id


async def _take_over(client: HelixClient, ref: RunRef, run_id: str) -> bool:
    try:
        await client.ask(
            "resume", {"session_id": ref.session_id, "subscribe": False, "key": f"take over {run_id}"[:128]}
        )
    except (AgentAlreadyRunningError, CannotResumeError):  # another process took it over
        return False
    return True


async def _questions(client: HelixClient, state: SessionState) -> list[Question]:
    asked: list[Question] = []
    for call in state.pending:
        if call.kind not in ("child", "elsewhere"):
            asked.append(Question(state.session_id, state.current_run_id, call))
        elif call.child_session_id is not None:
            child = await client.get_session(call.child_session_id)
            asked += await _questions(client, child) if child.status == "paused" else []
    return asked


async def wait(client: HelixClient, ref: RunRef, seconds: float, report: Report) -> Found:
    """Wait until the task is not running, for at most `seconds`, and return its current state. `report` gets the chunks of
    its run."""
    found = await find(client, ref)
    try:
        async with asyncio.timeout(seconds):
            while found.status == "running":
                if found.result is None:
                    await _wait_with_progress(await client.handle(ref.session_id, found.run_id), report)
                else:  # sub-agents or other systems are at work
                    await asyncio.sleep(BETWEEN_S)
                found = await find(client, ref)
    except TimeoutError:
        return await find(client, ref)
    return found


async def _wait_with_progress(handle: RemoteHandle, report: Report) -> None:
    reading = asyncio.ensure_future(_report_chunks(handle, report))
    try:
        await handle.result()
        await asyncio.wait({reading}, timeout=LAST_WORDS_S)
    finally:
        reading.cancel()
        (ended,) = await asyncio.gather(reading, return_exceptions=True)
        if isinstance(ended, Exception):
            logger.info("progress of run %s ended: %s", handle.run_id, ended)


async def _report_chunks(handle: RemoteHandle, report: Report) -> None:
    async with aclosing(await handle.stream()) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            await report(chunk)


async def answer(client: HelixClient, session_id: str, call_id: str, verdict: JsonObject) -> None:
    """Answer a call. `verdict` contains approved, data, reason and arguments. Raises `CallNotPendingError` if the call is
    already answered."""
    asked: JsonObject = {"session_id": session_id, "tool_call_id": call_id, "subscribe": False, **verdict}
    await client.ask("answer", asked)


async def interrupt(client: HelixClient, ref: RunRef) -> bool:
    """Interrupt the task's run. Return False if it is not running."""
    found = await find(client, ref)
    return await client.interrupt(ref.session_id, "cancelled by the MCP client", run_id=found.run_id)
