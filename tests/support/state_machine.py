"""Execute the deployed state machine (infra/definition.py) in this process. A Lambda is a function call, and no time
passes.

Law: only the definition decides what comes next. Only the parts of the language that it uses are implemented, and an
unknown field fails the test.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.infra.definition import VERBS, definition
from helix.ports.launcher import ExecutionState, Part, execution_name

Json = Any
Invoke = Callable[[str, Json], Awaitable[Json]]
HOUR_S = 3600
PAYLOAD_BYTES = 256 * 1024
EVENTS = {"Task": 2, "Choice": 2, "Map": 4, "Wait": 2, "Succeed": 2, "Fail": 1}
"""The events of a state: entered and exited. A map is also started and succeeds."""
ATTEMPT_EVENTS, ITEM_EVENTS = 3, 2
"""The events of an attempt: scheduled, started, and succeeded or failed. One with a token is also submitted. AWS wrote
these histories:
https://github.com/localstack/localstack/blob/main/tests/aws/services/stepfunctions/v2/error_handling/test_task_service_lambda.snapshot.json"""


UNCAUGHT = {"States.DataLimitExceeded", "States.Runtime"}
"""Errors that `States.ALL` does not catch: https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html"""


class ExecutionFailedError(Exception):
    """A Fail state, or an error that no state caught. The first argument is its name."""


@dataclass
class Execution:
    """An execution. `states` are those that it entered, including retries, for which Step Functions charges. `invoked` are
    verbs and payloads. `events` is the length of its history as AWS writes it (`EVENTS`). `waited_s` are the pauses before
    retries, at half of what full jitter allows."""

    name: str
    input: Json
    states: list[str] = field(default_factory=list)
    invoked: list[tuple[str, Json]] = field(default_factory=list)
    events: int = 1
    waited_s: float = 0
    status: str = "RUNNING"
    output: Json = None
    task: asyncio.Task[Any] | None = None


class StateMachine:
    """A state machine. `invoke(verb, payload)` is a delivery, and payloads and answers pass through JSON, as on AWS. A
    retriable error is retried as often as its rule says, or `tries` times at most, and `pause(error)` is awaited before
    each retry. `wait(seconds)` is awaited in a Wait state. `wake` answers a task token."""

    def __init__(
        self,
        invoke: Invoke,
        *,
        pause: Callable[[str], Awaitable[None]] | None = None,
        wait: Callable[[float], Awaitable[None]] | None = None,
        tries: int | None = 3,
    ) -> None:
        self._invoke, self._pause, self._wait, self._tries = invoke, pause, wait, tries
        self.definition = definition(run_s=24 * HOUR_S, child_s=HOUR_S)
        self.tokens: dict[str, asyncio.Future[Json]] = {}

    async def play(self, execution: Execution) -> None:
        """Play an execution to its end. Its errors become its status."""
        try:
            execution.output = await self._states(execution, self.definition, execution.input, {})
            execution.status = "SUCCEEDED"
        except ExecutionFailedError:
            execution.status = "FAILED"
        except asyncio.CancelledError:
            execution.status = "ABORTED"

    def wake(self, token: str) -> None:
        """Do what SendTaskSuccess does. Tokens that no task waits for any more are ignored."""
        waiting = self.tokens.pop(token, None)
        if waiting is not None and not waiting.done():
            waiting.set_result({})

    async def _states(self, execution: Execution, machine: Json, value: Json, context: Json) -> Json:
        name: str | None = machine["StartAt"]
        while name is not None:
            state = machine["States"][name]
            execution.states.append(name)
            execution.events += EVENTS[state["Type"]]
            name, value = await self._state(execution, name, state, value, context)
        return value

    async def _state(
        self, execution: Execution, name: str, state: Json, value: Json, context: Json
    ) -> tuple[str | None, Json]:
        match state["Type"]:
            case "Succeed":
                return None, value
            case "Fail":
                raise ExecutionFailedError(state["Error"])
            case "Choice":
                for rule in state["Choices"]:
                    if path(rule["Variable"], value) == rule["StringEquals"]:
                        return rule["Next"], value
                raise ExecutionFailedError("States.NoChoiceMatched")
            case "Wait":
                seconds = path(state["SecondsPath"], value)
                execution.waited_s += seconds
                if self._wait is not None:
                    await self._wait(seconds)
                return state["Next"], value
        tried = Counter[int]()
        while True:
            try:
                context = {**context, "State": {"RetryCount": tried.total()}}
                result = await self._work(execution, state, value, context)
                break
            except Exception as error:
                word = error_name(error)
                if await self._again(execution, state, word, tried):
                    execution.states.append(f"{name} again")
                    continue
                for rule in state.get("Catch", []):
                    if {word, *({"States.ALL"} if word not in UNCAUGHT else ())} & set(rule["ErrorEquals"]):
                        told = {"Error": word, "Cause": json.dumps({"errorType": word, "errorMessage": str(error)})}
                        return rule["Next"], into(rule["ResultPath"], value, told)
                raise ExecutionFailedError(word) from error
        value = into(state.get("ResultPath", "$"), value, result)
        value = path(state.get("OutputPath", "$"), value)
        return (None if state.get("End") else state["Next"]), value

    async def _again(self, execution: Execution, state: Json, word: str, tried: Counter[int]) -> bool:
        for number, rule in enumerate(state.get("Retry", [])):
            if word in rule["ErrorEquals"]:
                most = rule["MaxAttempts"] if self._tries is None else self._tries - tried.total() + tried[number]
                if tried[number] >= most:
                    return False
                longest = min(rule["IntervalSeconds"] * rule["BackoffRate"] ** tried[number], rule["MaxDelaySeconds"])
                execution.waited_s += longest / 2
                tried[number] += 1
                if self._pause is not None:
                    await self._pause(word)
                return True
        return False

    async def _work(self, execution: Execution, state: Json, value: Json, context: Json) -> Json:
        if state["Type"] == "Map":
            items = path(state["ItemsPath"], value)
            inner = state["ItemProcessor"]
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._item(execution, inner, state["ItemSelector"], value, item))
                    for item in items
                ]
            return [task.result() for task in tasks]
        assert state["Type"] == "Task", state["Type"]
        waits = state["Resource"].endswith(".waitForTaskToken")
        token = f"token-{len(execution.invoked)}-{execution.name}"
        if waits:
            context = {**context, "Task": {"Token": token}}
            woken = self.tokens[token] = asyncio.get_running_loop().create_future()
        parameters = filled(state["Parameters"], value, context)
        verb = VERBS[parameters["FunctionName"].strip("${}")]
        sent = passed(parameters["Payload"])
        execution.invoked.append((verb, sent))
        execution.events += ATTEMPT_EVENTS + waits
        answer = {"Payload": passed(await self._invoke(verb, sent))}
        return await woken if waits else answer  # it may have been woken before the function returned

    async def _item(self, execution: Execution, inner: Json, selector: Json, value: Json, item: Json) -> Json:
        context = {"Map": {"Item": {"Value": item}}}
        execution.events += ITEM_EVENTS
        return await self._states(execution, inner, filled(selector, value, context), context)


class Machines:
    """A `Launcher` whose executions are tasks of this loop. `started` are all starts, including repeated ones."""

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        self.executions: dict[str, Execution] = {}
        self.started: list[str] = []
        self.refusing = 0

    async def start(self, part: Part) -> None:
        name = execution_name(part)
        if self.refusing:  # the call never arrives, and its caller dies of it or not
            self.refusing -= 1
            return
        self.started.append(name)
        if name not in self.executions:
            place = {"session_id": part.session_id, "run_id": part.run_id, "part": part.part, "step": part.step}
            self.executions[name] = execution = Execution(name, passed({**place, "events": 0}))
            execution.task = asyncio.get_running_loop().create_task(self.machine.play(execution))

    async def state(self, part: Part) -> ExecutionState:
        execution = self.executions.get(execution_name(part))
        return "none" if execution is None else "running" if execution.status == "RUNNING" else "ended"

    async def stop(self, part: Part, reason: str) -> None:
        execution = self.executions.get(execution_name(part))
        if execution is not None and execution.task is not None:
            execution.task.cancel()

    async def wake(self, token: str) -> None:
        self.machine.wake(token)

    async def ended(self) -> None:
        """Return once no execution is at work, including those that others started meanwhile."""
        while busy := [e.task for e in self.executions.values() if e.task is not None and not e.task.done()]:
            await asyncio.wait(busy)


def error_name(error: Exception) -> str:
    """Return the name by which rules know it. A map fails with the error of its first item that failed."""
    if isinstance(error, ExceptionGroup):
        return error_name(error.exceptions[0])
    return str(error.args[0]) if isinstance(error, ExecutionFailedError) else type(error).__name__


def path(where: str, value: Json, context: Json = None) -> Json:
    """Read a path: `$`, `$.a.b`, `$$.a.b`."""
    root, *names = where.split(".")
    found = {"$": value, "$$": context}[root]
    for name in names:
        if not isinstance(found, Mapping) or name not in found:
            raise ExecutionFailedError("States.Runtime")
        found = found[name]
    return found


def filled(template: Json, value: Json, context: Json) -> Json:
    if isinstance(template, Mapping):
        return {
            key.removesuffix(".$"): path(inner, value, context) if key.endswith(".$") else filled(inner, value, context)
            for key, inner in template.items()
        }
    assert not isinstance(template, Sequence) or isinstance(template, str)
    return template


def into(where: str | None, value: Json, result: Json) -> Json:
    """Return the state's output: its input (None), the result (`$`), or the input with the result at `$.name`."""
    if where is None:
        return value
    if where == "$":
        return result
    root, name = where.split(".")
    assert root == "$"
    return {**value, name: result}


def passed(value: Json) -> Json:
    text = json.dumps(value)
    assert len(text) <= PAYLOAD_BYTES, "Step Functions refuses this payload"
    return json.loads(text)
