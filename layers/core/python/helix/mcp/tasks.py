"""MCP tasks (the `io.modelcontextprotocol/tasks` extension of 2026-07-28): calls that return an id at once.

Law: a task is a run that is not short. Its state is read from the session's rows each time, so a restart of the server
loses no task. Only clients that declare the extension in the request get tasks. A client that listens receives what
`tasks/get` would return, for as long as its token is valid.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    ElicitResult,
    Notification,
    RequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from helix.client import HelixClient
from helix.core.errors import CallerError
from helix.mcp import runs, tools
from helix.mcp.calls import AgentCalls, Caller, Context, caller_of
from helix.mcp.questions import describe_question, form
from helix.mcp.runs import Found, ref_of

EXTENSION: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 1_000
MAX_STREAMS: Final = 1_000
MAX_TASKS: Final = 100
"""The maximum number of tasks in one stream. The client must poll any others."""


class TaskParams(RequestParams):
    task_id: str
    """The id of the task, in the form of `str(RunRef)`."""


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]
    """The filled-in forms by the keys of their questions (`Question.key`). Forms that cannot be read are ignored."""


TaskNotification = Notification[dict[str, Any], str]
OPEN: Final = ("working", "input_required")


class AgentTasks:
    """The handlers of `tasks/...`, and of `tools/call` for clients that declare the extension."""

    def __init__(self, calls: AgentCalls) -> None:
        self._calls = calls
        self._streams = 0

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> BaseModel | dict[str, Any]:
        caller = caller_of(context)
        if not has_extension(caller) or "__" in params.name:
            return await self._calls.call_tool(context, params)
        begun = await self._calls.start(caller, params)
        if not isinstance(begun, Found):
            return begun
        task = self._task(begun, caller)
        if task["status"] == "completed":
            return tools.outcome(begun, False)
        return {**{name: task[name] for name in task if name not in ("result", "inputRequests")}, "resultType": "task"}

    async def get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        caller = _check_request(context, "tasks/get", params)
        async with self._calls.open_client(caller) as client:
            return await self._find_task(client, caller, params.task_id)

    async def update(self, context: Context, params: UpdateParams) -> dict[str, Any]:
        """Record the filled-in forms. Forms for questions that are not open are ignored."""
        caller = _check_request(context, "tasks/update", params)
        given = {key: _parse_form(value) for key, value in params.input_responses.items()}
        async with self._calls.open_client(caller) as client:
            found = await runs.find(client, ref_of(params.task_id))
            await self._calls.take_answers(client, found, given)
        return {}

    async def cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        caller = _check_request(context, "tasks/cancel", params)
        async with self._calls.open_client(caller) as client:
            await runs.interrupt(client, ref_of(params.task_id))
        return {}

    # --- notifications ------------------------------------------------------------------------------------------------

    async def listen(self, context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Send each task now, and again when it changes, until all have ended. The acknowledgement omits tasks that do not
        exist, and other kinds of notifications."""
        caller, asked = caller_of(context), (params.notifications.model_extra or {}).get("taskIds")
        ids = list(dict.fromkeys(text for text in asked if isinstance(text, str))) if isinstance(asked, list) else []
        if ids:
            _check_extension(caller, "taskIds")
        if self._streams >= MAX_STREAMS:
            raise MCPError(INTERNAL_ERROR, "too many clients listen: poll with tasks/get")
        self._streams += 1
        try:
            meta = {SUBSCRIPTION_ID_META_KEY: context.request_id}
            await self._stream(caller, ids[:MAX_TASKS], meta)
            return SubscriptionsListenResult(_meta=meta)
        finally:
            self._streams -= 1

    async def _stream(self, caller: Caller, ids: list[str], meta: dict[str, Any]) -> None:
        tasks = await self._read(caller, ids)
        honoured: dict[str, Any] = {"taskIds": list(tasks)} if tasks else {}
        acknowledged = SubscriptionsAcknowledgedNotificationParams(
            notifications=SubscriptionFilter(**honoured), _meta=meta
        )
        await _notify(caller, SubscriptionsAcknowledgedNotification(params=acknowledged))
        known: dict[str, dict[str, Any]] = {}
        while tasks:
            for task_id, task in tasks.items():
                if changed(known.get(task_id), task):
                    params = {**task, "_meta": meta}
                    await _notify(caller, TaskNotification(method="notifications/tasks", params=params))
            known = {task_id: task for task_id, task in tasks.items() if task["status"] in OPEN}
            if not known or caller.is_expired(self._calls.clock.now()):
                return
            await asyncio.sleep(POLL_MS / 1000)
            tasks = await self._read(caller, list(known))

    async def _read(self, caller: Caller, ids: list[str]) -> dict[str, dict[str, Any]]:
        """Return the tasks that exist."""
        found: dict[str, dict[str, Any]] = {}
        async with self._calls.open_client(caller) as client:
            for task_id in ids:
                with suppress(CallerError):
                    found[task_id] = await self._find_task(client, caller, task_id)
        return found

    async def _find_task(self, client: HelixClient, caller: Caller, task_id: str) -> dict[str, Any]:
        return self._task(await runs.find(client, ref_of(task_id)), caller)

    def _task(self, found: Found, caller: Caller) -> dict[str, Any]:
        status, message = state_of(found, caller.elicits)
        task: dict[str, Any] = {
            "taskId": str(found.ref),
            "status": status,
            **format_times(found),
            "ttlMs": None,
            "pollIntervalMs": POLL_MS,
            **({} if message is None else {"statusMessage": message}),
        }
        if status == "input_required":
            task["inputRequests"] = {
                q.key: form(q).model_dump(mode="json", by_alias=True, exclude_none=True) for q in found.questions
            }
        if status in ("completed", "failed"):
            result = tools.outcome(found, False).model_dump(mode="json", by_alias=True, exclude_none=True)
            return {**task, "status": "completed", "result": result}  # a failed run is a result of a completed task
        return task


def state_of(found: Found, elicits: bool) -> tuple[str, str | None]:
    """Return the status of a task, and a message about it. If the client cannot show forms, the task is reported as
    working, and the user must answer elsewhere."""
    if found.questions:
        message = " ".join(describe_question(question) for question in found.questions)
        return ("input_required", message) if elicits else ("working", f"Waits for a person. {message}")
    match found.status:
        case "running":
            return "working", None
        case "interrupted":
            return "cancelled", "The run was interrupted."
        case "failed":
            return "failed", None
        case _:
            return "completed", None


def changed(before: dict[str, Any] | None, task: dict[str, Any]) -> bool:
    """Return whether the client must be notified of the task. A newer update time alone is not a reason."""
    return before is None or {**before, "lastUpdatedAt": ""} != {**task, "lastUpdatedAt": ""}


def format_times(found: Found) -> dict[str, str]:
    updated = max(found.started_at, found.updated_at)
    return {"createdAt": _iso(found.started_at), "lastUpdatedAt": _iso(updated)}


async def _notify(caller: Caller, notification: Any) -> None:
    await caller.context.session.send_notification(notification, caller.context.request_id)


def has_extension(caller: Caller) -> bool:
    capabilities = caller.context.session.client_capabilities
    return caller.is_modern and capabilities is not None and EXTENSION in (capabilities.extensions or {})


def _check_request(context: Context, method: str, params: TaskParams) -> Caller:
    caller = caller_of(context)
    if not caller.is_modern:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
    _check_extension(caller, method)
    named = context.request.headers.get("mcp-name") if isinstance(context.request, Request) else None
    if named not in (None, params.task_id):  # a proxy in front of the server may have routed by the header
        raise MCPError(HEADER_MISMATCH, "the header Mcp-Name is not the request's taskId")
    return caller


def _check_extension(caller: Caller, what: str) -> None:
    if not has_extension(caller):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"{what} is for clients that declare {EXTENSION}", needed)


def _parse_form(value: Any) -> ElicitResult | None:
    try:
        return ElicitResult.model_validate(value, by_name=False)
    except ValidationError:
        return None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
