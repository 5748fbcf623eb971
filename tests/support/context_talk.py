"""Conversations that outgrow their model's window, for tests of views."""

from collections.abc import Sequence
from typing import Any

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, tool
from helix.core.context_policy import Context, KeepLast
from helix.core.estimating import estimate_request
from helix.core.messages import AnyMessage, UserMessage
from helix.core.steps import AnyStepResult, ErrorStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput
from helix.services.segments import SegmentStreams
from helix.sessions.read import Sessions
from helix.testing.invariants import check_session

S = "ses"
WINDOW = 20_000
BODY = "lorem ipsum dolor sit amet " * 110
SUMMARY = "The user asked for rows, and many were looked up."


@tool
def lookup(row: int) -> str:
    """Look a row up."""
    return f"row {row}: {BODY}"


def used(tokens: int) -> Usage:
    return Usage(prompt_tokens=tokens, completion_tokens=10, calls=1)


class Talk:
    """A model that looks one row up in each turn, and records the prompts it was sent."""

    def __init__(self, summary: AnyStepResult | str | Exception = SUMMARY, **refused: int) -> None:
        self.prompts: list[list[AnyMessage]] = []
        self.sizes: list[int] = []
        self.summaries = 0
        self.tools: list[list[str]] = []
        self._summary = summary
        self._limit = refused.get("limit")

    def __call__(self, request: LLMGenerateInput) -> AnyStepResult | str | Exception:
        size = estimate_request(request.messages, request.tools)
        self.prompts.append(list(request.messages))
        self.sizes.append(size)
        self.tools.append([spec.name for spec in request.tools])
        if self._limit is not None and size > self._limit:
            return ErrorStepResult(error="prompt is too long", code="context_too_long", usage=used(size))
        if request.tool_choice == "none":
            self.summaries += 1
            return (
                self._summary
                if not isinstance(self._summary, str)
                else TextStepResult(content=SUMMARY, usage=used(size))
            )
        if isinstance(request.messages[-1], UserMessage):
            return self.calls("lookup", row=len(self.prompts))
        return TextStepResult(content="done", usage=used(size))

    def calls(self, name: str, **arguments: Any) -> ToolCallsStepResult:
        ident = f"call_{len(self.prompts)}"
        return ToolCallsStepResult(
            tool_calls=[ParsedToolCall(id=ident, name=name, arguments=arguments)], usage=used(self.sizes[-1])
        )

    def adapter(self) -> ScriptedModel:
        return ScriptedModel([self], repeat=True, record=False)


def agent(context: Context, **more: Any) -> Agent:
    fields = {"tools": [lookup], **more}
    return Agent(name="desk", system_prompt="Help.", llm_config=LLMConfig(model="scripted"), context=context, **fields)


async def talk(desk: Agent, said: Talk, turns: int, store: MemoryStateStore | None = None) -> MemoryStateStore:
    store = store or MemoryStateStore()
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        for turn in range(turns):
            result = await (await executor.execute(desk, f"question {turn}", session_id=S)).result()
            assert result.status == "completed", result.error
    return store


async def check(store: MemoryStateStore, session_id: str = S) -> None:
    await check_session(store, SegmentStreams(store), session_id, at_rest=True)


async def history(store: MemoryStateStore) -> Sequence[AnyMessage]:
    state = await Sessions(store).load(S)
    assert state is not None
    return (await Sessions(store).get_messages(S, limit=1000)).messages


POLICIES: dict[str, tuple[Context, float]] = {
    "cleared": (Context(window=WINDOW), 0.62),
    "summarised": (Context(window=WINDOW, clear_at=None, summariser="same"), 0.82),
    "cleared, then summarised": (Context(window=5_000, summariser="same"), 0.9 * 5_000 / WINDOW),
    "summarised where it would overflow": (Context(window=WINDOW, clear_at=None), 1.0),
    "the last ten": (Context(policies=[KeepLast(10)]), 0.4),
}
