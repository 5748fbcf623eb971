"""When a provider's cache counts as lost, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helix.core.lost_caches import WORDS, Asked, LostCache, describe_loss, find_reason, lost_tokens, may_be_lost
from helix.core.request_heads import HeadTool, RequestHead
from helix.core.usage import Usage


def usage(prompt: int, cached: int = 0, written: int = 0, calls: int = 1) -> Usage:
    return Usage(prompt_tokens=prompt, cached_tokens=cached, written_tokens=written, calls=calls)


WROTE = usage(30_000, written=30_000)


@pytest.mark.parametrize(
    ("before", "now", "lost"),
    [
        (WROTE, usage(31_000), 30_000),
        (WROTE, usage(31_000, cached=30_000), 0),
        (WROTE, usage(31_000, cached=28_000), 0),  # 2,000 are not more than 2,000
        (WROTE, usage(31_000, cached=27_999), 2_001),
        (usage(90_000, written=90_000), usage(91_000, cached=85_500), 0),  # 4,500 are 5 %
        (usage(90_000, written=90_000), usage(91_000, cached=85_499), 4_501),
        (usage(30_000, cached=20_000, written=10_000), usage(31_000), 30_000),
        (usage(30_000, cached=20_000), usage(31_000, cached=0), 20_000),  # the provider reports no writes
        (usage(30_000), usage(31_000), 0),  # nothing was expected
        (Usage(), usage(31_000), 0),
        (WROTE, usage(9_000), 9_000),  # a shorter prompt cannot read more than it has
        (usage(1_900, written=1_900), usage(3_000), 0),
        # The first try wrote the prompt and failed, the second read it.
        (usage(60_000, cached=30_000, written=30_000, calls=2), usage(31_000, cached=30_000), 0),
        (usage(60_000, cached=30_000, written=30_000, calls=2), usage(31_000), 30_000),
        (WROTE, usage(62_000, cached=30_000, calls=2), 0),
        (WROTE, usage(62_000, calls=2), 30_000),
    ],
)
def test_a_cache_is_lost_if_more_is_missing_than_providers_round_away(before: Usage, now: Usage, lost: int) -> None:
    assert lost_tokens(before, now) == lost
    assert may_be_lost(now) or not lost, "what is lost must be looked for"


HEAD = RequestHead(system_prompt="You help.", tools=[HeadTool(name="look")])
BEFORE = Asked("m", HEAD, 0, False, 1_000.0)
NOW = replace(BEFORE, at=1_060.0)


def head(**changes: Any) -> RequestHead:
    return HEAD.model_copy(update=changes)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (NOW, "provider"),
        (replace(NOW, model="other", head=head(tools=[])), "model"),
        (replace(NOW, head=head(tools=[], system_prompt="Other.")), "tools"),
        (replace(NOW, head=head(output_schema={"type": "object"})), "tools"),
        (replace(NOW, head=head(system_prompt="Other."), view=7), "system_prompt"),
        (replace(NOW, head=head(tool_choice="__finish__")), "settings"),
        (replace(NOW, head=head(settings={"reasoning": "high"})), "settings"),
        (replace(NOW, head=head(settings={"temperature": 0.5, "max_output_tokens": 9})), "provider"),
        (replace(NOW, view=7, at=9_999.0), "history"),
        (replace(NOW, without_reasoning=True), "history"),
        (replace(NOW, at=1_300.0), "provider"),
        (replace(NOW, at=1_300.1), "expired"),
        (replace(NOW, head=None), "provider"),
    ],
)
def test_the_reason_is_the_first_difference_in_the_order_of_the_prompt(now: Asked, reason: LostCache) -> None:
    assert find_reason(BEFORE, now) == reason


@pytest.mark.parametrize(
    "settings",
    [{"cache": "1h"}, {"cache": True, "provider_options": {"cache_control": {"type": "ephemeral", "ttl": "1h"}}}],
)
def test_a_cache_for_an_hour_expires_after_an_hour(settings: Any) -> None:
    before = replace(BEFORE, head=head(settings=settings))
    assert find_reason(before, replace(before, at=1_000 + 3_600)) == "provider"
    assert find_reason(before, replace(before, at=1_000 + 3_601)) == "expired"


def test_each_reason_has_words() -> None:
    lost = Usage(lost_tokens=12_345)
    for reason, words in WORDS.items():
        assert describe_loss(reason, lost) == f"lost 12,345 tokens of the provider's cache: {words}"
    assert describe_loss(None, lost) == ""
    assert describe_loss("of a later version", lost).endswith(": of a later version")
