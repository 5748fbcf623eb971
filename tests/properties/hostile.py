"""Send seeded hostile values through every edge: callers, clients, models, tools, hooks, answers.

    .venv/bin/python -m tests.properties.hostile --count 100000 --seed 1

Rule: any input leads to success, an error of Helix, or a failed call. Afterwards the session runs, stops and is deleted,
and a sweep passes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from tests.properties.hostile_clients import by_frame, by_http
from tests.properties.hostile_desks import CloudDesk, Desk, LocalDesk
from tests.properties.hostile_mcp import by_mcp
from tests.properties.hostile_values import TEXTS, hostile
from tests.support_gateway import ADA

from helix import Agent, Confirmation, ScriptedModel, ToolContext, run
from helix.core.errors import HelixError, ModelError, SessionNotFoundError
from helix.core.initial import AgentInput
from helix.core.steps import StructuredOutputStepResult, TextStepResult, ToolCallsStepResult
from helix.core.usage import Usage
from helix.gateway.authoriser import prefix_of

S = f"{prefix_of(ADA)}s"
Edge = Callable[[Desk, Agent[Any, Any], Any], Awaitable[None]]


# --- the edges ----------------------------------------------------------------------------------------------------------


async def _execute(desk: Desk, who: Agent[Any, Any], given: Any = "go", **options: Any) -> None:
    await desk.executor.execute(who, given, session_id=S, **options)
    await desk.settle()


async def by_input(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    fields = ("state", "metadata", "message", "unknown")
    given: Any = value if desk.rng.random() < 0.2 else {"message": "go", desk.rng.choice(fields): value}
    if desk.rng.random() < 0.2:
        with suppress(ValidationError):
            given = AgentInput(**{"message": "go", desk.rng.choice(fields[:3]): value})
    await _execute(desk, who, given)


async def by_options(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    name = desk.rng.choice(("metadata", "tags", "user_id", "priority", "branch", "run_id", "key"))
    if name == "run_id" and not isinstance(value, str):
        value = "\ud800run"
    await _execute(desk, who, "go", **{name: value})


async def by_run(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    """Send the value through `helix.run`, which has a store of its own."""
    options: dict[str, Any] = {"input": "go", desk.rng.choice(("input", "session_id", "user_id", "budget")): value}
    model = ScriptedModel(["Done."] * 4)
    await asyncio.to_thread(lambda: run(who, **options, store=":memory:", model=model))


async def by_ids(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    executor, text = desk.executor, value if isinstance(value, str) else desk.rng.choice(TEXTS)
    acts: list[Callable[[], Awaitable[Any]]] = [
        lambda: executor.execute(who, "go", session_id=value),
        lambda: executor.resume(who, text),
        lambda: executor.resume(who, S, mode="from_checkpoint", checkpoint_id=text),
        lambda: executor.resume(who, S, message=text),
        lambda: executor.retry(who, text),
        lambda: executor.sessions.get(text),
        lambda: executor.sessions.get_checkpoint(S, text),
        lambda: executor.sessions.list_checkpoints(S, after=text),
        lambda: executor.sessions.list_sessions(user_id=text, after=text),
        lambda: executor.clone_session(S, text),
        lambda: executor.interrupt(S, text, run_id=text),
        lambda: executor.abort(who, S, text, run_id=text),
        lambda: executor.delete(text),
    ]
    await _execute(desk, who)
    try:
        await desk.rng.choice(acts)()
    finally:
        await desk.settle()


async def by_arguments(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    """Send the value in the arguments of the model's tool and sub-agent calls."""
    name = desk.rng.choice(("work", "ask", "client", "subagent__child", "subagent__other", "__finish__", "no_such"))
    field = desk.rng.choice(("value", "message"))
    arguments = value if isinstance(value, dict) and desk.rng.random() < 0.5 else {field: value}
    answer = ToolCallsStepResult(usage=Usage(prompt_tokens=1, calls=1))
    child = name.startswith("subagent__")
    call: Any = {"id": desk.rng.choice(("call", "", "\ud800", "x" * 3_000)), "name": name, "arguments": arguments}
    if child:
        call = {"id": call["id"], "agent_type": name.removeprefix("subagent__"), "input": arguments}
    times = 70 if desk.rng.random() < 0.02 else desk.rng.choice((1, 2))
    try:
        parsed = ToolCallsStepResult.model_validate({"sub_agent_calls" if child else "tool_calls": [call] * times})
    except ValidationError:
        parsed = ToolCallsStepResult.model_construct(tool_calls=[call])
    desk.script.answers.append(parsed.model_copy(update={"usage": answer.usage}))
    await _execute(desk, who)


async def by_declared_tool(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    """Send the value in a tool that the run declares, and in a call of it."""
    rng, tool = desk.rng, {"name": "page", "description": "Shows.", "parameters": {}}
    keyword = rng.choice(("properties", "required", "$defs", "anyOf", "$ref", "type", "enum", "minimum", "items"))
    part = {keyword: value}
    makes: list[Any] = [
        value,
        [value],
        [{**tool, rng.choice(("name", "description", "parameters", "more")): value}],
        [{**tool, "parameters": part}],
        [{**tool, "parameters": {"properties": {"value": rng.choice((part, value))}}}],
    ]
    call: Any = {"id": "c", "name": "page", "arguments": {"value": value}}
    with suppress(ValidationError):
        desk.script.answers.append(ToolCallsStepResult.model_validate({"tool_calls": [call]}))
    await _execute(desk, who, tools=rng.choice(makes))


async def by_answer(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    """Send the value in other fields of the answer of a model or its adapter."""
    text = value if isinstance(value, str) else repr(type(value))
    makes: list[Callable[[], Any]] = [
        lambda: StructuredOutputStepResult(output=value),
        lambda: TextStepResult(content=text),
        lambda: value,
        lambda: ModelError(text),
        lambda: RuntimeError(value),
        lambda: TextStepResult.model_construct(content=value),
        lambda: TextStepResult(content="x", model=text),
    ]
    made: Any = None
    with suppress(ValidationError):
        made = desk.rng.choice(makes)()
    desk.script.answers.append(made)
    await _execute(desk, who)


async def by_tool(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    def raising(ctx: ToolContext[Any]) -> Any:
        raise RuntimeError(value)

    def updating(ctx: ToolContext[Any]) -> str:
        def change(state: Any) -> None:
            if isinstance(state, dict):
                state["value"] = value
            else:
                state.value, state.items = value, [*state.items, value]

        ctx.update_state(change)
        return "updated"

    does: list[Callable[[ToolContext[Any]], Any]] = [
        lambda ctx: value,
        lambda ctx: ctx.emit("event", value),
        lambda ctx: ctx.emit(value, 1),
        updating,
        updating,
        raising,
    ]
    desk.does = desk.rng.choice(does)
    calls = [{"id": f"c{i}", "name": "work"} for i in range(desk.rng.choice((1, 2, 4)))]
    desk.script.answers.append(ToolCallsStepResult.model_validate({"tool_calls": calls}))
    await _execute(desk, who)


async def by_hook(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    desk.emits = desk.rng.choice((("event", value), (value, 1)))
    await _execute(desk, who)


async def by_confirmation(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    tool = desk.rng.choice(("ask", "client"))
    desk.script.answers.append(ToolCallsStepResult.model_validate({"tool_calls": [{"id": "c", "name": tool}]}))
    await _execute(desk, who)
    reason = value if desk.rng.random() < 0.3 else None
    arguments: Any = desk.rng.choice((None, None, value, {"value": value}))
    by = value if desk.rng.random() < 0.1 else None
    called = desk.rng.choice(("c", "c", "c", value))
    given = Confirmation(called, desk.rng.random() < 0.7, value, reason, arguments, by)
    try:
        await desk.executor.answer(who, S, given)
    finally:
        await desk.settle()


EDGES: tuple[Edge, ...] = (
    by_input,
    by_options,
    by_run,
    by_ids,
    by_arguments,
    by_declared_tool,
    by_answer,
    by_tool,
    by_hook,
    by_confirmation,
    by_frame,
    by_http,
    by_mcp,
)


# --- the rule -----------------------------------------------------------------------------------------------------------


async def send(desk: Desk, edge: Edge, value: Any, *, whole: bool = True) -> str:
    """Send one value through one edge, and check the rule. Return the outcome. Without `whole` the session continues with
    the next value, unless it ended differently from other sessions."""
    who = desk.rng.choice((desk.free, desk.strict))
    if (known := await desk.executor.sessions.load(S)) is not None:
        who = desk.executor.agents.named(known.agent_type)
    outcome = "taken"
    try:
        await edge(desk, who, value)
    except HelixError as error:
        outcome = error.code
    await desk.settle()
    desk.script.answers.clear()
    desk.does, desk.emits = lambda ctx: "did", ("quiet", None)
    if not whole:
        state = await desk.executor.sessions.load(S)
        assert state is None or state.status != "running", state
        if state is None or state.status in ("completed", "paused"):
            return outcome
    for _ in range(2):
        page = await desk.executor.sessions.list_sessions(user_id=ADA)
        others = await desk.executor.sessions.list_sessions()
        assert not page.damaged and not others.damaged
        for state in (*page.sessions, *others.sessions):
            await _use(desk, state.session_id)
    with suppress(SessionNotFoundError):
        await desk.executor.abort(who, S)
    await desk.executor.delete(S)
    await desk.sweep()
    return outcome


async def _use(desk: Desk, session_id: str) -> None:
    """Check that the session did not end in an untyped error, then run it, stop it and delete it."""
    executor = desk.executor
    state = await executor.sessions.get(session_id)
    assert state.status != "running", state
    assert state.error is None or state.error.code not in ("runtime_crash", "internal_error"), state.error
    who = executor.agents.named(state.agent_type)
    handle = await executor.execute(who, "again", session_id=session_id, user_id=state.user_id)
    await desk.settle()
    result = await handle.result(timeout_s=20)
    assert result.status == "completed", result
    await executor.abort(who, session_id)
    assert await executor.delete(session_id)


async def play(
    count: int, seed: int, *, every: int = 1, say: Callable[[str], None] = lambda line: None
) -> Counter[str]:
    """Send `count` values, starting at `seed`. Each can be sent again by its own number."""
    outcomes: Counter[str] = Counter()
    begun, broken = time.monotonic(), list[str]()
    desks: list[Desk] = []
    for number in range(seed, seed + count):
        if not desks or (number - seed) % 500 == 0:  # stores grow, so start with new ones
            for desk in desks:
                await desk.close()
            desks = [LocalDesk(random.Random()), CloudDesk(random.Random())]
        rng = random.Random(number)
        desk, edge = desks[rng.randrange(2)], rng.choice(EDGES)
        desk.rng = rng
        value = hostile(rng, strange=edge not in (by_frame, by_http))
        try:
            outcomes[f"{edge.__name__}: {await send(desk, edge, value, whole=number % every == 0)}"] += 1
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            told = f"{error!r}"[:600]
            broken.append(
                f"{number} by {edge.__name__} on {type(desk).__name__}: {where.filename}:{where.lineno}: {told}"
            )
            say(broken[-1])
            if len(broken) >= 20:
                break
            desks = []
        if (number - seed + 1) % 5_000 == 0:
            say(f"{number - seed + 1} values in {time.monotonic() - begun:.0f} s")
    for desk in desks:
        await desk.close()
    assert not broken, "\n".join(broken)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="after how many values the session is used up and deleted")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    outcomes = asyncio.run(play(given.count, given.seed, every=given.every, say=lambda line: print(line, flush=True)))
    for name, number in sorted(outcomes.items()):
        print(f"{number:7d}  {name}")
    print(f"{given.count} hostile values, seeds {given.seed} to {given.seed + given.count - 1}: the rule holds")


if __name__ == "__main__":
    main()
