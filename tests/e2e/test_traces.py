"""Traces and costs of the deployed app, offline: one trace spans all its functions, and the services' own APIs confirm the
ledger."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cloud_executor import configure
from tests.support.cloud_agents.plans import ask, call, finish, plan, say, use
from tests.support.command_line import CommandLine
from tests.support.offline_cloud import CloudForTests, deployed, until

from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.system import SystemClock
from helix.core.ledger import Ledger
from helix.core.spans import run_ref
from helix.gateway.authoriser import Principal, prefix_of
from helix.local.run_report import read_report
from helix.local.traces import Received, TraceReceiver, render
from helix.sessions.ledger import ledger

HASTY_S = 8
"""The timeout of a function whose death the test waits for."""
VERBS = ("call_model", "call_tool", "start_run", "finish_run")


@pytest.fixture(scope="module")
def receiver() -> Iterator[TraceReceiver]:
    with TraceReceiver() as made:
        yield made


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, receiver: TraceReceiver) -> Iterator[CloudForTests]:
    """A cloud whose functions send their spans to the receiver."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
    with deployed(tmp_path_factory.mktemp("traced"), variables=variables) as made:
        yield made


async def book_of(cloud: CloudForTests, session_id: str) -> Ledger:
    tables = {name: cloud.cloud.table(name) for name in ("sessions", "streams", "control")}
    store = DynamoDBStateStore(cloud.aws("dynamodb"), tables, clock=SystemClock())  # type: ignore[arg-type]
    return await ledger(store, session_id, deployed=True)


def whole(receiver: TraceReceiver, trace_id: str) -> list[Received]:
    """Return the trace once its root has arrived. Functions send their spans before they answer."""
    spans = receiver.trace(trace_id)
    return spans if any(not span.parent_id for span in spans) else []


def names(spans: list[Received]) -> list[str]:
    """Return the tree of names, without figures. Concurrent spans are ordered by name."""
    below: dict[str, list[Received]] = {}
    for span in spans:
        below.setdefault(span.parent_id, []).append(span)

    def walk(parent: str, depth: int) -> Iterator[str]:
        for span in sorted(below.get(parent, []), key=lambda s: (not s.name.startswith("chat"), s.name, s.start)):
            yield "  " * depth + span.name
            yield from walk(span.span_id, depth + 1)

    return list(walk("", 0))


async def test_one_trace_and_one_ledger_of_a_run_with_tools_and_a_sub_agent(
    traced: CloudForTests, receiver: TraceReceiver, tmp_path: Path
) -> None:
    child = plan(use(call("look", topic="deep")), finish(summary="dug"))
    steps = plan(
        use(call("look", topic="a"), call("look", topic="b")), use(ask("helper", child)), finish(summary="done")
    )
    begun = SystemClock().now()
    async with traced.user("tracer") as client:
        handle = await client.run("boss", steps)
        assert (await handle.result(60)).status == "completed"
    assert traced.cloud.wait_until_quiet(60)
    trace_id = run_ref(handle.run_id, None).trace_id
    spans = until(lambda: whole(receiver, trace_id), "the root's span")
    model = next(span.name for span in spans if span.name.startswith("chat "))
    assert names(spans) == [
        "run boss",
        "  invoke_agent boss",
        *[f"    {model}"] * 3,
        "    execute_tool helper",
        "      run helper",
        "        invoke_agent helper",
        *[f"          {model}"] * 2,
        "          execute_tool look",
        "    execute_tool look",
        "    execute_tool look",
    ]
    assert len(render(spans)) == len(spans)

    story, book = read_report(traced.cloud, handle.session_id, begun), await book_of(traced, handle.session_id)
    counted = Counter[str]()
    for line in book.lines:
        if (line.service, line.what) == ("Step Functions", "transitions"):
            counted["transitions"] += int(line.quantity)
        elif line.service == "Lambda" and line.what in VERBS:
            counted[line.what] += int(line.quantity)
    assert counted.pop("transitions") == sum(len(execution.states) for execution in story.executions)
    retries = sum(execution.retries for execution in story.executions)
    repeats = Counter({verb: story.invocations[verb][0] for verb in VERBS})
    repeats.subtract(counted)
    assert min(repeats.values()) >= 0 and repeats.total() == retries, "by verb, without the emulator's retries"
    assert sum(line.quantity for line in book.lines if line.what == "repeated tasks") <= retries
    assert book.agrees and book.nanos == sum(line.nanos for line in book.lines)

    arguments = ("cost", handle.session_id, "--url", traced.url, "--key", traced.key("tracer"), "--json")
    shown = await asyncio.to_thread(CommandLine(tmp_path).process, *arguments)
    assert shown.code == 0, shown.err
    assert json.loads(shown.out) == book.dump()


async def test_a_function_that_is_killed_leaves_a_mark(traced: CloudForTests, receiver: TraceReceiver) -> None:
    """The attempt that died sent nothing. The next attempt says that it is the second."""
    configure(traced, "call_tool", Timeout=HASTY_S)
    session_id = f"{prefix_of(str(Principal('tracer')))}killed"
    armed = traced.crashes / session_id / "armed"
    (armed.parent / "points").mkdir(parents=True)
    armed.write_text("call_tool.claim_call:after#0")
    async with traced.user("tracer") as client:
        steps = plan(use(call("look", topic="x")), say("Done."))
        handle = await client.run("talker", steps, session_id=session_id)
        assert (await handle.result(90)).status == "completed"
    spans = until(lambda: whole(receiver, run_ref(handle.run_id, None).trace_id), "the root's span")
    (tool,) = [span for span in spans if span.name == "execute_tool look"]
    assert (tool.attributes["helix.attempt"], tool.attributes["helix.retry"]) == (2, True)
    assert names(spans)[:2] == ["run talker", "  invoke_agent talker"] and len(names(spans)) == len(spans)
    assert traced.cloud.wait_until_quiet(60)
    book = await book_of(traced, session_id)
    assert any(line.what == "repeated tasks" and line.quantity == 1 for line in book.lines)
