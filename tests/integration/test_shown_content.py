"""Logs, streams and results show no text of an exception, unless `HELIX_LOG_CONTENT=1`."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.support_run import Nothing, World, a_tool, agent, call, calls, history, play, results

from helix import ToolContext, ToolError
from helix.core.json import dumps
from helix.ports.model import LLMGenerateInput

SECRET = "password=hunter2"


@pytest.fixture(params=["hidden", "shown"])
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setenv("HELIX_LOG_CONTENT", "1" if request.param == "shown" else "0")
    return bool(request.param == "shown")


def broken(*_: Any) -> Any:
    raise RuntimeError(SECRET)


async def test_a_tools_exception_in_the_log(quick_world: World, caplog: pytest.LogCaptureFixture, shown: bool) -> None:
    executor = quick_world.executor([calls(call("connect")), "sorry"])
    with caplog.at_level(logging.DEBUG, "helix"):
        handle, _, _ = await play(executor, agent(tools=[a_tool("connect", broken)]))
    assert "'connect'" in caplog.text and handle.session_id in caplog.text and "RuntimeError" in caplog.text
    assert (SECRET in caplog.text, "Traceback" in caplog.text) == (shown, shown)


async def test_the_model_reads_the_tools_own_words(
    quick_world: World, caplog: pytest.LogCaptureFixture, shown: bool
) -> None:
    def refuse(given: Nothing, ctx: ToolContext[Any]) -> str:
        raise ToolError("no such table: ordres")

    executor = quick_world.executor([calls(call("query")), "sorry"])
    with caplog.at_level(logging.DEBUG, "helix"):
        handle, _, _ = await play(executor, agent(tools=[a_tool("query", refuse)]))
    assert results(await history(executor, handle.session_id)) == ['{"error":"no such table: ordres"}']
    assert ("ordres" in caplog.text) is shown


async def test_hooks_and_rules_that_raise(quick_world: World, caplog: pytest.LogCaptureFixture, shown: bool) -> None:
    executor = quick_world.executor([calls(call("pay"))], hooks={"before_llm_call": broken})
    with caplog.at_level(logging.DEBUG, "helix"):
        await play(executor, agent(tools=[a_tool("pay", lambda given, ctx: "paid", require_approval=broken)]))
    assert "require_approval of tool 'pay'" in caplog.text and "hook before_llm_call" in caplog.text
    assert (SECRET in caplog.text) is shown


class Raising:
    """A model adapter that fails with its provider's exception."""

    async def generate_step(self, request: LLMGenerateInput) -> Any:
        assert request.callbacks.on_error is not None
        request.callbacks.on_error(ValueError(SECRET))
        raise RuntimeError(SECRET)


async def test_what_a_client_reads_of_an_adapter_that_raises(
    quick_world: World, caplog: pytest.LogCaptureFixture, shown: bool
) -> None:
    executor = quick_world.executor(Raising())
    with caplog.at_level(logging.DEBUG, "helix"):
        _, result, chunks = await play(executor, agent())
    assert (result.status, result.error_code) == ("failed", "adapter_failed")
    assert result.error is not None and result.error.startswith("the model adapter raised RuntimeError")
    said = dumps([chunk.model_dump(mode="json") for chunk in chunks])
    assert (SECRET in result.error, SECRET in said, SECRET in caplog.text) == (shown, shown, shown)


async def test_what_a_client_reads_of_an_agents_function_that_raises(quick_world: World, shown: bool) -> None:
    executor = quick_world.executor(["never said"])
    _, result, _ = await play(executor, agent(system_prompt=broken))
    assert result.error_code == "invalid_agent" and result.error is not None and "RuntimeError" in result.error
    assert (SECRET in result.error) is shown
