"""Tasks of MCP (the extension `io.modelcontextprotocol/tasks` of 2026-07-28): calls that answer at once with an id.

Law: a task is a run that is not short, and its state is read from the session's rows each time: a restart of the server
loses none. It is made for clients that declare the extension in the request, and for no others. A client that listens
receives what `tasks/get` would return, for as long as its token is valid.
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
from helix.mcp.questions import form, words
from helix.mcp.runs import Found, ref_of

EXTENSION: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 1_000
MAX_STREAMS: Final = 1_000
MAX_TASKS: Final = 100
"""Of one stream: the client polls the others."""


class TaskParams(RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


TaskNotification = Notification[dict[str, Any], str]
OPEN: Final = ("working", "input_required")


class AgentTasks:
    """What answers `tasks/...`, and `tools/call` of clients that declare the extension."""

    def __init__(self, calls: AgentCalls) -> None:
        self._calls = calls
        self._streams = 0

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
            return await self._one(client, caller, params.task_id)

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

    # --- notifications ------------------------------------------------------------------------------------------------

    async def listen(self, context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Send each task now, and again when it changes, until all have ended. Tasks that are not there, and other kinds
        of notifications, are not in the acknowledgement."""
        caller, asked = caller_of(context), (params.notifications.model_extra or {}).get("taskIds")
        ids = list(dict.fromkeys(text for text in asked if isinstance(text, str))) if isinstance(asked, list) else []
        if ids:
            _declared(caller, "taskIds")
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
            if not known or caller.expired(self._calls.clock.now()):
                return
            await asyncio.sleep(POLL_MS / 1000)
            tasks = await self._read(caller, list(known))

    async def _read(self, caller: Caller, ids: list[str]) -> dict[str, dict[str, Any]]:
        """Those of the tasks that are there."""
        found: dict[str, dict[str, Any]] = {}
        async with self._calls.reaching(caller) as client:
            for task_id in ids:
                with suppress(CallerError):
                    found[task_id] = await self._one(client, caller, task_id)
        return found

    async def _one(self, client: HelixClient, caller: Caller, task_id: str) -> dict[str, Any]:
        return self._task(await runs.find(client, ref_of(task_id)), caller)

    def _task(self, found: Found, caller: Caller) -> dict[str, Any]:
        status, message = state_of(found, caller.elicits)
        task: dict[str, Any] = {
            "taskId": str(found.ref),
            "status": status,
            **times(found),
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
            return {**task, "status": "completed", "result": result}  # an agent that fails is a result
        return task


def state_of(found: Found, elicits: bool) -> tuple[str, str | None]:
    """The status of a task, and words for it. Where the client shows no forms, another of the user's has to answer."""
    if found.questions:
        message = " ".join(words(question) for question in found.questions)
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
    """A run that is at work is not news."""
    return before is None or {**before, "lastUpdatedAt": ""} != {**task, "lastUpdatedAt": ""}


def times(found: Found) -> dict[str, str]:
    updated = max(found.started_at, found.updated_at)
    return {"createdAt": _iso(found.started_at), "lastUpdatedAt": _iso(updated)}


async def _notify(caller: Caller, notification: Any) -> None:
    await caller.context.session.send_notification(notification, caller.context.request_id)


def declares(caller: Caller) -> bool:
    capabilities = caller.context.session.client_capabilities
    return caller.modern and capabilities is not None and EXTENSION in (capabilities.extensions or {})


def _checked(context: Context, method: str, params: TaskParams) -> Caller:
    caller = caller_of(context)
    if not caller.modern:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
    _declared(caller, method)
    named = context.request.headers.get("mcp-name") if isinstance(context.request, Request) else None
    if named not in (None, params.task_id):  # what stands before the server went by it
        raise MCPError(HEADER_MISMATCH, "the header Mcp-Name is not the request's taskId")
    return caller


def _declared(caller: Caller, what: str) -> None:
    if not declares(caller):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"{what} is for clients that declare {EXTENSION}", needed)


def _filled(value: Any) -> ElicitResult | None:
    try:
        return ElicitResult.model_validate(value, by_name=False)
    except ValidationError:
        return None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
