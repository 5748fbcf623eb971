"""The same deliveries give the same log with and without Kinesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from tests.functions.conftest import Functions
from tests.functions.test_run_verbs import claim, helper, ids, looked
from tests.support.aws_resources import CHUNKS
from tests.support_run import call, calls

from helix.adapters.aws.direct import DirectStreams
from helix.core.wire import StreamMessage

__all__ = ["claim", "helper", "looked"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=["kinesis", "direct"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HELIX_STREAMING", request.param)
    return str(request.param)


def log(functions: Functions, mode: str, session_id: str) -> list[StreamMessage]:
    """Return the messages that readers get, after all records on Kinesis were projected."""
    if mode == "kinesis":
        functions.app.run(functions.app.log.append(session_id, functions.records()))
    return functions.app.run(functions.app.log.read(session_id))


def test_a_run_whose_deliveries_come_twice(mode: str, claim: Callable[..., Functions], looked: list[str]) -> None:
    functions = claim(calls(call("look")), "Done.")
    event = functions.sample("call_model")
    first, _ = (functions.invoke("call_model", event) for _ in range(2))
    for _ in range(2):
        functions.invoke("call_tool", first)
    last, _ = (functions.invoke("call_model", first) for _ in range(2))
    for _ in range(2):
        functions.invoke("finish_run", last)
    assert len(looked) == 1
    messages = log(functions, mode, ids(event)["session_id"])
    assert [message.sequence for message in messages] == list(range(1, len(messages) + 1))
    assert [_short(message) for message in messages] == [
        ("checkpoint_created", 0),
        ("step_committed", 1),
        ("tool_start", 1),
        ("tool_end", 1),
        ("checkpoint_created", 1),
        ("text_delta", 2),
        ("step_committed", 2),
        ("checkpoint_created", 2),
        ("end", "completed"),
    ]


def _short(message: StreamMessage) -> tuple[Any, ...]:
    return (message.chunk["type"], message.chunk["step"]) if message.chunk else (message.kind, message.status)


@pytest.mark.parametrize("mode", ["direct"], indirect=True)
def test_nothing_is_put_on_kinesis(mode: str, claim: Callable[..., Functions]) -> None:
    functions = claim("Done.")
    assert isinstance(functions.app.streams, DirectStreams)
    functions.invoke("finish_run", functions.invoke("call_model", functions.sample("call_model")))
    assert functions.records() == []
    boto3.client("kinesis").delete_stream(StreamName=CHUNKS)
    assert "kinesis" not in functions.app._clients
