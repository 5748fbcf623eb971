"""Messages: their union, type guards and helpers."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from helix.core.entries import AssistantRow, CallRow, UserRow, entry_value, message_of, parse_entry
from helix.core.errors import DamagedRowError
from helix.core.files import FilePart
from helix.core.json import dumps
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    Message,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
    get_tool_results_from_messages,
    is_assistant_message,
    is_tool_result_message,
    strip_thinking,
)
from helix.core.run_row import RunRow

ADAPTER: TypeAdapter[AnyMessage] = TypeAdapter(Message)
CONVERSATION: list[AnyMessage] = [
    SystemMessage(content="s"),
    UserMessage(content="u", id="m1", metadata={"a": 1}),
    AssistantMessage(
        content=None,
        tool_calls=[ToolCallRequest(id="c", name="t", arguments={"x": 1})],
        thinking=[ThinkingContent(text="hm", signature="sig"), ThinkingContent(redacted="r")],
    ),
    ToolResultMessage(tool_call_id="c", tool_name="t", content="ok"),
]


@pytest.mark.parametrize("message", CONVERSATION)
def test_the_union_is_told_apart_by_role(message: AnyMessage) -> None:
    assert ADAPTER.validate_json(ADAPTER.dump_json(message)) == message


def test_unknown_fields_and_roles_are_errors() -> None:
    for wrong in (
        {"role": "user", "content": "x", "contant": "y"},
        {"role": "robot", "content": "x"},
        {"content": "x"},
    ):
        with pytest.raises(ValidationError):
            ADAPTER.validate_python(wrong)


def test_guards() -> None:
    assert [is_assistant_message(m) for m in CONVERSATION] == [False, False, True, False]
    assert [is_tool_result_message(m) for m in CONVERSATION] == [False, False, False, True]


def test_strip_thinking_keeps_the_message() -> None:
    only_thought = AssistantMessage(thinking=[ThinkingContent(text="hm")])
    stripped = strip_thinking([*CONVERSATION, only_thought])
    assert len(stripped) == 5 and stripped[4] == AssistantMessage()
    assert stripped[2].tool_calls and not stripped[2].thinking  # type: ignore[union-attr]
    assert only_thought.thinking and CONVERSATION[2].thinking  # type: ignore[union-attr]


def test_results_by_call_id_in_order() -> None:
    second = ToolResultMessage(tool_call_id="b", tool_name="t", content="2")
    assert list(get_tool_results_from_messages([*CONVERSATION, second]).items()) == [
        ("c", CONVERSATION[3]),
        ("b", second),
    ]


def test_rows_become_messages_with_ids_of_their_place() -> None:
    rows: list[Any] = [
        UserRow(content="hi", run_id="r", created_at=1.0, metadata={"a": 1}),
        AssistantRow(run_id="r", step=1, attempt=1, attempt_id="a", content="x", stop_reason="tool_use", model="m"),
        CallRow(call_id="c", tool_name="t", step=1, state="done", content="ok", success=True, run_id="r", ended_at=2.0),
    ]
    messages = [message_of(row, 2, index) for index, row in enumerate(rows)]
    assert [m.id for m in messages] == ["msg_2_0", "msg_2_1", "msg_2_2"]
    assert [m.role for m in messages] == ["user", "assistant", "tool"]
    assert messages[1].metadata == {"model": "m", "stop_reason": "tool_use"}
    assert [m.run_id for m in messages] == ["r"] * 3 and messages[2].created_at == 2.0
    assert [parse_entry("s", "m", entry_value(row)) for row in rows] == rows


def test_rows_leave_out_their_defaults() -> None:
    row = CallRow(call_id="c", tool_name="t", step=1, state="claimed")
    assert entry_value(row) == {"kind": "call", "call_id": "c", "tool_name": "t", "step": 1, "state": "claimed"}
    assert CallRow.model_validate({**entry_value(row), "from_a_newer_version": 1}) == row


HASH = "ab" * 31 + "f0"
STORED = [
    FilePart(kind="image", media_type="image/png", sha256=HASH, size=9, name="a.png", width=4, height=3, after_text=7),
    FilePart(kind="document", media_type="application/pdf", sha256=HASH, size=9, pages=2),
    FilePart(kind="audio", media_type="audio/wav", sha256=HASH, name=""),
    FilePart(kind="file", media_type="image/x-odd", sha256=HASH),
    FilePart(kind="image", media_type="image/png", url="https://example.com/a.png", name="a.png"),
]


def run_with(files: list[FilePart]) -> RunRow:
    given = {"message": "hi", "files": [file.model_dump(mode="json", exclude_defaults=True) for file in files]}
    run_id = "run_000001_01KA8ZQ3V6B4D5F7G9H1J2K3M8"
    start = {"turn": 1, "status": "running", "mode": "start", "agent_type": "a", "first_step": 1, "started_at": 1.0}
    return RunRow.model_validate({"session_id": "s", "run_id": run_id, "input": given, **start})


def test_rows_have_files_in_a_short_form_and_read_the_long_one() -> None:
    user = UserRow(content="hi", run_id="r", created_at=1.0, files=STORED)
    call = CallRow(call_id="c", tool_name="t", step=1, state="done", content="ok", files=STORED)
    for row in (user, call):
        value = entry_value(row)
        assert [type(file) for file in value["files"]] == [list] * 4 + [dict] and parse_entry("s", "m", value) == row
        long = {**value, "files": [file.model_dump(mode="json", exclude_defaults=True) for file in STORED]}
        assert parse_entry("s", "m", long) == row
    run = run_with(STORED)
    value = run.dump()
    assert value["input"]["files"] == entry_value(user)["files"]
    assert RunRow.at("s", f"r#{run.run_id}", value) == run and run.input != value["input"]
    assert entry_value(user)["files"][0] == [
        "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq_A",
        "png",
        0,
        9,
        "a.png",
        7,
        4,
        3,
    ]


def test_rows_with_forty_photos_stay_below_4_kb() -> None:
    photo = {"kind": "image", "media_type": "image/jpeg", "size": 2_345_678, "width": 4032, "height": 3024}
    files = [FilePart(**photo, sha256=HASH, name=f"IMG_20{n}.jpg", after_text=24) for n in range(10, 50)]
    user = UserRow(content="What is on these photos?", run_id=run_with([]).run_id, created_at=1.5, files=files)
    for value in (entry_value(user), run_with(files).dump()):
        assert len(dumps(value)) < 4096


@pytest.mark.parametrize(
    "short",
    [[], [HASH], ["?" * 43, "png", 0], ["qqo", "png", 0], [7, "png", 0], ["q" * 43, "png", 4], ["q" * 43, "", 0, "x"]],
)
def test_a_file_in_a_damaged_short_form_is_a_damaged_row(short: list[Any]) -> None:
    value = {"kind": "user", "content": "hi", "run_id": "r", "created_at": 1.0, "files": [short]}
    with pytest.raises(DamagedRowError):
        parse_entry("s", "m#000000#00000000", value)
