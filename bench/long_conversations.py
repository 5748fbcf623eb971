"""Measure a conversation of 300 turns, each with a tool result of 3 KB, under each context policy.

    python bench/long_conversations.py [turns]    prints the table; 300 turns save it to bench/results/long_conversations.md

The model is scripted and has a window of 60,000 tokens. `cacheable` is the share of the tokens sent that stand at the
beginning of the prompt before, which a provider's prompt cache can hold. KB are those of the rows of a turn's transactions.
Milliseconds are those of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, tool
from helix.core.context_policy import Context, KeepLast
from helix.core.estimating import estimate_request
from helix.core.json import dumps
from helix.core.messages import AnyMessage
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Operation, Put, Update

TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
WINDOW = 60_000
RESULT = "Order 4711 was shipped on Monday, and its invoice was paid. " * 50
SUMMARY = "The user asks about one order after the other. All of them were shipped, and their invoices were paid."
POLICIES = {
    "the whole history": (Context(window=10**9), None),
    "`Context()`: results are cleared": (Context(window=WINDOW), 0.6),
    '`summariser="same"`, `clear_at=None`': (Context(window=WINDOW, clear_at=None, summariser="same"), 0.8),
    '`summariser="same"`': (Context(window=WINDOW, summariser="same"), 0.8),
    "`policies=[KeepLast(20)]`": (Context(policies=[KeepLast(20)]), None),
}


@tool
def order(number: int) -> str:
    """Look an order up."""
    return f"{number}: {RESULT}"


class CountingStore(MemoryStateStore):
    """A store that counts the bytes that are written to the sessions table."""

    written = 0

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if operation.key.table == "sessions" and isinstance(operation, Put):
                self.written += len(dumps(operation.value)) + len(operation.key.sort)
            elif operation.key.table == "sessions" and isinstance(operation, Update):
                self.written += len(dumps(dict(operation.set)))
        await super().transact(name, operations)


@dataclass
class Model:
    """A model that looks an order up in each turn, and measures its prompts."""

    sizes: list[int] = field(default_factory=list)
    shared: int = 0
    summaries: int = 0
    before: list[AnyMessage] = field(default_factory=list)

    def __call__(self, request: LLMGenerateInput) -> AnyStepResult:
        size = estimate_request(request.messages, request.tools)
        pairs = zip(request.messages, self.before, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: _sent(pair[0]) == _sent(pair[1]), pairs))
        self.shared += estimate_request(request.messages[:alike], request.tools) if alike else 0
        self.before = list(request.messages)
        self.sizes.append(size)
        usage = Usage(prompt_tokens=size, completion_tokens=20, calls=1)
        if request.tool_choice == "none":
            self.summaries += 1
            return TextStepResult(content=SUMMARY, usage=usage)
        if request.messages[-1].role == "user":
            call = ParsedToolCall(id=f"call_{len(self.sizes)}", name="order", arguments={"number": len(self.sizes)})
            return ToolCallsStepResult(tool_calls=[call], usage=usage)
        return TextStepResult(content="It was shipped on Monday, and it is paid.", usage=usage)


def _sent(message: AnyMessage) -> Any:
    return message.role, message.content


async def measure(context: Context) -> tuple[Model, list[int], list[float]]:
    model, store = Model(), CountingStore()
    agent = Agent(
        name="desk", system_prompt="Help.", llm_config=LLMConfig(model="scripted"), tools=[order], context=context
    )
    written, seconds = [], []
    async with LocalExecutor(store, model=ScriptedModel([model], repeat=True, record=False)) as executor:
        for turn in range(TURNS):
            before, begun = store.written, time.process_time()
            result = await (await executor.execute(agent, f"And order {turn}?", session_id="s")).result()
            assert result.status == "completed", result.error
            written.append(store.written - before)
            seconds.append(time.process_time() - begun)
    return model, written, seconds


def average(values: Sequence[float], around: int) -> float:
    near = sorted(values[max(0, around - 10) : around + 10])
    return sum(near) / len(near)


async def main() -> None:
    lines = [
        f"# A conversation of {TURNS} turns under each context policy",
        "",
        f"Python {platform.python_version()}; `python bench/long_conversations.py`. Window: {WINDOW:,} tokens.",
        "",
        "| policy | longest prompt | sent | cacheable | summaries | KB at turn 20 | last | ratio | CPU ms at 20 | last |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, (context, share) in POLICIES.items():
        model, written, seconds = await measure(context)
        early, late = average(written, 20) / 1024, average(written, TURNS - 10) / 1024
        longest, total = max(model.sizes), sum(model.sizes)
        if share is not None:
            assert longest <= share * WINDOW + 2_000, (name, longest)
        times = f"{average(seconds, 20) * 1000:.1f} | {average(seconds, TURNS - 10) * 1000:.1f}"
        lines.append(
            f"| {name} | {longest:,} | {total:,} | {model.shared / total:.0%} | {model.summaries} "
            f"| {early:.2f} | {late:.2f} | {late / early:.2f} | {times} |"
        )
        print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if TURNS == 300:
        (Path(__file__).parent / "results" / "long_conversations.md").write_text(text, "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
