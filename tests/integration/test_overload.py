"""Lambda has no free environment for hours. Runs wait, and no execution's history comes near the limit of Step
Functions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from pydantic import BaseModel
from tests.support.delivery_stage import Json, Stage
from tests.support.state_machine import Execution, ExecutionFailedError, Machines, StateMachine
from tests.support_run import a_tool, agent, call, calls

from helix.core.agents import AnyAgent
from helix.core.tools import create_sub_agent_tool
from helix.engine.verbs import MAP_CALLS, RETRY_EVENTS

HISTORY = 25_000
UNFINISHED = 6
"""The history events for the execution's start and for the state at work."""
LOOK = a_tool("look", lambda given, ctx: "seen")


class Found(BaseModel):
    text: str


def for_hours(hours: float) -> Callable[[Busy], bool]:
    return lambda busy: sum(e.waited_s for e in busy.executions) < hours * 3600


class Busy:
    """A stage on which `verbs` are throttled while `throttles(busy)` is true. `margins` records by how much each estimate
    of a history exceeded its real length."""

    def __init__(self, stage: Stage, *verbs: str, throttles: Callable[[Busy], bool]) -> None:
        self.stage, self.verbs, self.throttles = stage, verbs, throttles
        self.throttled, self.margins = 0, list[int]()
        self.machines = Machines(StateMachine(self.invoke, tries=None))
        stage.engine.launcher = self.machines

    @property
    def executions(self) -> list[Execution]:
        return list(self.machines.executions.values())

    async def invoke(self, verb: str, payload: Json) -> Json:
        if verb == "call_model":
            estimated = payload["events"] + RETRY_EVENTS * payload["retries"]
            running = next(e for e in self.executions if e.invoked and e.invoked[-1][1] is payload)
            self.margins.append(estimated - running.events + UNFINISHED)
        if verb in self.verbs and self.throttles(self):
            self.throttled += 1
            raise ExecutionFailedError("Lambda.TooManyRequestsException")
        return await self.stage.deliver(verb, payload, left_s=900)

    async def execute(self, who: AnyAgent) -> str:
        handle = await self.stage.executor.execute(who, "go")
        await self.machines.ended()
        assert {e.status for e in self.executions} == {"SUCCEEDED"}
        assert max(e.events for e in self.executions) < HISTORY and min(self.margins) >= 0
        session = await self.stage.engine.history.session(handle.session_id)
        assert session is not None and session.status == "completed"
        return handle.session_id


@pytest.mark.parametrize("verb", ["call_model", "call_tool", "finish_run"])
async def test_a_run_waits_for_hours(verb: str) -> None:
    helper = agent("helper", tools=[LOOK])
    busy = Busy(Stage([calls(call("look")), "Done."], helper), verb, throttles=for_hours(5))
    await busy.execute(helper)
    assert busy.throttled > 100 and len(busy.executions) == 1


async def test_a_parent_waits_for_hours() -> None:
    child = agent("child", output_schema=Found)
    parent = agent("parent", tools=[create_sub_agent_tool(child)])
    stage = Stage([calls(call("subagent__child", message="go")), {"output": {"text": "It."}}, "Done."], parent, child)
    await Busy(stage, "start_run", throttles=for_hours(5)).execute(parent)


async def test_a_day_of_throttled_calls_rolls_over_before_the_history_is_full() -> None:
    helper = agent("helper", tools=[LOOK])
    busy = Busy(Stage([calls(call("look")), "Done."], helper), "call_tool", throttles=for_hours(24))
    await busy.execute(helper)
    assert len(busy.executions) > 1
    assert sum(verb == "call_tool" for e in busy.executions for verb, _ in e.invoked) == busy.throttled + 1


async def test_a_wide_step_of_throttled_calls_rolls_over_too() -> None:
    helper = agent("helper", tools=[LOOK])
    wide = calls(*(call("look") for _ in range(MAP_CALLS)))
    busy = Busy(Stage([wide, "Done."], helper), "call_tool", throttles=for_hours(0.3 * MAP_CALLS))
    session_id = await busy.execute(helper)
    assert len(busy.executions) > 1
    session = await busy.stage.engine.history.existing(session_id)
    assert session.count == MAP_CALLS + 3, "each call has one result"


async def test_most_invocations_refused_in_eighty_steps() -> None:
    helper = agent("helper", tools=[LOOK], max_steps=100)
    chance = Random(11)
    stage = Stage([*[calls(call("look"), call("look"))] * 80, "Done."], helper)
    busy = Busy(stage, "call_model", "call_tool", "finish_run", throttles=lambda busy: chance.random() < 0.9)
    await busy.execute(helper)
    assert len(busy.executions) > 1 and busy.throttled > 1000
