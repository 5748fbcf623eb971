"""MCP tasks of protocol version 2025-11-25, in which the client requests each task and waits with `tasks/result`.

Law: a task is a run here too, and nothing else is stored. Notifications go to the stream of `tasks/result`, because clients
of this version listen there. So no task needs a watcher that outlives its client.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    PaginatedRequestParams,
    ServerTasksCapability,
    ServerTasksRequestsCapability,
    TasksCallCapability,
    TasksCancelCapability,
    TasksListCapability,
    TasksToolsCapability,
)

from helix.mcp import runs, tools
from helix.mcp.calls import AgentCalls, Caller, Context, caller_of, ignore_progress, mcp_session_of
from helix.mcp.runs import Found, ref_of
from helix.mcp.tasks import OPEN, POLL_MS, AgentTasks, TaskNotification, TaskParams, changed, format_times, state_of

VERSION: Final = "2025-11-25"
CREATE: Final = "helix/tasks/create"
"""The method to which the middleware routes a `tools/call` with a `task`. The package would convert the result of
`tools/call` to the result of a plain call."""
RELATED: Final = "io.modelcontextprotocol/related-task"
CANCEL_S: Final = 5.0
SESSIONS: Final = 20


class OlderTasks:
    """The handlers of `tasks/...` and of calls with a `task`. `lists`: whether `tasks/list` is served. It must be False if
    a caller can reach other users' sessions."""

    def __init__(self, calls: AgentCalls, newer: AgentTasks, *, lists: bool) -> None:
        self._calls, self._newer, self._lists = calls, newer, lists
        self._waiting: dict[tuple[str | None, str], anyio.CancelScope] = {}

    @property
    def capability(self) -> ServerTasksCapability:
        return ServerTasksCapability(
            list=TasksListCapability() if self._lists else None,
            cancel=TasksCancelCapability(),
            requests=ServerTasksRequestsCapability(tools=TasksToolsCapability(call=TasksCallCapability())),
        )

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Route calls with a `task` to `create`, as middleware."""
        wanted = ctx.method == "tools/call" and ctx.protocol_version == VERSION
        if wanted and (ctx.params or {}).get("task") is not None:
            ctx = replace(ctx, method=CREATE)
        return await call_next(ctx)

    async def create(self, context: Context, params: CallToolRequestParams) -> dict[str, Any]:
        caller = _check_request(context)
        if "__" in params.name:
            raise MCPError(METHOD_NOT_FOUND, f"{params.name[:100]} is not called as a task")
        async with self._calls.open_client(caller) as client:
            card = await self._calls.card(client, caller, params.name)
            ref = await self._calls.begin_run(client, caller, card, params.arguments or {})
            self._calls.forget_request(caller)
            found = await runs.find(client, ref)
        return {"task": {**_task(found, caller), "status": "working"}}

    async def get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        caller = caller_of(context)
        if caller.is_modern:
            return await self._newer.get(context, params)
        return _task(await self._find(_check_request(context), params), caller)

    async def cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Interrupt the task's run. Return the task once the run has stopped, or in its current state after `CANCEL_S`,
        because a run may need more time to stop."""
        caller = caller_of(context)
        if caller.is_modern:
            return await self._newer.cancel(context, params)
        found = await self._find(_check_request(context), params)
        if _task(found, caller)["status"] not in OPEN:
            raise MCPError(INVALID_PARAMS, f"the task has ended: it is {_task(found, caller)['status']}")
        async with self._calls.open_client(caller) as client:
            await runs.interrupt(client, found.ref)
            return _task(await runs.wait(client, found.ref, CANCEL_S, ignore_progress), caller)

    async def result(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Wait until the task has ended. A client that lost its connection asks again, and its earlier request is
        cancelled."""
        caller, place = _check_request(context), (mcp_session_of(context), params.task_id)
        if place in self._waiting:
            self._waiting[place].cancel()
        with anyio.CancelScope() as scope:
            self._waiting[place] = scope
            try:
                return await self._wait_for_result(caller, params)
            finally:
                if self._waiting.get(place) is scope:
                    del self._waiting[place]
        raise MCPError(INTERNAL_ERROR, "another request of this client waits for the task")

    async def _wait_for_result(self, caller: Caller, params: TaskParams) -> dict[str, Any]:
        """Wait for the task's result, and return it. Meanwhile notify the client of changes, and ask each question once."""
        context, related = caller.context, {RELATED: {"taskId": params.task_id}}
        known: dict[str, Any] | None = None
        asked: set[str] = set()
        while True:
            found = await self._find(caller, params)
            task = _task(found, caller)
            if changed(known, task):
                known, notification = task, TaskNotification(method="notifications/tasks/status", params=task)
                sent: Any = notification
                await context.session.send_notification(sent, context.request_id)
            if task["status"] not in OPEN:
                result = tools.outcome(found, False).model_dump(mode="json", by_alias=True, exclude_none=True)
                return {**result, "_meta": related}
            if caller.is_expired(self._calls.clock.now()):
                raise MCPError(INTERNAL_ERROR, "the token has expired: ask again with a new one")
            async with self._calls.open_client(caller) as client:
                keys = {question.key for question in found.questions}
                if caller.can_ask_now and keys - asked:
                    asked |= keys
                    await self._calls.ask(client, caller, found, related)
                elif keys:
                    await asyncio.sleep(POLL_MS / 1000)
                else:
                    await runs.wait(client, found.ref, POLL_MS / 1000, ignore_progress)

    async def list(self, context: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        """List the messages of some of the caller's sessions, each as a task, newest session first."""
        caller = _check_request(context)
        if not self._lists:
            raise MCPError(METHOD_NOT_FOUND, "tasks cannot be listed without authentication", "tasks/list")
        tasks: list[dict[str, Any]] = []
        async with self._calls.open_client(caller) as client:
            cards = await self._calls.cards(client, caller)
            page = await client.list_sessions(limit=SESSIONS, after=params.cursor)
            rows: Any = page["sessions"]
            for row in rows:
                if row["agent_type"] in cards:
                    tasks += [_task(found, caller) for found in await runs.tasks_in(client, row["session_id"])]
        return {"tasks": tasks, **({} if page["cursor"] is None else {"nextCursor": page["cursor"]})}

    async def _find(self, caller: Caller, params: TaskParams) -> Found:
        async with self._calls.open_client(caller) as client:
            return await runs.find(client, ref_of(params.task_id))


def _check_request(context: Context) -> Caller:
    if context.protocol_version != VERSION:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
    return caller_of(context)


def _task(found: Found, caller: Caller) -> dict[str, Any]:
    status, message = state_of(found, caller.elicits)
    words = {} if message is None else {"statusMessage": message}
    return {
        "taskId": str(found.ref),
        "status": status,
        **words,
        **format_times(found),
        "ttl": None,
        "pollInterval": POLL_MS,
    }
