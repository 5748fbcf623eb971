"""Real schemas and arguments pass every wire format. The provider gets each schema unchanged, or in its strict form, and
the arguments come back unchanged from streamed fragments. boto3 checks the bodies of Converse against Bedrock's own
model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.bfcl import Entry, sample
from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Dialect, DialectServer, Says
from tests.support.responses_dialect import RESPONSES
from tests.support_litellm import request

from helix.adapters.models.adapter import ModelAdapter
from helix.core.steps import TextStepResult, ToolCallsStepResult

WIRES = [(dialect, adapter) for dialect in (RESPONSES, OPENAI, ANTHROPIC, BEDROCK) for adapter in ("native", "litellm")]


def tools_in(dialect: Dialect, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and schema of each tool in a request. Some entries offer no tools."""
    match dialect.name:
        case "responses":
            return [(tool["name"], tool["parameters"]) for tool in body.get("tools", ())]
        case "openai":
            return [(tool["function"]["name"], tool["function"]["parameters"]) for tool in body.get("tools", ())]
        case "anthropic":
            return [(tool["name"], tool["input_schema"]) for tool in body.get("tools", ())]
        case _:
            specs = [tool["toolSpec"] for tool in body.get("toolConfig", {}).get("tools", ())]
            return [(spec["name"], spec["inputSchema"]["json"]) for spec in specs]


async def play(dialect: Dialect, adapter: str, entries: Sequence[Entry], *, strict: bool | None = False) -> list[str]:
    """Play the entries and return descriptions of the failures, each with the entry's id. `strict`: as in `ToolSpec`."""
    wrong: list[str] = []
    script = [
        Says(
            "" if entry.calls else "None of these.",
            calls=tuple((f"call_{n}", name, json.dumps(given)) for n, (name, given) in enumerate(entry.calls)),
            stop="tool_use" if entry.calls else "end_turn",
            size=7,
        )
        for entry in entries
    ]
    with DialectServer(dialect, list(script)) as server:
        asks = ModelAdapter()
        for entry in entries:
            asked = request(
                **{"model": dialect.model, "adapter": adapter, **dialect.config},
                tools=[replace(tool, strict=strict) for tool in entry.tools],
                cache=False,
                max_retries=0,
                provider_options=dialect.options(server.origin),
            )
            wrong += [f"{entry.id}: {what}" for what in await _ask(asks, asked, server, dialect, adapter, entry)]
    return wrong


async def _ask(
    asks: ModelAdapter, asked: Any, server: DialectServer, dialect: Dialect, adapter: str, entry: Entry
) -> list[str]:
    result = await asks.generate_step(asked)
    if entry.calls and isinstance(result, ToolCallsStepResult):
        found = [(call.name, call.arguments) for call in result.tool_calls]
        wrong = [] if found == list(entry.calls) else [f"the calls are {found}"]
    else:
        wrong = [] if not entry.calls and isinstance(result, TextStepResult) else [f"the answer is {result}"]
    sent = tools_in(dialect, server.requests.pop().json) if server.requests else []
    wanted = [(tool.name, tool.parameters) for tool in entry.tools]
    if adapter == "litellm" or any(tool.strict is None for tool in asked.tools):  # litellm rewrites some schemas
        sent, wanted = [(name, {}) for name, _ in sent], [(name, {}) for name, _ in wanted]
    return wrong if sent == wanted else [*wrong, f"the tools are {sent}"]


@pytest.mark.parametrize(
    ("dialect", "adapter"),
    [
        pytest.param(
            dialect,
            adapter,
            id=f"{dialect.name}-{adapter}",
            marks=pytest.mark.slow if adapter == "litellm" else (),
        )
        for dialect, adapter in WIRES
    ],
)
@pytest.mark.parametrize("strict", [False, None], ids=["as given", "strict if closed"])
async def test_schemas_go_out_and_arguments_come_back(dialect: Dialect, adapter: str, strict: bool | None) -> None:
    entries = list(sample())
    assert len(entries) > 70 and sum(bool(entry.calls) for entry in entries) > 45
    assert await play(dialect, adapter, entries, strict=strict) == []
