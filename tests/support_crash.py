"""A run for crash tests, with parallel and sequential tools, state, a sub-agent, an approval and an output, and its
recovery."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from tests.support.journal import Journal
from tests.support.usage_invariants import find_usage_problems

from helix import (
    Agent,
    Confirmation,
    LLMConfig,
    LocalExecutor,
    MemoryStateStore,
    ScriptedModel,
    ToolContext,
    create_sub_agent_tool,
    tool,
)
from helix.adapters.models.scripted import Entry
from helix.core.entries import AssistantRow, CallRow
from helix.core.json import JsonObject, JsonValue
from helix.engine.engine import Settings
from helix.ports.model import LLMAdapter, LLMGenerateInput
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import CrashPoints, Point, crash_everywhere, writes
from helix.testing.invariants import read_tree

S = "ses"
LONG = 3600  # no lease of a test lasts this long
CONFIG = LLMConfig(model="scripted")
Log = Callable[[str], None]
LOG: list[str] = []
SINK: list[Log] = [LOG.append]


def log(line: str) -> None:
    SINK[0](line)


class Notes(BaseModel):
    seen: list[str] = []
    total: int = 0


class Answer(BaseModel):
    summary: str
    sources: list[str] = []


@tool
async def look(topic: str, ctx: ToolContext[Notes]) -> str:
    """Look a topic up."""
    log(f"tool start {ctx.session_id} {ctx.tool_call_id}")
    ctx.update_state(lambda notes: notes.seen.append(topic))
    log(f"tool end {ctx.session_id} {ctx.tool_call_id}")
    return f"{topic}: found"


@tool
async def add(amount: int, ctx: ToolContext[Notes]) -> int:
    """Add to the total."""
    log(f"tool start {ctx.session_id} {ctx.tool_call_id}")

    def change(notes: Notes) -> None:
        notes.total += amount

    after = ctx.update_state(change)
    log(f"tool end {ctx.session_id} {ctx.tool_call_id}")
    return after.total


@tool(require_approval=True)
async def gated(topic: str, ctx: ToolContext[Notes]) -> str:
    """Do what needs a person's word."""
    log(f"tool start {ctx.session_id} {ctx.tool_call_id}")
    ctx.update_state(lambda notes: notes.seen.append(f"gated {topic}"))
    return f"{topic}: allowed"


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def finish(summary: str, *sources: str) -> dict[str, object]:
    return {"tool_calls": [call("__finish__", summary=summary, sources=list(sources))]}


helper = Agent(
    name="helper", system_prompt="Help.", tools=[look], state_schema=Notes, output_schema=Answer, llm_config=CONFIG
)
careful = Agent(
    name="careful",
    system_prompt="Ask first.",
    tools=[gated],
    state_schema=Notes,
    output_schema=Answer,
    llm_config=CONFIG,
)
lead = Agent(
    name="lead",
    system_prompt="Lead.",
    tools=[look, add, gated, create_sub_agent_tool(helper), create_sub_agent_tool(careful)],
    state_schema=Notes,
    output_schema=Answer,
    llm_config=CONFIG,
)
plain = Agent(name="plain", system_prompt="Talk.", tools=[look, add], state_schema=Notes, llm_config=CONFIG)

HELPER: list[Entry] = [{"content": "digging", "tool_calls": [call("look", topic="deep")]}, finish("helped", "deep")]
CAREFUL: list[Entry] = [{"tool_calls": [call("gated", topic="child")]}, finish("allowed", "child")]
LEAD: list[Entry] = [
    {"content": "two at once, then more", "tool_calls": [call("look", topic="a"), call("look", topic="b")]},
    {"tool_calls": [call("subagent__helper", message="dig"), call("look", topic="c")]},
    {"content": "summing", "tool_calls": [call("add", amount=2)]},
    {"tool_calls": [call("add", amount=3)]},
    {"content": "that is it", **finish("all found", "a", "b", "c")},
]


GATED_SCRIPT: list[Entry] = [{"tool_calls": [call("gated", topic="x"), call("look", topic="y")]}, finish("done", "x")]


class LoggedModel:
    """A model that logs the start and the end of each answer: `model start <session> <step>`."""

    def __init__(self, inner: LLMAdapter) -> None:
        self._inner = inner

    async def generate_step(self, request: LLMGenerateInput):  # type: ignore[no-untyped-def]
        step = 1 + sum(m.role == "assistant" for m in request.messages)
        log(f"model start {request.agent_id} {step}")
        result = await self._inner.generate_step(request)
        log(f"model end {request.agent_id} {step}")
        return result


def model(**scripts: Sequence[Entry]) -> LoggedModel:
    return LoggedModel(ScriptedModel({"lead": LEAD, "helper": HELPER, "careful": CAREFUL, **scripts}, by="position"))


def executor(
    store: StateStore,
    streams: StreamManager,
    scripted: LoggedModel,
    ahead_s: float = 0,
    settings: Settings | None = None,
) -> LocalExecutor:
    settings = settings or Settings(stop_poll_s=0.02)
    return LocalExecutor(store, streams=streams, model=scripted, clock=ShiftedClock(ahead_s), settings=settings)


async def settle(
    workers: LocalExecutor,
    agent: Agent,
    session_id: str,
    *,
    approve: bool = True,
    arguments: JsonObject | None = None,
    answers: Mapping[str, JsonValue] | None = None,
) -> str:
    """Resume, retry or answer, as a user does, until the session is completed. Return the last status. `answers`: those to
    questions, by their text."""
    for _ in range(20):
        state = await workers.sessions.load(session_id)
        if state is None:
            return "absent"
        match state.status:
            case "completed":
                await workers.get_handle(agent, session_id)
                return "completed"
            case "failed":
                if state.aborted:
                    await workers.get_handle(agent, session_id)
                    return "failed"
                handle = await workers.retry(agent, session_id)
            case "paused":
                call_id = await asked(workers.store, session_id)
                if call_id is None:
                    handle = await workers.resume(agent, session_id)
                else:
                    texts = [question.text for pending in state.pending for question in pending.questions]
                    data = (answers or {})[texts[0]] if texts else None
                    answer = Confirmation(call_id, approved=approve, data=data, arguments=arguments)
                    handle = await workers.resume(agent, session_id, mode="with_confirmation", confirmation=answer)
            case _:
                handle = await workers.resume(agent, session_id)
        await handle.result(timeout_s=20)
        await quiet(workers)
    assert state is not None
    raise AssertionError(f"session {session_id!r} does not come to an end: {state.status}, {state.error}")


async def quiet(workers: LocalExecutor) -> None:
    """Wait until this executor works on nothing. It may have started a parent that it notified."""
    import asyncio

    while workers._tasks:
        await asyncio.wait(list(workers._tasks.values()))


async def asked(store: StateStore, session_id: str) -> str | None:
    """Return a call that waits for approval, in the session or in a sub-agent."""
    for rows in await read_tree(store, session_id):
        session = rows.session
        if session is None or session.status != "paused":
            continue
        for pending in session.pending:
            if pending.kind != "child":
                return pending.call_id
    return None


async def bought(store: StateStore, session_id: str) -> set[str]:
    """Return the lines that must not be logged again: the start of a tool that has its result, and of an answer that is
    staged."""
    lines: set[str] = set()
    for rows in await read_tree(store, session_id):
        if rows.session is None:
            continue
        end = rows.session.count
        if rows.session.open is not None:
            end = rows.session.open.base + 1 + rows.session.open.calls
        for entry in rows.history(rows.session.lineage, end):
            if isinstance(entry, AssistantRow):
                lines.add(f"model start {rows.session_id} {entry.step}")
            elif isinstance(entry, CallRow) and entry.state == "done":
                lines.add(f"tool start {rows.session_id} {entry.call_id}")
    return lines


def choose(points: Sequence[Point]) -> list[Point]:
    """Choose the crash points: every write, and every seventh read, because reads leave the same rows."""
    changes = writes(points)
    return changes + [point for point in points if point not in changes][::7]


def fresh() -> None:
    """Clear the log at the beginning of a test."""
    SINK[0] = LOG.append
    LOG.clear()


class Sweep:
    """A sweep over crash points: `act` crashes at each, and then a new worker settles the session and everything is
    checked."""

    def __init__(
        self,
        agent: Agent,
        scripted: LoggedModel,
        *,
        rebuys: bool = False,
        approve: bool = True,
        arguments: JsonObject | None = None,
        answers: Mapping[str, JsonValue] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings
        self.agent, self.scripted, self.rebuys = agent, scripted, rebuys
        self.answered: dict[str, Any] = {"approve": approve, "arguments": arguments, "answers": answers}
        self.outcomes: list[str] = []
        self.states: list[tuple[dict[str, Any], Any]] = []

    async def recover(self, store: StateStore, streams: StreamManager, point: Point) -> None:
        journal = Journal()
        await journal.check(store, streams, S)
        had, mark = await bought(store, S), len(LOG)
        workers = executor(store, streams, self.scripted, LONG, self.settings)
        if await workers.sessions.exists(S):
            status = await settle(workers, self.agent, S, **self.answered)
        else:
            handle = await workers.execute(self.agent, "begin", session_id=S)
            await handle.result(timeout_s=20)
            status = await settle(workers, self.agent, S, **self.answered)
        await quiet(workers)
        await journal.check(store, streams, S, at_rest=True)
        problems = await find_usage_problems(store, S)
        assert not problems, (point, problems)
        if not self.rebuys:
            again = had & set(LOG[mark:])
            assert not again, f"done again: {again}"
        self.outcomes.append(status)
        final = await workers.sessions.get(S)
        self.states.append((final.custom_state, final.output))
        async for _ in await (await workers.get_handle(self.agent, S)).stream():
            pass

    async def everywhere(self, act: Callable[[LocalExecutor], Awaitable[None]]) -> list[Point]:
        async def acting(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
            await act(executor(store, streams, self.scripted, settings=self.settings))

        covered = await crash_everywhere(MemoryStateStore, acting, self.recover, choose=choose)
        assert covered
        print(f"\n{len(covered)} crash points")
        return covered
