"""`max_retries` for any adapter: a transient failure is retried, and none of the text that it streamed stays."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.delivery_stage import Stage
from tests.support_run import World, agent, chunks_of, of_type, play, text_of, types

from helix import LLMConfig, ModelError, ScriptedModel
from helix.core.steps import AnyStepResult, ErrorStepResult, TextStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput

BUSY = ErrorStepResult(error="busy", code="rate_limited", retryable=True, retry_after_s=0.01, usage=Usage(calls=1))
RAISED = ModelError("busy", retryable=True, retry_after_s=0.01)


class Shows:
    """An adapter that streams text, and then fails or answers as its script says. It reports no attempt of its own."""

    def __init__(self, *script: AnyStepResult | Exception) -> None:
        self.script, self.asked = list(script), 0

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        self.asked += 1
        assert request.callbacks.on_text_delta is not None
        request.callbacks.on_text_delta(f"try {self.asked}")
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


def done(asked: int) -> TextStepResult:
    return TextStepResult(content=f"try {asked}", usage=Usage(calls=1, completion_tokens=5))


@pytest.mark.parametrize("failure", [BUSY, RAISED], ids=["returned", "raised"])
async def test_a_retryable_failure_is_repeated(world: World, failure: Any) -> None:
    model = Shows(failure, failure, done(3))
    _, result, chunks = await play(world.executor(model), agent())
    assert (result.status, result.output, model.asked) == ("completed", "try 3", 3)
    kinds = types(chunks)
    assert (kinds.count("error"), kinds.count("step_discarded"), kinds.count("step_committed")) == (2, 2, 1)
    assert all(error.recoverable for error in of_type(chunks, "error"))
    assert text_of(chunks) == "try 1try 2try 3" and result.steps == 1
    assert result.usage.completion_tokens == 5 and result.usage.calls + result.usage.unknown_calls == 3


@pytest.mark.parametrize(
    ("failure", "max_retries", "asked"),
    [
        (BUSY, 0, 1),
        (BUSY, 2, 3),
        (BUSY.model_copy(update={"retryable": False}), 3, 1),
        (BUSY.model_copy(update={"retry_after_s": 61}), 3, 1),
        (ModelError("no"), 3, 1),
    ],
)
async def test_what_is_not_repeated(quick_world: World, failure: Any, max_retries: int, asked: int) -> None:
    model = Shows(*[failure] * 5)
    config = LLMConfig(model="own", max_retries=max_retries)
    _, result, _ = await play(quick_world.executor(model), agent(llm_config=config))
    assert (result.status, model.asked) == ("failed", asked)
    assert result.error_code == ("model_error" if isinstance(failure, ModelError) else "rate_limited")


async def test_an_adapter_that_repeats_failures_itself_is_asked_once(quick_world: World) -> None:
    model = Shows(BUSY, done(2))
    model.repeats_failures = True  # type: ignore[attr-defined]
    _, result, _ = await play(quick_world.executor(model), agent())
    assert (result.status, model.asked) == ("failed", 1)


async def test_an_interrupt_ends_the_wait_for_the_next_try(quick_world: World) -> None:
    executor = quick_world.executor(Shows(BUSY.model_copy(update={"retry_after_s": 50}), done(2)))
    handle = await executor.execute(agent(), "go")
    async for chunk in await handle.stream():
        if chunk.type == "error":
            await handle.interrupt("enough")
    assert (await handle.result(timeout_s=10)).status == "interrupted"
    assert types(await chunks_of(handle))[-1] == "run_interrupted"


async def test_a_delivery_repeats_within_its_claim() -> None:
    stage = Stage(ScriptedModel([BUSY, "Done."], record=True), agent())
    event = await stage.begin(agent())
    assert (await stage.follow(event))["next"] == "finish"
    session = await stage.session(event)
    assert (session.status, session.output, len(stage.model.requests)) == ("completed", None, 2)
