"""Each model call names its request head: the system prompt, the tools and the settings, as they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.aws_resources import fresh, make_store, make_tables, moto
from tests.support.context_talk import POLICIES, S, Talk, agent, talk
from tests.support_budgets import Prices, manager, says

from helix import (
    Agent,
    LLMConfig,
    LocalExecutor,
    MemoryStateStore,
    ScriptedModel,
    SQLiteStateStore,
    ToolContext,
    tool,
)
from helix.adapters.models.scripted import Entry
from helix.core.periods import TokenPeriod
from helix.core.prompt import FINISH_NUDGE
from helix.core.registry import AgentFactoryContext, AgentRegistry
from helix.core.request_heads import RequestHead
from helix.core.row_keys import head_sort
from helix.core.steps import AnyStepResult, ErrorStepResult, ParsedToolCall, ToolCallsStepResult
from helix.engine.engine import Settings
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Key, Operation, StateStore, Value
from helix.services.request_heads import read_head
from helix.services.segments import SegmentStreams
from helix.services.session_calls import session_calls
from helix.sessions.read import Sessions
from helix.testing.invariants import InvariantViolation, check_session


class Mood(BaseModel):
    mood: str = "calm"


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is empty"


@tool
def feel(mood: str, context: ToolContext[Mood]) -> str:
    """Change the mood."""
    return context.update_state(lambda state: setattr(state, "mood", mood)).mood


CHECKED = {"temperature", "max_output_tokens", "cache"}
SETTINGS = LLMConfig(model="scripted", temperature=0.2, max_output_tokens=700)
FIXED = Agent(name="fixed", system_prompt="You look at places.", tools=[look], llm_config=SETTINGS)
MOODY = Agent(
    name="moody",
    system_prompt=lambda state: f"You are {state.mood}.",
    state_schema=Mood,
    tools=[feel, look],
    llm_config=SETTINGS,
)


class Recorder:
    """A model that plays a script and keeps its requests."""

    def __init__(self, *script: Entry) -> None:
        self.requests: list[LLMGenerateInput] = []
        self._script = list(script)

    def __call__(self, request: LLMGenerateInput) -> Entry:
        self.requests.append(request)
        return self._script[(len(self.requests) - 1) % len(self._script)]

    def adapter(self) -> ScriptedModel:
        return ScriptedModel([self], repeat=True, record=False)


def use(name: str, **arguments: Any) -> ToolCallsStepResult:
    return ToolCallsStepResult(tool_calls=[ParsedToolCall(id=f"c_{name}", name=name, arguments=arguments)])


def sent_by(request: LLMGenerateInput) -> RequestHead:
    """Return the head of a request as the model got it."""
    first = request.messages[0]
    settings = request.config.model_dump(mode="json", include=CHECKED, exclude_none=True)
    return RequestHead.model_validate(
        {
            "system_prompt": first.content if first.role == "system" else "",
            "tools": [
                {"name": t.name, "description": t.description, "parameters": t.parameters} for t in request.tools
            ],
            "reminders": [message.content for message in request.messages[len(request.lasting) :]],
            "tool_choice": request.tool_choice,
            "output_schema": request.output_schema,
            "settings": settings,
        }
    )


async def run(executor: LocalExecutor, who: Agent[Any, Any], session_id: str = S) -> None:
    result = await (await executor.execute(who, "go", session_id=session_id)).result()
    assert result.status == "completed", result.error


async def heads_of(store: StateStore, session_id: str = S) -> list[str]:
    return [row.key.sort for row in await store.query("sessions", session_id, start="q#", end="q$")]


async def check(store: StateStore, session_id: str = S) -> None:
    await check_session(store, SegmentStreams(store), session_id, at_rest=True)


class Counting(MemoryStateStore):
    """A store that keeps the transactions of steps, and the keys of all writes and reads."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, int]] = []
        self.read: list[Key] = []
        self.put: list[Key] = []

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if name in ("put_head", "claim_step", "stage", "commit"):
            self.steps.append((name, len(operations)))
        self.put += [operation.key for operation in operations]
        await super().transact(name, operations)

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        self.read += keys
        return await super().get(keys)

    def shared(self) -> list[Key]:
        return [key for key in self._rows if key.partition.startswith("head#")]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    return MemoryStateStore() if request.param == "memory" else SQLiteStateStore(tmp_path / "helix.db")


async def test_each_step_names_what_was_sent(store: StateStore) -> None:
    model = Recorder(use("look", place="the yard"), "It is empty.")
    async with LocalExecutor(store=store, model=model.adapter()) as executor:
        await run(executor, FIXED)
        await check(store)
        for step, request in enumerate(model.requests, 1):
            found = await executor.sessions.get_context(S, step)
            assert found.request == sent_by(request)
            said = (found.system_prompt, found.model, found.output_limit)
            assert said == ("You look at places.", "scripted", None)
        following = await executor.sessions.get_context(S, agent=FIXED)
        assert (following.head, following.request, following.system_prompt) == (None, None, "You look at places.")
        heads = {call.head for call in await session_calls(store, S)}
        assert len(heads) == 1 and await heads_of(store) == []


async def test_a_fixed_head_is_stored_once_and_a_step_writes_nothing_more() -> None:
    store = Counting()
    async with LocalExecutor(store=store, model=Recorder(use("look", place="here"), "Empty.").adapter()) as executor:
        await run(executor, FIXED, "first")
        first, _ = list(store.steps), store.read.clear()
        store.steps.clear()
        await run(executor, FIXED, "second")
    assert first == [("put_head", 1), *store.steps] and len(store.shared()) == 1
    assert store.steps == [("claim_step", 1), ("stage", 3), ("claim_step", 2), ("commit", 4)]
    assert [key for key in store.read if key.partition.startswith("head#")] == []
    (ident,) = {call.head for call in await session_calls(store, "second")}
    assert 2 * len(f',"head":"{ident}"') <= 70  # in the claim, and in the answer


@pytest.mark.parametrize("who", [FIXED, MOODY], ids=["fixed", "moody"])
async def test_a_new_process_finds_the_head_of_a_session_in_its_messages(who: Agent[Any, Any]) -> None:
    store = Counting()
    for _ in range(2):
        store.read.clear()
        store.put.clear()
        async with LocalExecutor(store=store, model=Recorder("Hello.").adapter()) as executor:
            await run(executor, who)
    assert [key for key in [*store.read, *store.put] if key.sort.startswith("q#")] == []
    assert len({call.head for call in await session_calls(store, S)}) == 1


async def test_a_prompt_that_depends_on_the_state_is_stored_in_the_session(store: StateStore) -> None:
    model = Recorder(use("feel", mood="glad"), use("look", place="the yard"), "Empty.")
    async with LocalExecutor(store=store, model=model.adapter()) as executor:
        await run(executor, MOODY)
        await check(store)
        prompts = []
        for step, request in enumerate(model.requests, 1):
            found = await executor.sessions.get_context(S, step, agent=MOODY)
            assert found.request == sent_by(request)
            prompts.append(found.system_prompt)
        assert prompts == ["You are calm.", "You are glad.", "You are glad."]
        kept = await heads_of(store)
        assert len(kept) == 2  # one for each mood, and their tools are stored once for all sessions
        ident = kept[0].removeprefix("q#")
        copy = (await executor.branch(S)).session_id
        assert await heads_of(store, copy) == kept
        assert await executor.delete(S)
        assert await heads_of(store) == []
        assert await read_head(store, S, ident) is None
        again = await executor.sessions.get_context(copy, 2)
        assert again.request is not None and again.system_prompt == "You are glad."


@pytest.mark.parametrize("name", POLICIES)
async def test_the_heads_of_steps_under_views_have_the_tool_recall(name: str) -> None:
    class Told(Talk):
        def __init__(self) -> None:
            super().__init__()
            self.heads: list[RequestHead] = []

        def __call__(self, request: LLMGenerateInput) -> AnyStepResult | str | Exception:
            if request.tool_choice != "none":
                self.heads.append(sent_by(request))
            return super().__call__(request)

    said = Told()
    store = await talk(agent(POLICIES[name][0]), said, turns=40)
    found = [(await Sessions(store).get_context(S, step)).request for step in range(1, len(said.heads) + 1)]
    assert found == said.heads
    assert {len(head.tools) for head in said.heads} == {1, 2}
    written = [call for call in await session_calls(store, S) if call.outcome == "summary"]
    for call in written:
        head = await read_head(store, S, call.head)
        assert head is not None and head.tool_choice == "none" and head.settings["max_output_tokens"] == 4096
    assert bool(written) == bool(said.summaries)


async def test_a_forced_output_is_shown_with_its_request() -> None:
    class Found(BaseModel):
        place: str

    model = Recorder("I found it.", "In the yard.", use("__finish__", place="the yard"))
    who = Agent(name="finder", system_prompt="Find it.", output_schema=Found, model="scripted")
    async with LocalExecutor(store=MemoryStateStore(), model=model.adapter()) as executor:
        await run(executor, who)
        for step, request in enumerate(model.requests, 1):
            found = await executor.sessions.get_context(S, step)
            assert found.request == sent_by(request)
            assert [message.content for message in found.messages] == [m.content for m in request.messages[1:]]
    assert [request.tool_choice for request in model.requests] == ["auto", "auto", "__finish__"]
    assert [len(request.messages) - len(request.lasting) for request in model.requests] == [0, 1, 1]
    assert model.requests[1].messages[-1].content == model.requests[2].messages[-1].content == FINISH_NUDGE


async def test_an_agent_from_a_factory_keeps_its_head_in_the_session() -> None:
    registry = AgentRegistry()
    registry.register_factory(
        "greeter",
        lambda context: Agent(name="greeter", system_prompt=f"You greet {context.user_id}.", model="scripted"),
    )
    store = Counting()
    async with LocalExecutor(store=store, model=Recorder("Hello.").adapter(), registry=registry) as executor:
        who = registry.resolve("greeter", AgentFactoryContext(user_id="ann"))
        await run(executor, who)
        assert (await executor.sessions.get_context(S, 1)).system_prompt == "You greet ann."
        assert len(await heads_of(store)) == 1 and store.shared() == []


async def test_secrets_in_provider_options_are_not_stored() -> None:
    options = {
        "api_key": "sk-hidden-1",
        "extra_headers": {"x-team": "hidden-2"},
        "base_url": "https://u:hidden-3@host",
        "logit_bias": {"50256": -100},
    }
    who = Agent(name="open", system_prompt="Hi.", llm_config=LLMConfig(model="scripted", provider_options=options))
    store = MemoryStateStore()
    async with LocalExecutor(store=store, model=Recorder("Hello.").adapter()) as executor:
        await run(executor, who)
        found = await executor.sessions.get_context(S, 1)
    assert found.request is not None
    assert found.request.settings["provider_options"] == {
        "api_key": "(not stored)",
        "extra_headers": {"x-team": "(not stored)"},
        "base_url": "(not stored)",
        "logit_bias": {"50256": -100},
    }
    assert "hidden" not in str(store._rows)


async def test_a_failed_call_names_its_head() -> None:
    model = Recorder(ErrorStepResult(error="no such option", code="invalid_request"))
    async with LocalExecutor(store=MemoryStateStore(), model=model.adapter()) as executor:
        result = await (await executor.execute(FIXED, "go", session_id=S)).result()
        assert result.status == "failed"
        found = await executor.sessions.get_context(S)
        assert (found.step, found.run_id, found.request) == (1, None, sent_by(model.requests[0]))
        assert [call.head for call in await session_calls(executor.store, S)] == [found.head]


async def test_a_cancelled_call_names_its_head() -> None:
    begun = asyncio.Event()

    async def hang(request: LLMGenerateInput) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    store = MemoryStateStore()
    async with LocalExecutor(store=store, model=ScriptedModel([hang]), settings=Settings(stop_poll_s=0.01)) as executor:
        handle = await executor.execute(FIXED, "go", session_id=S)
        await begun.wait()
        await handle.abort("enough")
        await handle.result()
        (call,) = await session_calls(store, S)
        assert call.outcome == "cancelled" and (await read_head(store, S, call.head)) is not None
        await check(store)


async def test_the_limit_that_budgets_set_is_recorded() -> None:
    limits = Settings(default_output_tokens=1000)
    who = Agent(name="brief", system_prompt="Hi.", llm_config=LLMConfig(model="test/any"))
    store = MemoryStateStore()
    async with LocalExecutor(
        store=store, model=ScriptedModel([says("a", 10), says("b", 10)]), settings=limits, catalog=Prices()
    ) as executor:
        await run(executor, who, "free")
        await manager(executor).set_budget(10_000_000, TokenPeriod.TOTAL)
        await run(executor, who, "bound")
        found = [await executor.sessions.get_context(name, 1) for name in ("free", "bound")]
    assert [context.output_limit for context in found] == [None, 1000]
    assert found[0].head == found[1].head


async def test_a_row_that_names_a_missing_head_breaks_an_invariant() -> None:
    store = Counting()
    async with LocalExecutor(store=store, model=Recorder("Hello.").adapter()) as executor:
        await run(executor, FIXED)
        await check(store)
        (key,) = store.shared()
        del store._rows[key]
        with pytest.raises(InvariantViolation, match="head_stored"):
            await check(store)
        found = await executor.sessions.get_context(S, 1, agent=FIXED)
    assert found.request is None and head_sort(found.head or "") == key.sort
    assert found.system_prompt == "You look at places."


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("who", [FIXED, MOODY], ids=["fixed", "moody"])
async def test_a_head_beyond_the_size_of_a_row_is_stored_on_dynamodb(who: Agent[Any, Any]) -> None:
    """A row of DynamoDB has at most 400 KB."""
    long = "".join(f"{n:x} " for n in range(100_000))
    prompt = long if who is FIXED else lambda state: f"{state.mood} {long}"
    model = Recorder("Hello.")
    with moto() as aws:
        make_tables(aws["dynamodb"], prefix := fresh())
        store = make_store(aws["dynamodb"], aws["s3"], prefix)
        async with LocalExecutor(store=store, model=model.adapter()) as executor:
            await run(executor, replace(who, system_prompt=prompt))
            assert (await executor.sessions.get_context(S, 1)).request == sent_by(model.requests[0])
            await check(store)
