"""Estimated tokens are accurate enough to choose a model, without a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix.adapters.models.token_count import TokenCounter
from helix.core.estimating import estimate_request, estimate_text
from helix.core.json import JsonObject
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
)
from helix.core.messages import UserMessage as User
from helix.ports.model import ToolSpec

ROOT = Path(__file__).parents[2]
TEXTS = {
    "prose": (ROOT / "ARCHITECTURE.md").read_text(),
    "code": (ROOT / "layers/core/python/helix/core/planning.py").read_text(),
    "json": json.dumps([{"id": n, "name": f"user {n}", "score": n * 1.37} for n in range(300)]),
    "digits": str(3**4000),
    "chinese": "我们今天去公园散步，然后在湖边吃午饭，下午回家看书。" * 40,
    "russian": "Мы сегодня пошли гулять в парк, а потом обедали у озера и читали книги." * 40,
    "hindi": "आज हम पार्क में टहलने गए और झील के किनारे दोपहर का भोजन किया।" * 40,
    "german": "Die Donaudampfschifffahrtsgesellschaft veröffentlichte überraschend günstige Zahlen." * 40,
    "emoji": "😀👍🏽🎉" * 100,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_it_is_near_what_a_tokenizer_counts(kind: str) -> None:
    counted = TokenCounter().count(TEXTS[kind], "gpt-4")
    if counted.estimated:
        pytest.skip("there is no tokenizer to compare with")
    exact = counted.tokens
    assert 0.8 * exact <= estimate_text(TEXTS[kind]) <= 2 * exact


def test_nothing_is_nothing_and_something_something() -> None:
    assert estimate_text("") == 0
    assert all(estimate_text(text) >= 1 for text in ("a", " ", "\n", ".", "é", "\ud800"))


def test_all_of_a_request_counts() -> None:
    """Messages, their calls and results, reasoning and the tools' schemas all count."""
    plain: list[AnyMessage] = [SystemMessage(content="Help."), User(content="hi")]
    assert estimate_request([]) < estimate_request(plain)
    call = ToolCallRequest(id="1", name="look", arguments={"where": "word " * 50})
    said = AssistantMessage(content="x", tool_calls=[call], thinking=[ThinkingContent(text="word " * 50)])
    result = ToolResultMessage(tool_call_id="1", tool_name="look", content="word " * 50)
    assert estimate_request([*plain, said, result]) > estimate_request(plain) + 150
    schema: JsonObject = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20)}}
    assert estimate_request(plain, [ToolSpec("look", "Looks.", schema)]) > estimate_request(plain) + 100
