"""All executors return the same handle and the same result type."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any, assert_type

import pytest
from pydantic import BaseModel, ValidationError
from tests.support_gateway import executor_of, served
from tests.support_run import a_tool, agent, call, calls

import helix
from helix import Agent, AgentExecutionHandle, AgentResult, CanResumeResult, Confirmation, LocalExecutor, SessionState
from helix.client import HelixClient
from helix.client.remote_handle import RemoteHandle
from helix.core.json import JsonValue
from helix.runtime.handle import ExecutorHandle
from helix.runtime.launching import StepFunctionsExecutor


class Answer(BaseModel):
    summary: str


async def typed(
    local: LocalExecutor, cloud: StepFunctionsExecutor, client: HelixClient, who: Agent[Any, Answer]
) -> None:
    """Code for the type checker: every executor and client returns the same handle, with the same result."""
    handle: AgentExecutionHandle[Answer]
    for executor in (local, cloud):
        assert_type(await executor.execute(who, "hi"), AgentExecutionHandle[Answer])
        assert_type(await executor.get_handle(who, "s"), AgentExecutionHandle[Answer])
        handle = await executor.resume(who, "s")
        assert_type(await handle.result(), AgentResult[Answer])
        assert_type((await handle.result()).output, Answer | None)
        assert_type(await handle.answer("call_0"), AgentExecutionHandle[Answer])
        assert_type(await handle.retry(), AgentExecutionHandle[Answer])
    remote: AgentExecutionHandle[JsonValue] = await client.run("helper", "hi")
    assert_type(await remote.result(), AgentResult[JsonValue])
    assert_type(await remote.get_state(), SessionState)
    assert_type(await remote.can_resume(), CanResumeResult)


@pytest.mark.slow
def test_the_type_checker_agrees() -> None:
    """`typed` is only for the type checker, because `assert_type` does nothing at run time."""
    checked = subprocess.run([sys.executable, "-m", "mypy", __file__], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def verbs(kind: type) -> dict[str, list[str]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: list(inspect.signature(verb).parameters) for name, verb in found if not name.startswith("_")}


@pytest.mark.parametrize("kind", [ExecutorHandle, RemoteHandle])
def test_both_handles_have_the_verbs_of_the_protocol(kind: type) -> None:
    asked, given = verbs(AgentExecutionHandle), verbs(kind)
    assert len(asked) == 12 and asked.items() <= given.items()


def test_each_thing_has_one_name() -> None:
    found = {name for name in helix.__all__ if "Handle" in name or name.endswith("Result")}
    assert found == {"AgentExecutionHandle", "AgentResult", "CanResumeResult"}


def test_a_result_has_the_status_of_an_end() -> None:
    with pytest.raises(ValidationError):
        AgentResult[Any].model_validate({"session_id": "s", "run_id": "r", "status": "running"})


def test_a_client_reads_the_session_of_an_older_service() -> None:
    """New fields of a reply need a default: a service is often older than its clients."""
    first_release = {
        "session_id",
        "agent_type",
        "stream_id",
        "status",
        "version",
        "current_run_id",
        "turn",
        "step_count",
        "message_count",
        "custom_state",
        "checkpoint_id",
    }
    assert {name for name, field in SessionState.model_fields.items() if field.is_required()} <= first_release


async def test_the_same_code_answers_here_and_over_there() -> None:
    """One function inspects, answers and awaits a paused run, with a handle of any executor or client."""

    async def story(handle: AgentExecutionHandle[Any]) -> tuple[Any, ...]:
        result = await handle.result()
        state, can = await handle.get_state(), await handle.can_resume()
        assert state.pending == result.pending
        (pending,) = result.pending
        answered = await handle.answer(pending.call_id, data={"by": "ada"})
        end = await answered.result()
        again = await answered.messages()
        kinds = [message.kind async for message in again][-1]
        return (result.status, can.reason, pending.tool_name, pending.arguments, end.status, end.text, kinds)

    def made() -> tuple[LocalExecutor, Agent[Any, Any]]:
        pay = a_tool("pay", lambda given, ctx: "paid", require_approval=True)
        who = agent("helper", tools=[pay])
        return executor_of([calls(call("pay")), "It is paid."] * 2, who), who

    executor, who = made()
    async with executor:
        here = await story(await executor.execute(who, "go"))
    executor, who = made()
    async with served(executor) as (_, client):
        there = await story(await client.run("helper", "go"))
        second = await client.run("helper", "go")
        await second.result()
        resumed = await second.resume(confirmation=Confirmation("call_0", approved=False, reason="no"))
        assert (await resumed.result()).status == "completed"
    assert here == there == ("paused", "pending_confirmation", "pay", {}, "completed", "It is paid.", "end")
