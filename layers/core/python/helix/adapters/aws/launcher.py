"""Executions in Step Functions, with one standard state machine per resource profile. An execution is named after its
run and part.

Law: the name and input of an execution depend only on its run and part, so a start is idempotent. AWS refuses a second
start because the name is taken. That refusal counts as success.
"""

from __future__ import annotations

import json
from typing import Any

from helix.adapters.aws.calls import call
from helix.core.aws_links import PROFILE, execution_arn
from helix.ports.launcher import ExecutionState, Part, execution_name

_GONE = frozenset({"TaskDoesNotExist", "TaskTimedOut", "InvalidToken", "ExecutionDoesNotExist"})


class StepFunctionsLauncher:
    """A launcher on Step Functions. `machine` is the ARN of the state machines with `{profile}` in place of the
    profile's name."""

    def __init__(self, client: Any, machine: str) -> None:
        self._client, self._machine = client, machine

    async def start(self, part: Part) -> None:
        place = {"session_id": part.session_id, "run_id": part.run_id, "part": part.part, "step": part.step}
        await call(
            self._client,
            "start_execution",
            f"starting execution {execution_name(part)!r}",
            {"ExecutionAlreadyExists"},
            stateMachineArn=self._machine.replace(PROFILE, part.profile),
            name=execution_name(part),
            input=json.dumps({**place, "events": 0}, separators=(",", ":")),
        )

    async def state(self, part: Part) -> ExecutionState:
        what, none = f"looking for execution {execution_name(part)!r}", {"ExecutionDoesNotExist"}
        found = await call(self._client, "describe_execution", what, none, executionArn=self._execution(part))
        if found is None:
            return "none"
        return "running" if found["status"] in ("RUNNING", "PENDING_REDRIVE") else "ended"

    async def stop(self, part: Part, reason: str) -> None:
        what, why = f"stopping execution {execution_name(part)!r}", {"error": "aborted", "cause": reason[:1000]}
        await call(self._client, "stop_execution", what, _GONE, executionArn=self._execution(part), **why)

    async def wake(self, token: str) -> None:
        await call(self._client, "send_task_success", "answering a task token", _GONE, taskToken=token, output="{}")

    def _execution(self, part: Part) -> str:
        return execution_arn(self._machine, part.profile, execution_name(part))
