"""The reports that clients may read in addition to sessions: agents, steps, checkpoints and costs, and whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support_gateway import ADA, BOB, Desk, desk_of, executor_of, started
from tests.support_resume import Log, writer
from tests.support_run import Gate, Nothing, Text, a_tool, agent, call, calls

from helix import LocalExecutor, MemoryStateStore, ScriptedModel, SQLiteStateStore, ToolContext
from helix.core.functions import AgentClient
from helix.core.patches import apply
from helix.core.protocol import parse_request, request
from helix.core.registry import AgentFactoryContext, AgentRegistry
from helix.core.steps import TextStepResult
from helix.core.usage import Usage
from helix.fleet.budgets import BudgetManager
from helix.gateway.backend import OperatorBackend
from helix.gateway.connections import Connection
from helix.gateway.gateway import act
from helix.ports.model import LLMGenerateInput


async def operator(desk: Desk, action: str, **fields: Any) -> Any:
    """Return the answer to an operator."""
    backend = OperatorBackend(desk.executor, desk.mailbox, desk.gateway.backend.authoriser, clock=desk.clock)
    return await act(
        backend, Connection("operator", None, float("inf"), 0.0), parse_request(request(action, "r", fields))
    )


async def ended_with(desk: Desk, message: str = "hi", **fields: Any) -> str:
    place = await desk.result("ada", "run", agent="helper", message=message, **fields)
    await desk.ended(place["session_id"])
    return str(place["session_id"])


# --- agents ---------------------------------------------------------------------------------------------------------------


async def test_agents_say_what_they_take_and_give() -> None:
    registry = AgentRegistry()
    functions = AgentClient(registry=registry)

    @functions.agent("price")
    async def price(order: str, urgent: bool = False) -> Text:
        """Says the price."""
        return Text(text=order)

    registry.register(agent("helper", description="Helps.", state_schema=Log))
    registry.register(agent("writer", output_schema=Text))

    def broken(context: AgentFactoryContext) -> Any:
        raise ValueError("no such tenant")

    registry.register_factory("broken", broken)
    registry.register_factory("own", lambda context: agent("own", description=f"Of {context.user_id}."))
    desk = Desk(LocalExecutor(MemoryStateStore(), model=ScriptedModel([]), registry=registry))
    async with desk.executor:
        await desk.connect("ada", ADA)
        found = await desk.result("ada", "list_agents")
        assert found["cursor"] is None
        cards = {card["name"]: card for card in found["agents"]}
        assert [*cards] == ["helper", "own", "price", "writer"]
        assert cards["own"]["description"] == "Of ada."
        assert (cards["helper"]["kind"], cards["helper"]["description"]) == ("chat", "Helps.")
        assert cards["helper"]["input"]["required"] == ["message"] and cards["helper"]["output"] == {"type": "string"}
        assert "lines" in cards["helper"]["input"]["properties"]["state"]["properties"]
        assert [*cards["writer"]["output"]["properties"]] == ["text"]
        assert cards["price"]["kind"] == "function" and cards["price"]["description"] == "Says the price."
        assert [*cards["price"]["input"]["properties"]["input"]["properties"]] == ["order", "urgent"]
        assert [*cards["price"]["output"]["properties"]] == ["text"]
        names, after = [], None
        while True:
            page = await desk.result("ada", "list_agents", limit=2, after=after)
            names += [card["name"] for card in page["agents"]]
            if (after := page["cursor"]) is None:
                break
        assert names == [*cards]


# --- checkpoints ----------------------------------------------------------------------------------------------------------


async def test_two_checkpoints_differ_by_patches_and_messages() -> None:
    """The patches turn one state into the other, in both directions. A rewind removes messages."""
    who = agent("helper", tools=[writer()], state_schema=Log)
    script = [calls(call("write", text="a")), "one", calls(call("write", text="b")), "two", "three"]
    desk = desk_of(script, who)
    async with desk.executor:
        await desk.connect("ada", ADA)
        session_id = await ended_with(desk)
        await ended_with(desk, "more", session_id=session_id)
        listed = (await desk.result("ada", "list_checkpoints", session_id=session_id))["checkpoints"][::-1]
        states = {}
        for point in listed:
            found = await desk.result("ada", "get_checkpoint", session_id=session_id, checkpoint_id=point["id"])
            assert {name: found["checkpoint"][name] for name in point} == point
            states[point["id"]] = found["checkpoint"]
        latest = (await desk.result("ada", "get_checkpoint", session_id=session_id))["checkpoint"]
        assert latest["custom_state"] == {"lines": ["a", "b"]} and latest["id"] == listed[-1]["id"]
        messages = (await desk.result("ada", "get_session", session_id=session_id, messages=50))["messages"]
        for one in listed:
            for other in listed:
                asked = {"session_id": session_id, "before": one["id"], "checkpoint_id": other["id"], "limit": 100}
                diff = await desk.result("ada", "diff_checkpoints", **asked)
                before, after = states[one["id"]]["custom_state"], states[other["id"]]["custom_state"]
                assert apply(before, diff["patches"]) == after
                assert diff["messages"] == messages[one["count"] : other["count"]]
                assert (diff["added"], diff["removed"]) == (
                    max(0, other["count"] - one["count"]),
                    max(0, one["count"] - other["count"]),
                )
        page = await desk.result(
            "ada", "diff_checkpoints", session_id=session_id, before=listed[0]["id"], offset=1, limit=2
        )
        assert page["messages"] == messages[listed[0]["count"] :][1:3] and page["offset"] == 1
        first = next(point for point in listed if point["step"] == 1)
        rewound = {"session_id": session_id, "mode": "from_checkpoint", "checkpoint_id": first["id"], "message": "else"}
        await desk.result("ada", "resume", **rewound)
        await desk.ended(session_id)
        diff = await desk.result("ada", "diff_checkpoints", session_id=session_id, before=listed[-1]["id"])
        assert diff["removed"] == len(messages) - first["count"]
        assert [message["content"] for message in diff["messages"]] == ["else", "three"] and diff["added"] == 2
        assert apply({"lines": ["a", "b"]}, diff["patches"]) == {"lines": ["a"]}
        error = await desk.error("ada", "diff_checkpoints", session_id=session_id, before="cpv1-other-s1-t1-000001")
        assert error["code"] == "checkpoint_not_found"


# --- steps ----------------------------------------------------------------------------------------------------------------


class Halting:
    """A model that streams some text and hangs. The next instance answers."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    async def generate_step(self, request: LLMGenerateInput) -> Any:
        assert request.callbacks.on_text_delta is not None
        request.callbacks.on_text_delta("Half an ans")
        await self.gate.wait()
        return TextStepResult(content="never")


class Answering:
    async def generate_step(self, request: LLMGenerateInput) -> Any:
        assert request.callbacks.on_text_delta is not None
        request.callbacks.on_text_delta("Whole.")
        return TextStepResult(content="Whole.", usage=Usage(calls=1, prompt_tokens=7, completion_tokens=1))


async def test_a_step_shows_what_its_dead_attempt_showed_and_who_took_over(tmp_path: Path) -> None:
    gate = Gate()
    first = executor_of(Halting(gate), store=SQLiteStateStore(str(tmp_path / "s.db")))
    desk = Desk(first)
    await desk.connect("ada", ADA)
    place = await desk.result("ada", "run", agent="helper", message="hi")
    await gate.reached()
    while not await first.streams.read(place["session_id"], 1):
        await first.streams.wait(place["session_id"], 1, 1.0)
    about = {"session_id": place["session_id"], "step": 1}
    (attempt,) = (await desk.result("ada", "get_step", **about))["attempts"]
    assert (attempt["outcome"], attempt["text"], attempt["taken_over_by"]) == ("open", "Half an ans", None)
    await first.close()
    desk = Desk(executor_of(Answering(), store=SQLiteStateStore(str(tmp_path / "s.db"))))
    async with desk.executor:
        await desk.connect("ada", ADA)
        again = await desk.result("ada", "resume", session_id=place["session_id"])
        await desk.ended(place["session_id"])
        found = await desk.result("ada", "get_step", **about)
        dead, answered = found["attempts"]
        assert (dead["run_id"], dead["outcome"], dead["text"]) == (place["run_id"], "dead", "Half an ans")
        assert dead["discarded"] and dead["reason"] and dead["taken_over_by"] == again["run_id"]
        assert (answered["run_id"], answered["outcome"], answered["text"]) == (again["run_id"], "answered", "Whole.")
        assert not answered["discarded"] and answered["usage"]["prompt_tokens"] == 7
        assert found["complete"] and found["calls"] == []
        none = await desk.error("ada", "get_step", session_id=place["session_id"], step=2)
        assert (none["code"], "has no step 2" in none["message"]) == ("invalid_input", True)


async def test_a_step_shows_its_calls_and_who_changed_them() -> None:
    tool = a_tool("pay", lambda given, ctx: "paid", input_schema=Text, require_approval=True)
    desk = desk_of([calls(call("pay", text="rent"), call("no_such")), "done"], agent("helper", tools=[tool]))
    async with desk.executor:
        await desk.connect("ada", ADA)
        session_id = await ended_with(desk)
        pay, missing = (await desk.result("ada", "get_step", session_id=session_id, step=1))["calls"]
        assert (pay["state"], pay["starts"], pay["edited"], missing["by"]) == ("asked", 0, None, "plan")
        asked = {"session_id": session_id, "tool_call_id": pay["call_id"], "arguments": {"text": "half"}}
        await desk.result("ada", "answer", **asked)
        await desk.ended(session_id)
        pay, _ = (await desk.result("ada", "get_step", session_id=session_id, step=1))["calls"]
        assert (pay["state"], pay["by"], pay["success"], pay["starts"]) == ("done", "tool", True, 1)
        assert pay["edited"]["by"] == ADA and pay["ruling"] is None


@pytest.mark.parametrize(
    ("answer", "ruling"),
    [
        ({"approved": True}, "executed_again"),
        ({"approved": False}, "unknown"),
        ({"approved": False, "data": "it did"}, "reported"),
    ],
)
async def test_a_step_shows_how_an_unknown_outcome_was_ruled(tmp_path: Path, answer: Any, ruling: str) -> None:
    gate = Gate()

    async def act_once(given: Nothing, ctx: ToolContext[Any]) -> str:
        if not gate.times:
            await gate.wait()
        return "acted"

    who = agent("helper", tools=[a_tool("act", act_once, on_unknown="ask")])
    first = executor_of([calls(call("act"))], who, store=SQLiteStateStore(str(tmp_path / "s.db")))
    desk = Desk(first)
    await desk.connect("ada", ADA)
    place = await desk.result("ada", "run", agent="helper", message="hi")
    await gate.reached()
    await first.close()
    desk = Desk(executor_of(["done"], who, store=SQLiteStateStore(str(tmp_path / "s.db"))))
    async with desk.executor:
        await desk.connect("ada", ADA)
        await desk.result("ada", "resume", session_id=place["session_id"])
        await desk.ended(place["session_id"])
        (asked,) = (await desk.result("ada", "get_step", session_id=place["session_id"], step=1))["calls"]
        assert (asked["state"], asked["ruling"]) == ("asked", "asked")
        log = await desk.executor.streams.read(place["stream_id"], 0, 100)
        questions = [m.chunk["kind"] for m in log if m.chunk and m.chunk["type"] == "tool_approval_request"]
        assert questions == ["unknown"]
        await desk.result("ada", "answer", session_id=place["session_id"], tool_call_id=asked["call_id"], **answer)
        await desk.ended(place["session_id"])
        (done,) = (await desk.result("ada", "get_step", session_id=place["session_id"], step=1))["calls"]
        assert (done["state"], done["ruling"]) == ("done", ruling)


# --- money ----------------------------------------------------------------------------------------------------------------

COSTS = {
    "content": "Hello.",
    "usage": {"prompt_tokens": 100, "completion_tokens": 10, "cost_micros": 2_000, "calls": 1},
}


async def test_the_cost_of_a_session_is_the_sum_of_its_lines() -> None:
    desk = desk_of([COSTS, COSTS])
    async with desk.executor:
        await desk.connect("ada", ADA)
        session_id = await ended_with(desk)
        await ended_with(desk, session_id=session_id)
        found = await desk.result("ada", "get_cost", session_id=session_id)
        assert found["usd"] == pytest.approx(0.004) == pytest.approx(sum(line["usd"] for line in found["lines"]))
        assert found["agrees"] and {line["session_id"] for line in found["lines"]} == {session_id}
        assert await operator(desk, "get_cost", session_id=session_id) == found
        desk.gateway.backend.streaming = "kinesis"
        deployed = await desk.result("ada", "get_cost", session_id=session_id)
        assert deployed["usd"] > found["usd"] and len(deployed["services"]) > len(found["services"])


async def test_a_session_with_too_many_rows_has_no_cost_in_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.gateway.money.MOST_ROWS", 5)
    desk = desk_of([COSTS] * 3)
    async with desk.executor:
        await desk.connect("ada", ADA)
        session_id = await ended_with(desk)
        await ended_with(desk, session_id=session_id)
        error = await desk.error("ada", "get_cost", session_id=session_id)
        assert (error["code"], "more than 5 rows" in error["message"]) == ("invalid_input", True)


async def test_budgets_of_others_show_no_amounts_but_to_an_operator() -> None:
    desk = desk_of([COSTS] * 2)
    async with desk.executor:
        await desk.connect("ada", ADA)
        session_id = await ended_with(desk)
        budgets = BudgetManager(desk.executor.store, clock=desk.clock)
        await budgets.set_budget(5, "daily", unit="usd")
        await budgets.set_budget(1_000_000, "total", "helper")
        await budgets.set_budget(2, "monthly", tenant=ADA, unit="usd")
        await budgets.set_budget(3, "daily", tenant=BOB, unit="usd")
        await budgets.set_budget(50_000, "total", session=session_id, on_exceeded="pause")
        await ended_with(desk, session_id=session_id)
        found = (await desk.result("ada", "get_budgets", session_id=session_id))["budgets"]
        shown = {one["budget"]: one for one in found}
        assert [*shown] == [
            "global/day/micros",
            "agent:helper/total/tokens",
            "tenant:ada/month/micros",
            f"session:{session_id}/total/tokens",
        ]
        everybodys, agents, own, sessions = found
        for shared in (everybodys, agents):
            assert (shared["limit"], shared["used"], shared["exhausted"]) == (None, None, False)
        assert (own["limit"], own["used"], own["unit"]) == (2, pytest.approx(0.002), "usd")
        assert own["resets_at"] is not None and sessions["resets_at"] is None
        assert (sessions["limit"], sessions["used"], sessions["on_exceeded"]) == (50_000, 110, "pause")
        assert sessions["run"]["spent"] == 110
        all_shown = (await operator(desk, "get_budgets", session_id=session_id))["budgets"]
        assert [one["limit"] for one in all_shown] == [5, 1_000_000, 2, 50_000]
        assert all_shown[0]["used"] == pytest.approx(0.002)


async def test_usage_is_ones_own_and_an_operators_to_see_of_all() -> None:
    desk = desk_of([COSTS] * 3)
    async with desk.executor:
        await desk.connect("ada", ADA)
        await desk.connect("bob", BOB)
        await desk.connect("nobody", None)
        await ended_with(desk)
        await started(desk, "bob")
        await ended_with(desk)
        for fields in ({}, {"user": ADA}, {"hours": 1}, {"hours": 168}):
            found = await desk.result("ada", "get_usage", **fields)
            assert (found["user"], found["usd"]) == (ADA, pytest.approx(0.004))
            (line,) = found["lines"]
            assert (line["agent"], line["input"], line["output"], line["calls"], line["runs"]) == (
                "helper",
                200,
                20,
                2,
                2,
            )
        assert (await desk.result("bob", "get_usage"))["usd"] == pytest.approx(0.002)
        assert (await desk.error("bob", "get_usage", user=ADA))["code"] == "invalid_input"
        assert (await desk.error("nobody", "get_usage"))["code"] == "invalid_input"
        assert (await operator(desk, "get_usage", user=ADA))["usd"] == pytest.approx(0.004)
        desk.clock.ahead_s = 3 * 3600
        await desk.connect("ada", ADA)
        assert (await desk.result("ada", "get_usage", hours=2))["lines"] == []
        assert (await desk.result("ada", "get_usage", hours=24))["usd"] == pytest.approx(0.004)
