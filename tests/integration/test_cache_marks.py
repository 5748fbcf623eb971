"""Which requests use the provider's prompt cache, and where their marks go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Dialect, DialectServer, Says
from tests.support.model_refusals import messages_refusal
from tests.support.prompt_cache_servers import CLAUDE, CONVERSE, Block, CachingServer, converse_blocks, messages_blocks
from tests.support.request_files import Stored, csv, pdf
from tests.support.responses_dialect import RESPONSES
from tests.support_litellm import request, tool

from helix import LLMConfig
from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.litellm import load_litellm
from helix.core.context_policy import Summary
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.request_heads import sent_settings
from helix.core.session_row import SessionRow
from helix.core.steps import ErrorStepResult
from helix.core.tools import FINISH_TOOL_NAME
from helix.engine.steps.summary import summary_request
from helix.ports.model import LLMGenerateInput

FINE = Says("fine", stop="end_turn")
FIRST: list[AnyMessage] = [SystemMessage(content="be brief"), UserMessage(content="hello")]
SECOND: list[AnyMessage] = [*FIRST, AssistantMessage(content="hi"), UserMessage(content="and now?")]
CALLED: list[AnyMessage] = [
    *FIRST,
    AssistantMessage(tool_calls=[ToolCallRequest(id="c1", name="add", arguments={})]),
    ToolResultMessage(tool_call_id="c1", tool_name="add", content="3"),
    UserMessage(content="Finish now."),
]


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Import litellm first. It takes seconds, for which no test's timeout is meant."""
    load_litellm()


async def body_of(dialect: Dialect, made: LLMGenerateInput) -> dict[str, Any]:
    with DialectServer(dialect, [FINE]) as server:
        options = {**dialect.options(server.origin), **made.config.provider_options}
        config = made.config.model_copy(update={"provider_options": options})
        result = await ModelAdapter().generate_step(replace(made, config=config))
        assert not isinstance(result, ErrorStepResult), result.error
        body: dict[str, Any] = server.requests[0].json
    return body


def asked(dialect: Dialect, messages: list[AnyMessage] = FIRST, adapter: str = "native", **named: Any) -> Any:
    options = named.pop("options", {})
    made = {"model": dialect.model, "adapter": adapter, **dialect.config, **named}
    return request(messages=messages, provider_options=options, **made)


def is_marked(body: dict[str, Any]) -> bool:
    return "cache_control" in str(body) or "cachePoint" in str(body) or "prompt_cache_key" in body


@pytest.mark.parametrize("adapter", ["native", "litellm"])
@pytest.mark.parametrize("dialect", [ANTHROPIC, BEDROCK, RESPONSES, OPENAI], ids=lambda dialect: dialect.name)
async def test_auto_begins_with_tools_or_with_the_second_turn(dialect: Dialect, adapter: str) -> None:
    finish = tool(FINISH_TOOL_NAME)
    found = [
        is_marked(await body_of(dialect, asked(dialect, messages, adapter, tools=tools, cache=cache)))
        for messages, tools, cache in [
            (FIRST, [], "auto"),
            (FIRST, [finish], "auto"),
            (FIRST, [tool()], "auto"),
            (SECOND, [], "auto"),
            (FIRST, [], True),
            (FIRST, [], "1h"),
            (SECOND, [tool()], False),
        ]
    ]
    assert found == [False, False, True, True, True, True, False]


async def test_auto_is_off_for_a_model_that_has_no_cache_or_an_unknown_one() -> None:
    old = asked(BEDROCK, SECOND, model="bedrock/anthropic.claude-3-opus-20240229-v1:0")
    gateway = asked(OPENAI, SECOND, model="openai/claude-sonnet-4-5")
    own = asked(OPENAI, SECOND, model="openai/glm-5")
    assert not any([is_marked(await body_of(BEDROCK, old)), is_marked(await body_of(OPENAI, gateway))])
    assert not is_marked(await body_of(OPENAI, own))


async def test_auto_leaves_the_marks_to_litellm_if_it_is_told_to_set_them() -> None:
    points = {"cache_control_injection_points": [{"location": "message", "role": "system"}]}
    body = await body_of(ANTHROPIC, asked(ANTHROPIC, SECOND, "litellm", options=points, tools=[tool()]))
    assert str(body).count("cache_control") == 1 and "cache_control" in body["system"][0]


async def test_the_option_is_the_mark_and_one_hour_lengthens_it() -> None:
    mark = {"type": "ephemeral", "ttl": "5m"}
    for cache, lifetime in (("auto", "5m"), (True, "5m"), ("1h", "1h")):
        made = asked(ANTHROPIC, options={"cache_control": mark}, tools=[tool()], cache=cache)
        blocks = messages_blocks(await body_of(ANTHROPIC, made))
        assert [block.mark for block in blocks] == [lifetime] * 3
    whole = await body_of(ANTHROPIC, asked(ANTHROPIC, options={"cache_control": mark}, cache=False))
    assert whole["cache_control"] == mark and str(whole).count("cache_control") == 1


def _marks(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks if block.mark]


@pytest.mark.parametrize("adapter", ["native", "litellm"])
@pytest.mark.parametrize(
    ("dialect", "blocks"), [(ANTHROPIC, messages_blocks), (BEDROCK, converse_blocks)], ids=["anthropic", "bedrock"]
)
async def test_the_last_mark_comes_before_what_only_this_request_says(
    dialect: Dialect, blocks: Any, adapter: str
) -> None:
    made = replace(asked(dialect, CALLED, adapter, tools=[tool("add")]), passing=1)
    *_, before, last = _marks(blocks(await body_of(dialect, made)))
    assert "hello" in before and '"c1"' in last and "Finish now." not in last
    plain = asked(dialect, CALLED, adapter, tools=[tool("add")])
    assert "Finish now." in _marks(blocks(await body_of(dialect, plain)))[-1]


@pytest.mark.parametrize("adapter", ["native", "litellm"])
@pytest.mark.parametrize("file", [pdf, csv])
async def test_a_cache_point_never_follows_a_document(file: Any, adapter: str) -> None:
    """Converse refuses it."""
    messages = [FIRST[0], UserMessage(content="Read this.", files=[file(at=10)])]
    with CachingServer(CONVERSE, lambda _: FINE) as server:
        made = asked(BEDROCK, messages, adapter, tools=[tool()], options=BEDROCK.options(server.origin))
        result = await ModelAdapter().generate_step(replace(made, files=Stored()))
    assert not isinstance(result, ErrorStepResult), result.error
    assert "cachePoint" in [next(iter(block)) for block in server.requests[0].json["messages"][0]["content"]]


async def test_the_servers_refuse_what_the_providers_refuse() -> None:
    """A fifth mark, and one that lasts longer than an earlier one."""
    marks = [{"type": "ephemeral"}] * 5, [{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}]
    for given, words in zip(marks, ("A maximum of 4 blocks", "must not come after a ttl='5m'"), strict=True):
        system = [{"type": "text", "text": "x", "cache_control": mark} for mark in given]
        with CachingServer(CLAUDE, lambda _: FINE) as server:
            options = {**ANTHROPIC.options(server.origin), "extra_body": {"system": system}}
            result = await ModelAdapter().generate_step(asked(ANTHROPIC, cache=False, options=options, max_retries=0))
        assert isinstance(result, ErrorStepResult) and not server.counts
        assert words in (messages_refusal(server.requests[0].json) or "")


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("openai/gpt-4.1", True),
        ("openai/o3", True),
        ("openai/llama-4", False),
        ("azure/gpt-5.6", True),
        ("azure/our-deployment", True),
        ("azure/mistral-large-3", False),
    ],
)
async def test_the_key_goes_to_openais_models(model: str, sent: bool) -> None:
    made = asked(OPENAI, SECOND, model=model, api="chat")
    assert ("prompt_cache_key" in await body_of(OPENAI, made)) is sent


@pytest.mark.parametrize("dialect", [OPENAI, RESPONSES], ids=["chat", "responses"])
async def test_a_key_that_is_given_is_sent(dialect: Dialect) -> None:
    body = await body_of(dialect, asked(dialect, SECOND, options={"prompt_cache_key": "mine"}))
    assert body["prompt_cache_key"] == "mine"


@pytest.mark.parametrize("adapter", ["native", "litellm"])
@pytest.mark.parametrize(("dialect", "usd"), [(ANTHROPIC, 6.0), (BEDROCK, 6.6)], ids=["anthropic", "bedrock"])
async def test_an_hour_in_the_cache_costs_twice_the_input(dialect: Dialect, usd: float, adapter: str) -> None:
    """The price is in dollars per million tokens."""
    says = Says("fine", stop="end_turn", usage=(0, 0, 1000, 40), hour=True)
    with DialectServer(dialect, [says]) as server:
        made = asked(dialect, SECOND, adapter, cache="1h", options=dialect.options(server.origin))
        result = await ModelAdapter().generate_step(made)
    assert result.usage.cost_micros == round(1000 * usd + 40 * 2.5 * usd)


def test_the_values_of_cache() -> None:
    assert [
        LLMConfig.model_validate({"model": "m", "cache": given}).cache for given in ("auto", "1h", True, False)
    ] == [
        "auto",
        "1h",
        True,
        False,
    ]
    assert LLMConfig(model="m").cache == "auto"
    with pytest.raises(ValidationError, match="cache"):
        LLMConfig.model_validate({"model": "m", "cache": "2h"})


def test_a_head_names_the_cache_unless_it_is_off() -> None:
    """Earlier releases stored only True."""
    stored = [sent_settings(LLMConfig(model="m", cache=cache)) for cache in ("auto", "1h", True, False)]
    assert stored == [{"cache": "auto"}, {"cache": "1h"}, {"cache": True}, {}]


def test_a_copy_by_an_older_release_shares_the_key_of_its_source() -> None:
    fields: dict[str, Any] = {"agent_type": "a", "stream_id": "s", "status": "completed", "version": 1}
    fields |= {"run_id": "", "turn": 0}
    old = SessionRow(session_id="copy", forked_from={"session_id": "source", "checkpoint_id": "c"}, **fields)
    new = SessionRow(session_id="next", forked_from={"session_id": "copy"}, origin=old.origin_id, **fields)
    assert (old.origin_id, new.origin_id, SessionRow(session_id="s", **fields).origin_id) == ("source", "source", "s")


def test_a_summary_reads_what_the_step_wrote_and_another_models_is_not_cached() -> None:
    own, other = (
        summary_request(asked(ANTHROPIC, CALLED), None, CALLED[1:4], Summary(upto=3, model=model), False)
        for model in (None, "anthropic/claude-haiku-4-5")
    )
    assert (own.passing, own.config.cache, other.config.cache) == (1, "auto", False)
