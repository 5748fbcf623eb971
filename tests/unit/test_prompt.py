"""The messages that the model is sent."""

from __future__ import annotations

from pydantic import BaseModel
from tests.support_run import a_tool, agent, assert_paired

from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.prompt import (
    FINISH_NUDGE,
    build_effective_tools,
    build_messages_for_llm,
    repair_pairs,
    resolve_system_prompt,
)


class Answer(BaseModel):
    text: str


def ask(*ids: str, text: str | None = None) -> AssistantMessage:
    return AssistantMessage(content=text, tool_calls=[ToolCallRequest(id=i, name="t") for i in ids])


def result(ident: str, content: str = "ok") -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=ident, tool_name="t", content=content)


USER = UserMessage(content="hi")


def test_the_system_prompt_comes_first() -> None:
    assert build_messages_for_llm([USER], "Be kind.") == [SystemMessage(content="Be kind."), USER]
    assert build_messages_for_llm([USER], lambda s: f"{s} things", 3)[0].content == "3 things"
    assert build_messages_for_llm([USER], "") == [USER]
    assert resolve_system_prompt("x", None) == "x"


def test_a_forced_finish_asks_unless_the_user_spoke_last() -> None:
    for last in (ask("a"), result("a"), AssistantMessage(content="hm")):
        history: list[AnyMessage] = [USER, ask("a"), result("a")] if last.role == "tool" else [USER, last]
        built = build_messages_for_llm(history, "p", force_finish=True)
        assert built[-1] == UserMessage(content=FINISH_NUDGE)
    assert build_messages_for_llm([USER], "p", force_finish=True)[-1] is USER


def test_history_is_not_changed() -> None:
    history: list[AnyMessage] = [USER, ask("a")]
    build_messages_for_llm(history, "p", force_finish=True)
    assert history == [USER, ask("a")]


def test_whole_pairs_are_left_alone() -> None:
    history: list[AnyMessage] = [
        USER,
        ask("a", "b"),
        result("a"),
        result("b"),
        AssistantMessage(content="done"),
        USER,
        ask("c"),
        result("c"),
    ]
    assert repair_pairs(history) == history


def test_broken_pairs_are_repaired() -> None:
    broken: list[AnyMessage] = [
        result("stray"),
        USER,
        ask("a", "b", "c"),
        result("c", "1"),
        USER,
        result("a", "2"),
        result("a", "3"),
        ask("d"),
    ]
    repaired = repair_pairs(broken)
    assert_paired(repaired)
    contents = [m.content for m in repaired if isinstance(m, ToolResultMessage)]
    assert [c if c in "123" else "missing" for c in contents] == ["2", "missing", "1", "missing"]
    assert "not_executed" in (contents[1] or "")
    assert [m.role for m in repaired] == ["user", "assistant", "tool", "tool", "tool", "user", "assistant", "tool"]


def test_tools_in_a_stable_order_finish_last() -> None:
    tools = [a_tool(name, lambda given, ctx: "") for name in ("b", "a", "c")]
    assert [t.name for t in build_effective_tools(agent(tools=tools, output_schema=Answer))] == [
        "b",
        "a",
        "c",
        "__finish__",
    ]
    assert [t.name for t in build_effective_tools(agent(tools=tools))] == ["b", "a", "c"]
