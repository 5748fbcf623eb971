"""Executes one tool. Every failure becomes a result that the model can read."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from helix.core.agents import AnyAgent
from helix.core.call_results import MAX_RESULT_BYTES, result_content
from helix.core.chunks import CustomEventChunk
from helix.core.context import ToolContext, idempotency_key
from helix.core.damage import every_problem
from helix.core.errors import DependencyError, FatalToolError, InvalidInputError, ToolError
from helix.core.files import Content
from helix.core.json import JsonObject, JsonValue, clean_text, dumps, text_of
from helix.core.messages import AskedQuestion, ToolCallRequest
from helix.core.states import refused_state
from helix.core.tools import AnyTool
from helix.core.tracker import StateTracker
from helix.core.usage import Usage
from helix.engine.calls.elsewhere import Leaving
from helix.engine.calls.questions import Asking, CallAsksError
from helix.engine.context import RunContext
from helix.engine.engine import logger
from helix.engine.facts import ToolCall
from helix.services.file_inputs import ReadFile, has_files, read_content
from helix.services.run_stream import Writer

_THREADS = ThreadPoolExecutor(max_workers=64, thread_name_prefix="helix-tool")
"""The threads for tools that are not coroutines. In the event loop's default executor, the tools of a wide step would
block the stores."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    content: str
    """The text that the model reads: the result as JSON or plain text, or an error."""
    success: bool
    """Whether the tool returned a valid result."""
    plain: bool = False
    """Whether `content` is a plain string that the tool returned, rather than JSON."""
    fatal: bool = False
    """Whether the failure ends the run."""
    patches: list[JsonObject] = field(default_factory=list)
    """The JSON Patch operations by which the tool changed the custom state. Empty after a failure."""
    usage: Usage | None = None
    """The usage of model calls inside the tool. None: the tool reported no usage."""
    files: list[ReadFile] = field(default_factory=list)
    """The files that the tool returned. They have not been stored yet."""
    questions: list[AskedQuestion] | None = None
    """The questions of the call, if one of them has no answer yet. None: the outcome is a result."""
    elsewhere: bool = False
    """Whether the tool called `ctx.later`, so that another system reports the result."""


async def run_tool(run: RunContext, call: ToolCall, state: JsonObject, leaving: Leaving) -> ToolOutcome:
    """Execute the call. If it raises, its state changes are discarded and it is retried up to `tool.retries` times."""
    agent, session, tool = run.agent, run.session, call.tool
    for attempt in range(tool.retries + 1):
        tracker, asking = _tracker(agent, state), Asking(call.row.questions)
        if isinstance(tracker, ToolOutcome):
            return tracker
        context, leaving.leaves = _context(run, call, tracker, asking, leaving), False
        try:
            if tool.uses_deps:
                context._deps = await run.engine.dependencies.get(agent, tool.timeout_s)
            result = await asking.watch(_execute(tool, call.request, context))
            if leaving.leaves:
                patches = context.tracker.get_patches()
                return ToolOutcome("", False, patches=patches, usage=_sum(context.usage), elsewhere=True)
            result, files = await _read_files(tool, result)
            content, plain = checked_result(agent, tool, result)
            patches = context.tracker.get_patches()
            return ToolOutcome(content, True, plain, patches=patches, usage=_sum(context.usage), files=files)
        except CallAsksError:
            return ToolOutcome("", False, usage=_sum(context.usage), questions=asking.open)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # including SystemExit, which ends the call, not the worker
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            logger.info("tool %r failed in session %s", tool.name, session.session_id, exc_info=True)
            if attempt < tool.retries and _is_repeated(tool, error) and not run.watch.cancelled():
                await run.engine.clock.sleep(0.5 * 2**attempt)
                continue
            content, fatal = _failed(tool, error), isinstance(error, FatalToolError)
            return ToolOutcome(content, False, fatal=fatal, usage=_sum(context.usage))
    raise AssertionError("unreachable")


def _context(
    run: RunContext, call: ToolCall, tracker: StateTracker[Any], asking: Asking, leaving: Leaving
) -> ToolContext[Any]:
    session, row = run.session, call.row

    def emit(event_name: str, data: JsonValue) -> None:
        chunk = CustomEventChunk(event_name=event_name, data=data)
        run.stream.put(Writer("call", row.step, row.claim, row.call_id), [chunk])

    return ToolContext(
        session_id=session.session_id,
        run_id=session.run_id,
        agent_type=run.agent.name,
        step=row.step,
        tool_call_id=row.call_id,
        tool_name=call.tool.name,
        idempotency_key=idempotency_key(session.session_id, session.lineage, row.call_id),
        tracker=tracker,
        confirmation=row.confirmation,
        takes_files=run.engine.files is not None,
        _emit=emit,
        _cancelled=run.watch.cancelled,
        _secrets=run.engine.secrets,
        _ask=asking.ask,
        _later=leaving.later,
        _calls_url=run.engine.settings.calls_url,
    )


def _tracker(agent: AnyAgent, state: JsonObject) -> StateTracker[Any] | ToolOutcome:
    """Return the tracker of the custom state. If the agent's schema has changed and rejects the stored state, return an
    outcome that ends the run, because the model cannot repair that."""
    try:
        return StateTracker(state, schema=agent.state_schema, array_delta_mode=agent.array_delta_mode)
    except InvalidInputError as error:
        return ToolOutcome(result_content(refused_state(agent, error), False), False, fatal=True)


class ResultError(Exception):
    """The tool returned a value that is not a valid result. Executing it again would not help."""


async def _execute(tool: AnyTool, request: ToolCallRequest, context: ToolContext[Any]) -> object:
    arguments = tool.input_schema.model_validate(request.arguments)
    assert tool.execute is not None
    inner: TimeoutError | None = None
    try:
        async with asyncio.timeout(tool.timeout_s):
            try:
                if inspect.iscoroutinefunction(tool.execute):
                    return await tool.execute(arguments, context)
                work = partial(copy_context().run, tool.execute, arguments, context)
                result = await asyncio.get_running_loop().run_in_executor(_THREADS, work)
                return await result if inspect.isawaitable(result) else result
            except TimeoutError as error:
                inner = error  # raised by the tool, unless the timeout block raises its own
                raise
    except TimeoutError as error:
        if inner is error and inner is not None:
            raise ToolError(f"{type(error).__name__}: {text_of(error)}") from error
        raise


async def _read_files(tool: AnyTool, result: object) -> tuple[object, list[ReadFile]]:
    """Return the text and the files of a result with files. Any other result is returned unchanged."""
    if not has_files(result):
        return result, []
    if tool.output_schema is not None or tool.finish_with:
        raise ResultError(f"tool {tool.name!r} returned a file, but its result must be JSON: it becomes an output")
    try:
        content = await read_content(cast(Content, result))
    except InvalidInputError as error:
        raise ResultError(f"result of tool {tool.name!r}: {error}") from error
    return content.text, content.files


def checked_result(agent: AnyAgent, tool: AnyTool, result: object) -> tuple[str, bool]:
    """Return the result's content, and whether it is plain text. The result is validated against the tool's schema and,
    with `finish_with`, the agent's. Raises an exception with a message for the model."""
    schemas = [tool.output_schema]
    if tool.finish_with and agent.function is None:
        schemas.append(agent.output_schema)
    for schema in schemas:
        if schema is not None and not isinstance(result, schema):
            try:
                result = schema.model_validate(result.model_dump() if isinstance(result, BaseModel) else result)
            except ValidationError as error:
                problems = every_problem(error, "result")
                raise ResultError(f"result of tool {tool.name!r} does not fit its output schema: {problems}") from error
    try:
        if tool.finish_with and isinstance(result, BaseModel):  # stored in the form that its schema can load
            result = result.model_dump(mode="json", round_trip=True, by_alias=False)
        content = result_content(result, True)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"tool {tool.name!r}: {error}") from error
    if tool.finish_with and len(content.encode()) > MAX_RESULT_BYTES:
        raise ResultError(f"result of tool {tool.name!r} is the run's output and exceeds {MAX_RESULT_BYTES} bytes")
    return content, isinstance(result, str)


def _is_cancelled() -> bool:
    """Return whether this task is cancelled from outside, for use while a `CancelledError` is handled. A tool may raise
    one too."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _is_repeated(tool: AnyTool, error: BaseException) -> bool:
    if isinstance(error, TimeoutError):
        return tool.retry_timeouts
    return not isinstance(error, (FatalToolError, ResultError, asyncio.CancelledError))


def _failed(tool: AnyTool, error: BaseException) -> str:
    """Return the content of a failed result. Missing dependencies have a code, because the tool itself did not fail."""
    if isinstance(error, DependencyError):
        return dumps({"error": clean_text(str(error)), "code": error.code})
    return result_content(_message(tool, error), False)


def _message(tool: AnyTool, error: BaseException) -> str:
    """Return the error text for the model: the message of an error that tools raise on purpose. For other exceptions it
    also includes the type. It never contains a stack trace."""
    if isinstance(error, TimeoutError):
        return f"tool {tool.name!r} took longer than {tool.timeout_s:g} s and was stopped; its outcome is unknown"
    if isinstance(error, asyncio.CancelledError):
        return f"tool {tool.name!r} was cancelled from inside"  # the run itself was not cancelled
    if isinstance(error, FatalToolError):
        return text_of(error) or "fatal"
    if isinstance(error, (ToolError, ResultError)):
        return text_of(error)
    return f"{type(error).__name__}: {text_of(error)}"


def _sum(usages: list[Usage]) -> Usage | None:
    return sum(usages, Usage()) if usages else None
