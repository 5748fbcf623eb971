"""Token counts work offline and never fail. Estimates are marked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support_run import Text

from helix import define_tool
from helix.adapters.models import token_count
from helix.adapters.models.token_count import TokenCounter
from helix.compat.token_tracker import TokenCounter as SameCounter
from helix.core.messages import AssistantMessage, SystemMessage, ToolCallRequest, ToolResultMessage, UserMessage

COUNTER = TokenCounter()


@pytest.mark.parametrize(
    ("text", "model", "tokens"),
    [
        ("", "gpt-4", 0),
        ("Hello", "gpt-4", 1),
        ("hello world", "gpt-4", 2),
        ("tiktoken is great!", "gpt-4", 6),
        ("hello world", "openai/gpt-4o", 2),
        ("お誕生日おめでとう", "gpt-4", 9),
        ("お誕生日おめでとう", "gpt-4o", 8),
    ],
)
def test_openai_models_are_counted_with_their_own_tables(text: str, model: str, tokens: int) -> None:
    """The numbers come from the tokenizer's own examples."""
    assert COUNTER.count_tokens(text, model) == tokens
    assert not COUNTER.count(text, model).estimated
    assert SameCounter is TokenCounter


def test_other_models_are_counted_near_enough_and_say_so() -> None:
    count = COUNTER.count("hello world", "anthropic/claude-sonnet-4-5")
    assert (count.tokens, count.estimated) == (2, True)
    assert COUNTER.count("hello world", "gpt-4").estimated is False


@pytest.mark.parametrize("text", ["<|endoftext|>", "half \ud83d", "x" * 300_000, "\x00", "🎉" * 5000, " " * 200_000])
def test_no_text_fails_a_count(text: str) -> None:
    assert COUNTER.count_tokens(text, "gpt-4") > 0


def test_messages_count_with_their_overheads() -> None:
    """A message adds 3 tokens, a name 1 and the reply 3."""
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "name": "ada", "content": "What is the weather?"},
    ]
    parts = ["system", "You are a helpful assistant.", "user", "ada", "What is the weather?"]
    wanted = sum(COUNTER.count_tokens(part) for part in parts) + 2 * 3 + 1 + 3
    assert COUNTER.count_messages_tokens(messages, "gpt-4") == wanted
    assert COUNTER.count_messages_tokens([], "gpt-4") == 3


def test_content_may_be_a_list_with_pictures() -> None:
    text = [{"role": "user", "content": "What is this?"}]
    parts: list[dict[str, Any]] = [{"type": "text", "text": "What is this?"}]
    plain = COUNTER.count_messages_tokens(text)
    assert COUNTER.count_messages_tokens([{"role": "user", "content": parts}]) == plain
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    assert COUNTER.count_messages_tokens([{"role": "user", "content": [*parts, picture]}]) == plain + 765
    picture["image_url"]["detail"] = "low"  # type: ignore[index]
    assert COUNTER.count_messages_tokens([{"role": "user", "content": [*parts, picture]}]) == plain + 85
    strange = [{"type": "input_audio", "input_audio": {"data": "AAAA"}}, 7, None, "text"]
    assert COUNTER.count_messages_tokens([{"role": "user", "content": strange}]) > 3


def test_tool_calls_and_schemas_count() -> None:
    bare: list[Any] = [{"role": "assistant", "content": None}]
    function = {"name": "weather", "arguments": '{"city":"Berlin"}'}
    asked = [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]}]
    more = COUNTER.count_tokens("weather") + COUNTER.count_tokens('{"city":"Berlin"}')
    assert COUNTER.count_messages_tokens(asked) == COUNTER.count_messages_tokens(bare) + more

    tool = define_tool(name="weather", description="Tells it.", input_schema=Text, execute=lambda a, c: "")
    spec = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": {}}}
    for told in (tool, spec):
        assert COUNTER.count_messages_tokens([], tools=[told]) > 3 + 8 + COUNTER.count_tokens("Tells it.")


def test_our_messages_count_as_mappings_do() -> None:
    ours = [
        SystemMessage(content="Be brief."),
        UserMessage(content="Go."),
        AssistantMessage(content="I look.", tool_calls=[ToolCallRequest(id="1", name="look", arguments={"n": 1})]),
        ToolResultMessage(tool_call_id="1", tool_name="look", content="found"),
    ]
    call = {"id": "1", "function": {"name": "look", "arguments": '{"n":1}'}}
    theirs: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "name": "look", "content": "found"},
    ]
    assert COUNTER.count_messages_tokens(ours) == COUNTER.count_messages_tokens(theirs) - 1, (
        "a tool's name does not count as a name"
    )


# --- tables -----------------------------------------------------------------------------------------------------------

OFFLINE = """
import socket, sys
def refuse(*a, **k): raise OSError("the network was asked")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
from helix.adapters.models.token_count import TokenCounter
count = TokenCounter().count("hello world", "gpt-4o")
print(count.tokens, count.estimated, "litellm" in sys.modules)
"""


def counted_in(environment: dict[str, str]) -> str:
    told = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, env=told)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_fresh_process_counts_offline_and_without_litellm() -> None:
    assert counted_in({}) == "2 False False"


def test_a_damaged_table_is_passed_over_and_left_alone(tmp_path: Path) -> None:
    """tiktoken itself would remove the file and download it again."""
    for file, _ in token_count._TABLES.values():
        (tmp_path / file).write_bytes(b"damaged")
    assert counted_in({"TIKTOKEN_CACHE_DIR": str(tmp_path)}) == "2 False False"
    assert all((tmp_path / file).read_bytes() == b"damaged" for file, _ in token_count._TABLES.values())


def test_without_any_table_it_estimates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_count, "_folders", lambda: [tmp_path])
    token_count._load.cache_clear()
    try:
        count = COUNTER.count("The quick brown fox jumps over the lazy dog.", "gpt-4")
        assert count.estimated and 8 <= count.tokens <= 20
        assert COUNTER.count_messages_tokens([{"role": "user", "content": "hi"}], "gpt-4") > 3
    finally:
        token_count._load.cache_clear()


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    token_count._load.cache_clear()
    assert COUNTER.count_tokens("hello world", "gpt-4") == 2
    assert os.environ["TIKTOKEN_CACHE_DIR"] == str(tmp_path) and not list(tmp_path.iterdir())
    token_count._load.cache_clear()
