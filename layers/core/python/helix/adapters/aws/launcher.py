"""Executions as Step Functions runs them: one standard machine per resource profile, named after run and part.

Law: name and input of an execution are functions of its part alone, so a second start finds the first: it is refused by
name, which is success.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from helix.core.errors import StoreError
from helix.ports.launcher import ExecutionState, Part, execution_name

PROFILE = "{profile}"
_GONE = frozenset({"TaskDoesNotExist", "TaskTimedOut", "InvalidToken", "ExecutionDoesNotExist"})


class StepFunctionsLauncher:
    """`machine` is the ARN of the state machines with `{profile}` in place of the profile's name."""

    def __init__(self, client: Any, machine: str) -> None:
        self._client, self._machine = client, machine

    async def start(self, part: Part) -> None:
        place = {"session_id": part.session_id, "run_id": part.run_id, "part": part.part, "step": part.step}
        try:
            await self._call(
                "start_execution",
                stateMachineArn=self._machine.replace(PROFILE, part.profile),
                name=execution_name(part),
                input=json.dumps({**place, "events": 0}, separators=(",", ":")),
            )
        except ClientError as error:
            if _code(error) != "ExecutionAlreadyExists":
                raise StoreError(f"starting execution {execution_name(part)!r}: {error}") from error

    async def state(self, part: Part) -> ExecutionState:
        try:
            found = await self._call("describe_execution", executionArn=self._execution(part))
        except ClientError as error:
            if _code(error) == "ExecutionDoesNotExist":
                return "none"
            raise StoreError(f"looking for execution {execution_name(part)!r}: {error}") from error
        return "running" if found["status"] in ("RUNNING", "PENDING_REDRIVE") else "ended"

    async def stop(self, part: Part, reason: str) -> None:
        try:
            await self._call("stop_execution", executionArn=self._execution(part), error="aborted", cause=reason[:1000])
        except ClientError as error:
            if _code(error) not in _GONE:
                raise StoreError(f"stopping execution {execution_name(part)!r}: {error}") from error

    async def wake(self, token: str) -> None:
        try:
            await self._call("send_task_success", taskToken=token, output="{}")
        except ClientError as error:
            if _code(error) not in _GONE:
                raise StoreError(f"answering a task token: {error}") from error

    def _execution(self, part: Part) -> str:
        machine = self._machine.replace(PROFILE, part.profile).replace(":stateMachine:", ":execution:")
        return f"{machine}:{execution_name(part)}"

    async def _call(self, verb: str, **request: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await asyncio.to_thread(getattr(self._client, verb), **request)
            return answer
        except BotoCoreError as error:
            raise StoreError(f"Step Functions {verb}: {error}") from error


def _code(error: ClientError) -> str:
    code: str = error.response["Error"]["Code"]
    return code
