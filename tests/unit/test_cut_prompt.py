"""The prompt after an answer that an interrupt cut off: every provider takes it, and it does not depend on the time."""

from __future__ import annotations

from typing import Any

import pytest

from helix import Agent, DefinitionError
from helix.adapters.models.turns import turns
from helix.core.messages import AnyMessage, AssistantMessage, UserMessage
from helix.core.prompt import GO_ON, STOPPED, build_messages_for_llm
from helix.core.steps import StopReason
from helix.core.view_row import ViewRow
from helix.core.views import show_history

GO = UserMessage(id="msg_0_0", content="go")
CUT = AssistantMessage(id="msg_0_1", content="half", metadata={"stop_reason": StopReason.INTERRUPTED.value})
NEXT = UserMessage(id="msg_0_2", content="next")
REST = AssistantMessage(id="msg_0_2", content="rest", metadata={"stop_reason": "end_turn"})


def contents(messages: list[AnyMessage], **options: Any) -> list[str | None]:
    return [message.content for message in build_messages_for_llm(messages, "", **options)]


@pytest.mark.parametrize("paired", [True, False])
def test_the_note_says_whether_the_user_spoke_or_the_run_went_on(paired: bool) -> None:
    assert contents([GO, CUT, NEXT], paired=paired) == ["go", "half", STOPPED, "next"]
    assert contents([GO, CUT], paired=paired) == ["go", "half", GO_ON]
    assert contents([GO, CUT, REST], paired=paired) == ["go", "half", GO_ON, "rest"], (
        "as it was when the rest was asked for"
    )


def test_a_view_hides_the_note_with_its_answer() -> None:
    view = ViewRow(run_id="r", step=2, attempt=1, count=3, hidden=2, cleared=2, cause="policy", tokens=1, created_at=0)
    assert [m.content for m in build_messages_for_llm(show_history(view, [GO, CUT, NEXT]), "", paired=True)][1:] == [
        "next"
    ]


@pytest.mark.parametrize("messages", [[GO, CUT, NEXT], [GO, CUT], [GO, CUT, REST, NEXT]])
def test_turns_alternate_and_a_user_has_the_last_word(messages: list[AnyMessage]) -> None:
    def text(content: str) -> dict[str, Any]:
        return {"text": content}

    _, made = turns(
        build_messages_for_llm(messages, "", paired=True),
        text=text,
        content=lambda message: [text(message.content)],
        answer=lambda message: [text(message.content or "")],
        result=lambda message: text(message.content),
    )
    roles = [turn["role"] for turn in made]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


def test_the_setting_is_true_or_false() -> None:
    with pytest.raises(DefinitionError, match="keep_partial: must be True or False"):
        Agent(name="a", system_prompt="x", model="scripted", keep_partial="yes")  # type: ignore[arg-type]
