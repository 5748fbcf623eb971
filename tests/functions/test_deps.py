"""Dependencies of tools in functions: each process makes them once, for all its invocations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.functions.conftest import Functions
from tests.support_run import a_tool, agent, call, calls

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_invocations_of_a_process_share_them_until_it_ends(functions: Functions) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def pool() -> AsyncIterator[list[str]]:
        log.append("opened")
        yield log
        log.append("closed")

    def use(arguments: Any, context: Any) -> str:
        context.deps.append("used")
        return "ok"

    helper = agent("helper", tools=[a_tool("look", use), a_tool("peek", use, inline=True)], deps=pool)
    functions.play([calls(call("look")), calls(call("look")), calls(call("peek")), "Done."], helper)
    functions.claim(helper, functions.sample("call_model"))
    told = functions.sample("call_model")
    for used in (1, 2):
        told = functions.invoke("call_model", told)
        assert (told["next"], log.count("used")) == ("call_tool", used - 1)
        assert functions.invoke("call_tool", told) == {"call": "done"}
    told = functions.invoke("call_model", told)  # executes the inline tool
    assert log == ["opened", "used", "used", "used"]
    assert functions.invoke("call_model", told)["next"] == "finish"
    functions.app.close()
    assert log == ["opened", "used", "used", "used", "closed"]
