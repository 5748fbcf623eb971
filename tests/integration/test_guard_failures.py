"""Guards that fail, and definitions of guards that are refused."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.integration.test_guards import fresh as fresh
from tests.integration.test_guards import letter
from tests.support_guards import DONE, pay, play, send
from tests.support_run import agent

from helix import (
    Allow,
    DefinitionError,
    Guard,
    Replace,
    Retry,
)
from helix.core.guards import GuardContext
from helix.core.verdicts import hash_of

# --- failing closed ---------------------------------------------------------------------------------------------------


def raising(value: Any, context: GuardContext) -> Any:
    raise ValueError("the secret of the guard")


def exiting(value: Any, context: GuardContext) -> Any:
    raise SystemExit(3)


def sleeping(value: Any, context: GuardContext) -> Any:
    time.sleep(0.5)
    return Allow()


async def waiting(value: Any, context: GuardContext) -> Any:
    await asyncio.sleep(30)
    return Allow()


def returning(what: Any) -> Any:
    return lambda value, context: what


@pytest.mark.parametrize(
    "function",
    [
        raising,
        exiting,
        sleeping,
        waiting,
        returning(None),
        returning(True),
        returning(Retry("no")),
        returning(Replace(1)),
    ],
)
async def test_a_guard_that_fails_blocks(function: Any) -> None:
    played = await play([letter(), "Done."], [Guard(name="bad", call=function, timeout_s=0.1)])
    assert played.result.status == "completed" and DONE == []
    (row,) = await played.calls()
    assert row.content is not None and "guard_blocked" in row.content and "the secret" not in row.content


async def test_a_guard_cannot_change_what_it_judges() -> None:
    def change(value: Any, context: GuardContext) -> Any:
        value["to"] = "mallory"
        context.arguments["to"] = "mallory"
        return Allow()

    played = await play([letter("bob"), "Done."], [Guard(name="bad", call=change)])
    assert DONE == ["sent to bob"]
    assert (await played.answers())[0].verdicts[0].hash == hash_of({"to": "bob"})


async def test_the_context_says_what_is_judged() -> None:
    seen: list[GuardContext] = []

    async def look(value: Any, context: GuardContext) -> Any:
        seen.append(context)
        return Allow()

    await play([letter("bob"), "Done."], [Guard(call=look, result=look, output=look, input=look)])
    assert [c.on for c in seen] == ["input", "call", "result", "output"]
    assert {(c.session_id, c.agent_type) for c in seen} == {("s", "helper")}
    assert [(c.tool_name, c.call_id, c.step) for c in seen[1:3]] == [("send", "c1", 1), ("send", "c1", 1)]
    assert seen[2].arguments == {"to": "bob"}


# --- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "at least one of"),
        ({"call": 3}, "must be a function or an agent"),
        ({"call": lambda value: Allow()}, "two arguments"),
        ({"call": returning(Allow()), "when": "after"}, "'before' or 'beside'"),
        ({"call": returning(Allow()), "hold": "text"}, "'step' or None"),
        ({"call": returning(Allow()), "timeout_s": 0}, "above 0"),
        ({"call": returning(Allow()), "timeout_s": 1000}, "60 at most"),
    ],
)
def test_a_guard_that_is_not_valid_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Guard(**fields)


def test_two_guards_of_one_name_are_refused() -> None:
    guards = [Guard(call=raising), Guard(output=raising)]
    with pytest.raises(DefinitionError, match="two guards are named 'raising'"):
        agent(guards=guards)
    with pytest.raises(DefinitionError, match="is not a guard"):
        agent(guards=[raising])
    assert pay and send
