"""The state that a run starts from, as a pure value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_run import agent

from helix.core.errors import AgentAlreadyRunningError, InvalidInputError
from helix.core.initial import (
    AgentInput,
    continue_agent_state,
    create_initial_agent_state,
    initialize_agent_state,
    parse_input,
)
from helix.core.messages import AssistantMessage, ToolCallRequest


class Log(BaseModel):
    lines: list[str] = []
    mood: str = "calm"


WHO = agent(state_schema=Log)
IDS: dict[str, Any] = {"session_id": "ses_1", "run_id": "run_1"}


def test_defaults_then_the_given_state_then_the_message() -> None:
    state = initialize_agent_state(
        WHO, {"message": "hi", "state": {"mood": "keen"}, "metadata": {"a": 1}}, **IDS, message_id="msg_1", now=5.0
    )
    assert (state.status, state.step_count, state.agent_type, state.stream_id) == ("running", 0, "helper", "ses_1")
    assert state.custom_state == {"lines": [], "mood": "keen"}
    (message,) = state.messages
    assert message.model_dump(exclude_defaults=True) == {
        "id": "msg_1",
        "run_id": "run_1",
        "created_at": 5.0,
        "metadata": {"a": 1},
        "content": "hi",
    }


def test_the_same_arguments_give_the_same_state() -> None:
    given = {"message": "hi", "state": {"lines": ["a"]}}
    first, second = (initialize_agent_state(WHO, given, **IDS, message_id="m", now=1.0) for _ in range(2))
    assert first == second
    first.custom_state["lines"].append("b")  # type: ignore[union-attr]
    assert second.custom_state == {"lines": ["a"], "mood": "calm"} and given["state"] == {"lines": ["a"]}


def test_a_child_writes_on_its_roots_stream() -> None:
    state = create_initial_agent_state(WHO, **IDS, stream_id="ses_root", parent_session_id="ses_root")
    assert (state.stream_id, state.parent_session_id, state.messages) == ("ses_root", "ses_root", [])
    assert state.custom_state == {"lines": [], "mood": "calm"}


def test_the_next_run_goes_on_from_the_last() -> None:
    state = initialize_agent_state(WHO, "hi", **IDS, message_id="m1", now=1.0)
    with pytest.raises(AgentAlreadyRunningError):
        continue_agent_state(state, WHO, "more", run_id="run_2", message_id="m2", now=2.0)
    dangling = AssistantMessage(tool_calls=[ToolCallRequest(id="c", name="t")])
    ended = state.model_copy(
        update={"status": "failed", "step_count": 3, "output": 5, "messages": [*state.messages, dangling]}
    )
    after = continue_agent_state(
        ended, WHO, {"message": "more", "state": {"mood": "keen"}}, run_id="run_2", message_id="m2", now=2.0
    )
    assert [m.role for m in after.messages] == ["user", "assistant", "tool", "user"]
    assert (after.status, after.run_id, after.step_count, after.output) == ("running", "run_2", 3, None)
    assert after.custom_state == {"lines": [], "mood": "keen"} and len(ended.messages) == 2


@pytest.mark.parametrize("given", ["", " ", 5, {"text": "x"}, {"message": "x", "state": {"lines": 5}}])
def test_wrong_input_is_refused(given: object) -> None:
    with pytest.raises(InvalidInputError):
        initialize_agent_state(WHO, given, **IDS, message_id="m", now=1.0)  # type: ignore[arg-type]


def test_input_in_its_three_forms() -> None:
    assert parse_input(WHO, "x") == parse_input(WHO, {"message": "x"}) == parse_input(WHO, AgentInput(message="x"))
