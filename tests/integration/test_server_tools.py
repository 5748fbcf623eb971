"""The provider's own tools: what is sent, streamed, stored, sent back and priced. The servers behave and refuse as
Anthropic and OpenAI document."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.server_tools import BLOCKS, CITED, QUOTE, RESULT, SAID, TITLE, URL, USE, SearchingServer
from tests.support_litellm import request
from tests.support_run import of_type, play, result_of, types

from helix import (
    Agent,
    Allow,
    CodeExecution,
    FileSearch,
    Guard,
    GuardContext,
    LLMConfig,
    LocalExecutor,
    MemoryStateStore,
    RemoteMcp,
    Replace,
    WebSearch,
)
from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.anthropic_blocks import answer_blocks
from helix.adapters.models.server_tool_forms import server_tool_form
from helix.core.messages import AssistantMessage, Citation, ServerBlock, ServerCall, UserMessage
from helix.core.prompt import request_end
from helix.core.server_tools import with_known_blocks
from helix.core.usage import Usage
from helix.engine.money.bounds import bounded
from helix.http.messages import _from_history, agui_conversation
from helix.stream.agui import AgUiEncoder
from helix.stream.ui_calls import ui_source
from helix.stream.ui_fold import UIMessageFold
from helix.stream.ui_messages import UIMessageEncoder

MODELS = ["anthropic/claude-sonnet-4-5", "openai/gpt-5-mini"]


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """Import the packages before a test measures its time."""
    for model in MODELS:
        ModelAdapter().prepare(LLMConfig(model=model))


def searcher(server: SearchingServer, model: str, *tools: Any, guards: Any = (), **config: Any) -> Agent[Any, Any]:
    options = {"api_key": "test", "api_base": f"{server.origin}/v1"}
    if model.startswith("openai/"):
        config["api"] = "responses"  # a base URL names a server that may not have it
    settings = LLMConfig(model=model, provider_options=options, server_tools=[*tools], **config)
    return Agent(name="searcher", system_prompt="Look things up.", llm_config=settings, guards=guards)


@pytest.mark.parametrize("model", MODELS)
async def test_a_search_is_streamed_stored_and_sent_back(model: str) -> None:
    async with SearchingServer() as server, LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
        who = searcher(server, model, WebSearch())
        handle, result, chunks = await play(executor, who, "How long does a kettle take?")
        assert result.text == SAID
        assert types(chunks, but=("text_delta", "thinking"))[-3:-1] == ["citation", "step_committed"]
        calls = of_type(chunks, "server_tool")
        assert (calls[-1].tool_name, calls[-1].done, calls[-1].error) == ("web_search", True, None)
        assert calls[-1].arguments["query"] == "kettle"
        assert URL in str(calls[-1].result) and "encrypted" not in str(calls[-1].result)
        (cited,) = of_type(chunks, "citation")
        assert (cited.start, cited.end, cited.url, cited.title) == (*CITED, URL, TITLE)
        (stored,) = [
            message
            for message in (await executor.sessions.get_messages(handle.session_id)).messages
            if isinstance(message, AssistantMessage)
        ]
        assert stored.content == SAID
        assert [citation.url for citation in stored.citations] == [URL]
        assert stored.content[slice(*CITED)] == "It takes four minutes."
        again = await result_of(await executor.execute(who, "Sure?", session_id=handle.session_id))
        assert (again.status, again.text) == ("completed", "No."), again.error
        (tool,) = server.bodies[0]["tools"]
        assert tool["type"].startswith("web_search")


async def test_claude_gets_its_blocks_back_in_order() -> None:
    """Otherwise it refuses the request: its server compares them."""
    async with SearchingServer() as server, LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
        who = searcher(server, MODELS[0], WebSearch())
        handle, _, chunks = await play(executor, who)
        assert of_type(chunks, "citation")[0].quote == QUOTE
        await result_of(await executor.execute(who, "Sure?", session_id=handle.session_id))
        sent = [m["content"] for m in server.bodies[1]["messages"] if m["role"] == "assistant"]
        assert sent == [BLOCKS]


def test_a_mark_for_the_cache_stays_out_of_the_stored_item() -> None:
    message = AssistantMessage(server_blocks=[ServerBlock(raw=RESULT)])
    (block,) = answer_blocks(message)
    block["cache_control"] = {"type": "ephemeral"}
    assert answer_blocks(message) == [RESULT]


async def test_another_model_gets_the_text_alone() -> None:
    async with SearchingServer() as server, LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
        handle, _, _ = await play(executor, searcher(server, MODELS[0], WebSearch()))
        async with SearchingServer() as other:
            other.requests.append(server.requests[0])  # as if it had searched: it compares nothing of another model
            who = searcher(other, MODELS[1])
            other._problem = lambda request: ""  # type: ignore[method-assign]
            await result_of(await executor.execute(who, "Sure?", session_id=handle.session_id))
            answers = [item for item in other.bodies[1]["input"] if item.get("role") == "assistant"]
            assert answers == [{"role": "assistant", "content": SAID}]
            assert "web_search" not in str(other.bodies[1])


@pytest.mark.parametrize(("model", "tokens"), [(MODELS[0], 100 * 3 + 20 * 15), (MODELS[1], 65)])
async def test_a_search_costs_a_cent(model: str, tokens: float) -> None:
    async with SearchingServer() as server, LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
        _, result, _ = await play(executor, searcher(server, model, WebSearch()))
        assert result.usage.cost_micros == round(10_000 + tokens)


def test_each_provider_has_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCS_TOKEN", "secret")
    docs = RemoteMcp(name="docs", url="https://mcp.example/sse", allowed_tools=["find"], token_env="DOCS_TOKEN")
    search = WebSearch(allowed_domains=["example.com"], country="CH")
    claude = server_tool_form([search, CodeExecution(), docs], "messages")
    place = {"type": "approximate", "country": "CH"}
    assert claude.tools == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "allowed_domains": ["example.com"],
            "user_location": place,
        },
        {"type": "code_execution_20250825", "name": "code_execution"},
        {
            "type": "mcp_toolset",
            "mcp_server_name": "docs",
            "default_config": {"enabled": False},
            "configs": {"find": {"enabled": True}},
        },
    ]
    server = {"type": "url", "url": "https://mcp.example/sse", "name": "docs", "authorization_token": "secret"}
    assert claude.servers == [server]
    assert claude.betas == ["code-execution-2025-08-25", "mcp-client-2025-11-20"]
    openai = server_tool_form([search, CodeExecution(), docs, FileSearch(stores=["vs_1"])], "responses")
    assert openai.tools == [
        {"type": "web_search", "filters": {"allowed_domains": ["example.com"]}, "user_location": place},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {
            "type": "mcp",
            "server_label": "docs",
            "server_url": "https://mcp.example/sse",
            "require_approval": "never",
            "allowed_tools": ["find"],
            "authorization": "secret",
        },
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
    ]


@pytest.mark.parametrize(
    ("model", "tool", "names"),
    [
        (MODELS[0], FileSearch(stores=["vs_1"]), "file_search"),
        (MODELS[1], WebSearch(max_uses=2), "max_uses"),
        (MODELS[1], RemoteMcp(name="docs", url="https://mcp.example", token_env="NO_SUCH_TOKEN"), "NO_SUCH_TOKEN"),
        ("bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", WebSearch(), "web_search"),
        ("mistral/mistral-large-latest", CodeExecution(), "code_execution"),
    ],
)
async def test_what_a_provider_lacks_is_refused_by_name(model: str, tool: Any, names: str) -> None:
    async with SearchingServer() as server, LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
        _, result, _ = await play(executor, searcher(server, model, tool))
        assert result.status == "failed" and result.error is not None
        assert names in result.error and "server_tools" in result.error
        assert (result.error_code, result.usage) == ("invalid_definition", Usage()), "nothing was sent, so it is free"
        assert server.requests == []


def test_a_list_of_domains_is_allowed_or_blocked() -> None:
    with pytest.raises(ValidationError, match="not both"):
        WebSearch(allowed_domains=["a.example"], blocked_domains=["b.example"])


def test_tools_in_provider_options_are_refused_with_advice() -> None:
    with pytest.raises(ValidationError, match="server_tools"):
        LLMConfig(model=MODELS[0], provider_options={"tools": [{"type": "web_search_20250305"}]})


def test_a_budget_reserves_the_fees_and_what_a_search_may_find() -> None:
    plain, estimates = reserved(), [reserved(WebSearch(max_uses=3)), reserved(WebSearch(), CodeExecution())]
    assert [one.fees_micros for one in (plain, *estimates)] == [0, 75_000, 280_000]
    assert plain.prompt < 1000 and estimates[0].prompt >= 200_000
    priciest = estimates[0].prompt * estimates[0].input_micros + estimates[0].output * estimates[0].output_micros
    assert estimates[0].worst.micros == ceil((priciest + 75_000) * estimates[0].percent / 100)


def reserved(*tools: Any) -> Any:
    engine = LocalExecutor(MemoryStateStore(), model=ModelAdapter()).engine
    given = request([UserMessage(content="Hi.")], model=MODELS[0], server_tools=[*tools])
    return bounded(engine, given)[1]


async def test_pages_of_the_ai_sdk_show_the_same_live_and_after_a_reload() -> None:
    async with SearchingServer() as server, LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
        handle, _, _ = await play(executor, searcher(server, MODELS[0], WebSearch()))
        stream = await executor.streams.read((await executor.sessions.get(handle.session_id)).stream_id, 0, 1000)
        encoder, fold = UIMessageEncoder(handle.session_id), UIMessageFold()
        for message in stream:
            fold.feed(encoder.feed(message))
        fold.feed(encoder.close())
        assert fold.message is not None
        history = (await executor.sessions.get_messages(handle.session_id)).messages
        stored: Any = _from_history(handle.session_id, history, "")[-1]["parts"]
        live = [shown(part) for part in fold.message["parts"]]  # type: ignore[union-attr]
        assert live == [shown(part) for part in stored]
        kinds = [part["type"] for part in stored]
        assert kinds == ["step-start", "reasoning", "dynamic-tool", "text", "source-url"]
        tool = stored[2]
        assert tool["providerExecuted"] is True and tool["input"] == {"query": "kettle"}


def shown(part: Any) -> Any:
    """The part without the ids, which a page does not show, and without what differs after a reload: a live answer may be
    several parts of text."""
    return {
        name: value for name, value in part.items() if name not in ("id", "toolCallId", "state", "providerMetadata")
    }


async def test_a_withheld_text_loses_its_sources() -> None:
    def no_kettles(value: Any, context: GuardContext) -> Replace | Allow:
        return Replace("It takes a while.") if "four minutes" in str(value) else Allow()

    async with SearchingServer() as server, LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
        who = searcher(server, MODELS[0], WebSearch(), guards=[Guard(name="times", output=no_kettles)])
        handle, result, _ = await play(executor, who)
        assert result.text == "It takes a while."
        answer = (await executor.sessions.get_messages(handle.session_id)).messages[-1]
        assert isinstance(answer, AssistantMessage)
        assert (answer.citations, answer.server_blocks) == ([], [])


def test_items_go_back_only_with_their_tool_and_their_result() -> None:
    """Without its beta header or its result, Claude refuses the whole request."""
    begun = ServerCall(id="srvtoolu_1", name="web_search")
    use = ServerBlock(raw=USE, call=begun)
    ended = ServerBlock(raw=RESULT, call=begun.model_copy(update={"done": True}))
    cited = [Citation(start=0, end=1, url=URL, raw={"encrypted_index": "x"})]
    answer = AssistantMessage(content="Yes.", server_blocks=[use, ended], citations=cited)
    assert with_known_blocks(answer, [WebSearch()], last=False) is answer
    other = with_known_blocks(answer, [CodeExecution()], last=False)
    assert (other.server_blocks, [one.raw for one in other.citations]) == ([], [{}])
    paused = answer.model_copy(update={"server_blocks": [use]})
    assert with_known_blocks(paused, [WebSearch()], last=True) is paused
    assert with_known_blocks(paused, [WebSearch()], last=False).server_blocks == []
    assert request_end([paused], "It is late.", finish=True) == []
    assert [message.content for message in request_end([answer], "It is late.", finish=False)] == ["It is late."]


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", None])
def test_only_addresses_of_the_web_become_links_of_a_page(url: str | None) -> None:
    part = ui_source(1, 1, Citation(start=0, end=1, url=url))
    assert part["type"] == "source-document" and "url" not in part


async def test_an_ag_ui_page_shows_a_search_after_a_reload_as_it_did_live() -> None:
    async with SearchingServer() as server, LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
        handle, _, _ = await play(executor, searcher(server, MODELS[0], WebSearch()))
        session = await executor.engine.history.existing(handle.session_id)
        stream = await executor.streams.read(session.stream_id, 0, 1000)
        encoder = AgUiEncoder(handle.session_id)
        for message in stream:
            encoder.feed(message)
        stored: Any = await agui_conversation(executor, session)
        calls = [[call["id"] for call in m.get("toolCalls", [])] for m in stored if m["role"] == "assistant"]
        results = [m["toolCallId"] for m in stored if m["role"] == "tool"]
        assert calls == [["1/1/srvtoolu_1"]] and results == ["1/1/srvtoolu_1"]
        live = [m for m in encoder.messages if m["role"] in ("assistant", "tool")]
        assert [m["id"] for m in stored if m["role"] in ("assistant", "tool")] == [m["id"] for m in live]
