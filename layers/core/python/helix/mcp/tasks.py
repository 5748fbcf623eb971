"""Tasks of MCP (the extension `io.modelcontextprotocol/tasks` of 2026-07-28): calls that answer at once with an id.

Law: a task is a run that is not short, and its state is read from the session's rows each time: a restart of the server
loses none. It is made for clients that declare the extension in the request, and for no others.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    ElicitResult,
    RequestParams,
)
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from helix.mcp import runs, tools
from helix.mcp.calls import AgentCalls, Caller, Context, caller_of
from helix.mcp.questions import form, words
from helix.mcp.runs import Found, ref_of

EXTENSION: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 1_000


class TaskParams(RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class AgentTasks:
    """What answers `tasks/...`, and `tools/call` of clients that declare the extension."""

    def __init__(self, calls: AgentCalls) -> None:
        self._calls = calls

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> BaseModel | dict[str, Any]:
        caller = caller_of(context)
        if not declares(caller) or "__" in params.name:
            return await self._calls.call_tool(context, params)
        begun = await self._calls.start(caller, params)
        if not isinstance(begun, Found):
            return begun
        task = self._task(begun, caller)
        if task["status"] == "completed":
            return tools.outcome(begun, False)
        return {**{name: task[name] for name in task if name not in ("result", "inputRequests")}, "resultType": "task"}

    async def get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        caller = _checked(context, "tasks/get", params)
        async with self._calls.reaching(caller) as client:
            return self._task(await runs.find(client, ref_of(params.task_id)), caller)

    async def update(self, context: Context, params: UpdateParams) -> dict[str, Any]:
        """What answers no open question is left out."""
        caller = _checked(context, "tasks/update", params)
        given = {key: _filled(value) for key, value in params.input_responses.items()}
        async with self._calls.reaching(caller) as client:
            found = await runs.find(client, ref_of(params.task_id))
            await self._calls.take_answers(client, found, given)
        return {}

    async def cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        caller = _checked(context, "tasks/cancel", params)
        async with self._calls.reaching(caller) as client:
            await runs.interrupt(client, ref_of(params.task_id))
        return {}

    def _task(self, found: Found, caller: Caller) -> dict[str, Any]:
        task: dict[str, Any] = {
            "taskId": str(found.ref),
            "createdAt": _iso(found.started_at),
            "lastUpdatedAt": _iso(max(found.started_at, found.updated_at)),
            "ttlMs": None,
            "pollIntervalMs": POLL_MS,
        }
        if found.status == "running":
            return {**task, "status": "working"}
        if found.questions:
            message = " ".join(words(question) for question in found.questions)
            if not caller.elicits:  # another of the user's clients has to answer
                return {**task, "status": "working", "statusMessage": f"Waits for a person. {message}"}
            asked = {q.key: form(q).model_dump(mode="json", by_alias=True, exclude_none=True) for q in found.questions}
            return {**task, "status": "input_required", "statusMessage": message, "inputRequests": asked}
        if found.status == "interrupted":
            return {**task, "status": "cancelled", "statusMessage": "The run was interrupted."}
        result = tools.outcome(found, False).model_dump(mode="json", by_alias=True, exclude_none=True)
        return {**task, "status": "completed", "result": result}


def declares(caller: Caller) -> bool:
    capabilities = caller.context.session.client_capabilities
    return caller.modern and capabilities is not None and EXTENSION in (capabilities.extensions or {})


def _checked(context: Context, method: str, params: TaskParams) -> Caller:
    caller = caller_of(context)
    if not caller.modern:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
    if not declares(caller):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"{method} is for clients that declare {EXTENSION}", needed)
    named = context.request.headers.get("mcp-name") if isinstance(context.request, Request) else None
    if named not in (None, params.task_id):  # what stands before the server went by it
        raise MCPError(HEADER_MISMATCH, "the header Mcp-Name is not the request's taskId")
    return caller


def _filled(value: Any) -> ElicitResult | None:
    try:
        return ElicitResult.model_validate(value, by_name=False)
    except ValidationError:
        return None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
