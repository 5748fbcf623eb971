"""Declarations that are refused, arguments that do not fit, and guards of calls and results of declared tools."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_frontend_tools import COLOR, MAP, SHOW, S, Seen, desk, shown
from tests.support_run import World, agent, call, calls, result_of, results

from helix import (
    Agent,
    Allow,
    Ask,
    Block,
    Confirmation,
    DefinitionError,
    Guard,
    LocalExecutor,
    MemoryStateStore,
    Replace,
    ScriptedModel,
    ask_user,
    create_sub_agent_tool,
)
from helix.core.errors import SessionNotFoundError
from helix.core.frontend_tools import MAX_FRONTEND_TOOL_BYTES, MAX_FRONTEND_TOOLS, FrontendToolError
from helix.core.functions import AgentClient
from helix.core.guards import GuardContext
from helix.core.json_schema import schema_fault, schema_problems
from helix.core.registry import AgentRegistry
from helix.services.segments import SegmentStreams
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import Crash, CrashPoints
from helix.testing.invariants import check_session


class Report(BaseModel):
    text: str


def map_with(**schema: Any) -> list[Any]:
    return [{**MAP, "parameters": schema}]


def named(name: str) -> list[Any]:
    return [{**MAP, "name": name}]


@AgentClient(registry=AgentRegistry()).agent(name="sum")
async def add(a: int) -> int:
    return a


CHILD = create_sub_agent_tool(agent("child"))
LOOP = {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}
MANY = [{**MAP, "name": f"tool_{n}"} for n in range(MAX_FRONTEND_TOOLS + 1)]
LONG = [COLOR, {**MAP, "description": "x" * MAX_FRONTEND_TOOL_BYTES}]
REFUSED: dict[str, tuple[Any, Agent[Any, Any], str]] = {
    "the agent has it": (named("look"), desk(), "'look': agent 'desk' has a tool of this name"),
    "the questions of the agent": (named("ask_user"), desk(tools=[ask_user]), "'ask_user': agent 'desk' has a tool"),
    "questions": (named("ask_user"), desk(), "'ask_user': this name is reserved"),
    "recall": (named("recall"), desk(), "'recall': this name is reserved"),
    "the output": (named("__finish__"), desk(output_schema=Report), "'__finish__': this name is reserved"),
    "a sub-agent": (named("subagent__child"), desk(tools=[CHILD]), "'subagent__child': agent 'desk' has a tool"),
    "any sub-agent": (named("subagent__other"), desk(), "'subagent__other': this name is reserved"),
    "not allowed": ([MAP], desk(frontend_tools=False), "'show_map': agent 'desk' accepts no tools of a front end"),
    "by default": ([MAP], agent(), "'show_map': agent 'helper' accepts no tools of a front end"),
    "not on the list": ([MAP], desk(frontend_tools=["pick_color"]), "'show_map': .* it accepts pick_color"),
    "a function": ([MAP], add, "'show_map': agent 'sum' calls no model"),
    "twice": ([MAP, COLOR, MAP], desk(), "'show_map' is declared twice"),
    "a bad name": (named("show map"), desk(), "'show map': its name must be"),
    "no name": ([{"description": "x"}], desk(), "name: Field required"),
    "a field too much": ([{**MAP, "execute": "x"}], desk(), "'show_map': execute: Extra inputs"),
    "a text": (["show_map"], desk(), "'?': "),
    "not JSON": ([{**MAP, "parameters": {"x": float("nan")}}], desk(), "'show_map'"),
    "not a list": ({"show_map": MAP}, desk(), "tools must be a list of tools, not dict"),
    "too many": (MANY, desk(), "33 tools, up to 'tool_32', are declared; the limit of a run is 32"),
    "too long": (LONG, desk(), "'show_map' is the longest; the limit of a run is 32000"),
    "not an object": (map_with(type="string"), desk(), "'show_map': .* of the type object"),
    "no type": (map_with(properties={"x": {"type": "text"}}), desk(), "'show_map': .*: /properties/x/type is not"),
    "a name for a list": (map_with(required="x"), desk(), "/required is not a list of names"),
    "a list for an object": (map_with(properties=[]), desk(), "/properties is not an object of schemas"),
    "a text for a number": (map_with(properties={"x": {"minimum": "1"}}), desk(), "/properties/x/minimum is not a"),
    "a value for a list": (map_with(properties={"x": {"enum": 5}}), desk(), "/properties/x/enum is not a list"),
    "no definition": (map_with(properties={"x": {"$ref": "#/$defs/y"}}), desk(), "'#/[$]defs/y', which is not"),
    "a loop": (map_with(**LOOP), desk(), "'show_map': .* leads back to itself"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_declaration_is_refused_before_anything_is_stored(world: World, case: str) -> None:
    tools, who, problem = REFUSED[case]
    executor = world.executor([])
    with pytest.raises(FrontendToolError, match=problem) as caught:
        await executor.execute(who, {"a": 1} if who is add else "Hi", session_id=S, tools=tools)
    assert caught.value.code == "invalid_frontend_tool"
    with pytest.raises(SessionNotFoundError):
        await executor.sessions.get(S)


async def test_a_list_of_names_lets_those_through(world: World) -> None:
    who = desk(frontend_tools=["show_map"])
    await shown(world.executor([SHOW]), who)


def test_the_option_is_checked() -> None:
    for wrong in ("show_map", [1], None):
        with pytest.raises(DefinitionError, match="frontend_tools: must be True, False or a list of names"):
            desk(frontend_tools=wrong)


async def test_arguments_that_do_not_fit_never_reach_the_page(world: World) -> None:
    wrong = calls(call("show_map"), call("show_map", place=5))
    executor = world.executor([wrong, SHOW])
    await shown(executor, desk())
    (pending,) = (await executor.sessions.get(S)).pending
    assert pending.arguments == {"place": "Oslo"}
    assert results((await executor.sessions.get_messages(S)).messages) == [
        """{"error":"invalid arguments for 'show_map': arguments: Value error, place: is missing"}""",
        """{"error":"invalid arguments for 'show_map': arguments: Value error, place: must be string, not integer"}""",
    ]


# --- schemas that a stranger wrote ------------------------------------------------------------------------------------


def test_a_schema_with_endless_alternatives_is_checked_in_bounded_time() -> None:
    last = 14
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 9} for n in range(last)}
    defs[f"d{last}"] = {"type": "string"}
    schema: dict[str, Any] = {"$defs": defs, "properties": {"x": {"$ref": "#/$defs/d8"}}}
    begun = time.perf_counter()
    assert schema_fault(schema) is not None  # 29 subschemas apply to one value inside each other
    assert schema_fault({**schema, "$defs": {name: defs[name] for name in defs if int(name[1:]) >= 8}}) is None
    assert schema_problems(schema, {"x": 5}, "arguments") == []  # what is left when the work ends counts as fitting
    assert time.perf_counter() - begun < 5


def test_a_regular_expression_of_a_page_is_not_executed() -> None:
    schema: dict[str, Any] = {"properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    begun = time.perf_counter()
    assert schema_problems(schema, {"x": "a" * 64 + "!"}, "arguments", patterns=False) == []
    assert time.perf_counter() - begun < 1


def test_definitions_of_either_draft_and_the_schema_itself_are_followed() -> None:
    tree: dict[str, Any] = {
        "properties": {"below": {"type": "array", "items": {"$ref": "#"}}, "n": {"type": "integer"}}
    }
    assert schema_fault(tree) is None
    assert schema_problems(tree, {"below": [{"below": [{"n": "x"}]}]}, "arguments") == [
        "below.0.below.0.n: must be integer, not string"
    ]
    old: dict[str, Any] = {"properties": {"n": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"minimum": 3}}}
    assert schema_problems(old, {"n": 2}, "arguments") == ["n: must be at least 3"]
    free: dict[str, Any] = {"patternProperties": {"^x": {}}, "additionalProperties": False}
    assert schema_problems(free, {"xy": 1}, "arguments") == []


# --- guards -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [Block("no maps"), Ask("no maps")])
async def test_a_guard_keeps_a_call_from_the_page(world: World, verdict: Any) -> None:
    who = desk(guards=[Guard(name="g", call=lambda arguments, context: verdict)])
    executor = world.executor([SHOW, "I cannot."])
    result = await result_of(await executor.execute(who, "Where?", session_id=S, tools=[MAP]))
    assert result.text == "I cannot."
    assert "no maps" in results((await executor.sessions.get_messages(S)).messages)[0]


async def test_a_guard_changes_the_arguments_that_the_page_gets(world: World) -> None:
    who = desk(guards=[Guard(name="g", call=lambda arguments, context: Replace({"place": "Bergen"}))])
    executor = world.executor([SHOW])
    handle = await shown(executor, who)
    assert (await result_of(handle)).pending[0].arguments == {"place": "Bergen"}


@pytest.mark.parametrize("given", [{"data": "secret"}, {"approved": False, "reason": "secret"}])
async def test_guards_judge_the_page_s_result_before_the_model_reads_it(world: World, given: dict[str, Any]) -> None:
    judged: list[Any] = []

    def judge(value: Any, context: GuardContext) -> Any:
        judged.append((context.tool_name, value, context.arguments))
        return Replace("nothing") if "secret" in str(value) else Allow()

    who = desk(guards=[Guard(name="g", result=judge)])
    await shown(world.executor([SHOW]), who)
    executor = world.executor(Seen("There."))
    handle = await executor.resume(who, S, confirmation=Confirmation("call_0", **given))
    assert (await result_of(handle)).text == "There."
    assert [(name, arguments) for name, _, arguments in judged] == [("show_map", {"place": "Oslo"})]
    (content,) = results((await executor.sessions.get_messages(S)).messages)
    assert "secret" not in content and "nothing" in content
    (row,) = [row.value for row in await executor.store.query("sessions", S) if row.value.get("kind") == "call"]
    assert row["by"] == "answer" and row["verdicts"][0]["verdict"] == "replace"
    await check_session(executor.store, executor.streams, S)


@pytest.mark.parametrize(
    "point", ["transact:claim_call:after", "transact:call_result:before", "transact:call_result:after"]
)
async def test_a_result_is_judged_although_the_process_of_its_guard_died(point: str) -> None:
    store = MemoryStateStore()
    who = desk(guards=[Guard(name="g", result=lambda value, context: Replace("clean"))])
    async with LocalExecutor(store, model=ScriptedModel([SHOW])) as first:
        await shown(first, who)
    points = CrashPoints((point, 0))
    streams = points.streams(SegmentStreams(points.store(store)))
    dying = LocalExecutor(points.store(store), streams=streams, model=ScriptedModel([]))
    with pytest.raises(Crash):
        await points.unless_crashed(answered(dying, who))
    await check_session(store, SegmentStreams(store), S)
    async with LocalExecutor(store, model=Seen("There."), clock=ShiftedClock(3600)) as executor:
        assert (await result_of(await executor.resume(who, S))).text == "There."
        assert results((await executor.sessions.get_messages(S)).messages) == ["clean"]
        await check_session(store, executor.streams, S)


async def answered(executor: LocalExecutor, who: Agent[Any, Any]) -> None:
    await result_of(await executor.resume(who, S, confirmation=Confirmation("call_0", data="secret")))
